"""Which addresses are public: every range that is not, and every notation in which one can be hidden."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from sandbox_kernel.net.rules.addresses import embedded_ipv4, is_metadata, is_public, parse_ip_literal, why_not_public


def refuses(*texts: str) -> None:
    for text in texts:
        assert not is_public(text), text


def allows(*texts: str) -> None:
    for text in texts:
        assert is_public(text), (text, why_not_public(ip_address(text)))


def test_loopback_v4_is_refused():
    refuses("127.0.0.1", "127.0.0.2", "127.255.255.255")


def test_private_ranges_v4_are_refused():
    refuses("10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255")


def test_link_local_v4_and_its_metadata_service_are_refused():
    refuses("169.254.0.1", "169.254.169.254")


def test_unspecified_and_broadcast_are_refused():
    refuses("0.0.0.0", "255.255.255.255")


def test_multicast_v4_is_refused():
    refuses("224.0.0.1", "239.255.255.255")


def test_reserved_v4_and_carrier_grade_nat_are_refused():
    refuses("240.0.0.1", "100.64.0.1", "100.127.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1")


def test_public_v4_is_allowed():
    allows("8.8.8.8", "1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "9.255.255.255", "11.0.0.0")


def test_loopback_v6_is_refused():
    refuses("::1")


def test_unspecified_v6_is_refused():
    refuses("::")


def test_link_local_v6_is_refused():
    refuses("fe80::1", "febf::1")


def test_unique_local_v6_is_refused():
    refuses("fc00::1", "fd00::1", "fdff::1")


def test_ec2_metadata_v6_is_refused():
    refuses("fd00:ec2::254")


def test_multicast_v6_is_refused():
    refuses("ff02::1", "ff0e::1")


def test_ipv4_mapped_v6_of_a_private_address_is_refused():
    refuses("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254")


def test_ipv4_mapped_v6_of_a_public_address_is_allowed():
    allows("::ffff:8.8.8.8")


def test_public_v6_is_allowed():
    allows("2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450:4001:830::200e")


@pytest.mark.parametrize(
    "address",
    [
        "0.1.2.3",
        "192.0.0.8",
        "192.0.0.170",
        "198.18.0.1",
        "198.19.255.255",
        "192.88.99.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "2002:7f00:1::1",
        "2002:808:808::1",
        "2001:0:808:808::1",
        "::8.8.8.8",
        "::127.0.0.1",
        "fec0::1",
        "2001:db8::1",
        "3fff::1",
        "5f00::1",
        "100::1",
        "4000::1",
    ],
)
def test_the_less_known_ranges_are_refused(address: str):
    refuses(address)


def test_nat64_of_a_public_address_is_judged_by_the_address_inside():
    allows("64:ff9b::808:808")


@pytest.mark.attack("N06", "network")
@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:168.63.129.16",
        "64:ff9b::a83f:8110",
        "2002:a83f:8110::",
    ],
)
def test_cloud_metadata_addresses_are_known_even_when_they_are_public_or_wrapped(address: str):
    assert is_metadata(ip_address(address))
    refuses(address)


def test_every_embedded_ipv4_form_is_unwrapped():
    inner = IPv4Address("10.1.2.3")
    for text in ("::ffff:10.1.2.3", "::10.1.2.3", "2002:a01:203::1", "64:ff9b::a01:203"):
        assert inner in embedded_ipv4(IPv6Address(text)), text
    # Teredo holds the client inverted, and the server in the clear.
    assert IPv4Address("10.1.2.3") in embedded_ipv4(IPv6Address("2001:0:808:808:0:0:f5fe:fdfc"))


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0X7F.1",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f.0.0.0x1",
        "017700000001",
    ],
)
def test_every_notation_of_loopback_is_the_same_address(text: str):
    assert parse_ip_literal(text) == IPv4Address("127.0.0.1")


@pytest.mark.parametrize("text", ["256.1.1.1", "1.2.3.4.5", "08.1.1.1", "4294967296", "foo.123", "1..2", "0x1g.1"])
def test_a_host_that_ends_in_a_number_and_is_no_address_is_an_error(text: str):
    with pytest.raises(ValueError):
        parse_ip_literal(text)


def test_the_last_part_of_a_short_form_fills_what_the_others_leave():
    assert parse_ip_literal("127.256") == IPv4Address("127.0.1.0")


@pytest.mark.parametrize(
    "text", ["example.org", "1.example", "0x7f.example", "a1", "deadbeef", "xn--bcher-kva.example"]
)
def test_a_name_is_not_taken_for_an_address(text: str):
    assert parse_ip_literal(text) is None


def test_ipv6_is_read_with_and_without_brackets_but_never_with_a_scope():
    assert parse_ip_literal("[::1]") == parse_ip_literal("::1") == IPv6Address("::1")
    for text in ("[fe80::1%eth0]", "fe80::1%25eth0", "[::1", "::1]", "[127.0.0.1]"):
        with pytest.raises(ValueError):
            parse_ip_literal(text)


@pytest.mark.attack("N06", "network")
@pytest.mark.parametrize("text", ["2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:169.254.169.254"])
def test_an_isatap_address_is_judged_by_the_address_inside(text: str):
    assert not is_public(text)
    assert is_public("2606:4700::5efe:8.8.8.8")
