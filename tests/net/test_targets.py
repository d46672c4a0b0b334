from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.targets import (
    MAX_URL_CHARS,
    embedded_ipv4,
    is_metadata,
    normalise_host,
    parse_endpoint,
    parse_ip_literal,
    parse_url,
    why_not_public,
)


def rule_of(url: str) -> str:
    with pytest.raises(FetchError) as caught:
        parse_url(url)
    return caught.value.rule


def test_a_plain_https_url_is_taken():
    target = parse_url("https://example.org/a/b?c=d#e")
    assert (target.scheme, target.host, target.port, target.path) == ("https", "example.org", 443, "/a/b?c=d")
    assert target.authority == "example.org"


def test_a_host_has_one_spelling():
    assert parse_url("https://EXAMPLE.Org/").host == parse_url("https://example.org./").host == "example.org"
    assert parse_url("http://93.184.216.34/").host == "93.184.216.34"
    assert parse_url("http://0x7f.1./").address == IPv4Address("127.0.0.1")


@pytest.mark.parametrize("url", ["data:text/plain,hello", "file:///etc/passwd", "ftp://example.org/"])
def test_only_web_addresses_are_taken(url: str):
    assert rule_of(url) == "scheme_not_allowed"


@pytest.mark.parametrize(
    "url",
    [
        "http:///path", "http://", "http://:80/", "http:example.org", "http:/example.org", "//example.org", "",
        "https://user:pass@example.org/", "https://user@example.org/", "https://@example.org/",
        "https://example.org../", "https://./",
        "http://exa mple.org/",
        "http://example.org\r\nX: y/",
        "http://example.org/\r\nHost: evil",
        "http://example.org/a b",
        "http://example.org/\x00",
        "http://127%2e0.0.1/",
        "http://example.org%00.evil.org/",
        "http://evil.org\\@example.org/",
        "http://example.org\\.evil.org/",
        "http://example.org:80:80/",
        "http://example.org:0/",
        "http://example.org:65536/",
        "http://example.org:+80/",
        "http://example.org:٨٠/",
        "http://exa..mple.org/",
        "http://-example.org/",
        "http://[::1/",
        "http://[::1]evil.org/",
        "http://[fe80::1%25eth0]/",
        "http://::1/",
        "http://" + "a" * 64 + ".org/",
        "http://" + "a." * 130 + "org/",
        "http://ex\udcffample.org/",
        "http://example.org/\udcff",
        "http://example.org/" + "a" * MAX_URL_CHARS,
    ],
)  # fmt: skip
def test_a_url_that_two_parsers_could_read_differently_is_refused(url: str):
    assert rule_of(url) == "invalid_url"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("ⓔxample.org", "example.org"),
        ("example。org", "example.org"),
        ("①②⑦.⓪.⓪.①", "127.0.0.1"),
        ("１６９.２５４.１６９.２５４", "169.254.169.254"),
        ("faß.de", "xn--fa-hia.de"),
    ],
)
def test_an_international_name_has_one_spelling(written: str, meant: str):
    assert normalise_host(written)[0] == meant


def test_a_look_alike_name_stays_another_name():
    assert normalise_host("аpple.com")[0].startswith("xn--")


def test_ipv6_literals_work_in_urls_and_in_the_host_header():
    target = parse_url("http://[2606:4700:4700:0:0:0:0:1111]:8080/x")
    assert (target.host, target.port) == ("2606:4700:4700::1111", 8080)
    assert target.authority == "[2606:4700:4700::1111]:8080"
    assert parse_url(target.url) == target


def test_text_beyond_ascii_in_the_path_is_percent_encoded_once():
    assert parse_url("http://example.org/ü?q=%C3%BC").path == "/%C3%BC?q=%C3%BC"


def test_an_endpoint_needs_a_port():
    assert parse_endpoint("example.org:443").endpoint == "example.org:443"
    assert parse_endpoint("[2606:4700::1]:443").host == "2606:4700::1"
    for text in ("a.org", "a.org:", "a.org:99999", "[::1]", "a@b:443", "http://a.org:443", ":443"):
        with pytest.raises(FetchError):
            parse_endpoint(text)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.0.0.2", "127.255.255.255", "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255",
        "192.168.0.1", "192.168.255.255", "169.254.0.1", "169.254.169.254", "0.0.0.0", "255.255.255.255", "224.0.0.1",
        "239.255.255.255", "240.0.0.1", "100.64.0.1", "100.127.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1",
        "::1", "::", "fe80::1", "febf::1", "fc00::1", "fd00::1", "fdff::1", "fd00:ec2::254", "ff02::1", "ff0e::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "0.1.2.3", "192.0.0.8", "192.0.0.170",
        "198.18.0.1", "198.19.255.255", "192.88.99.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808",
        "2002:7f00:1::1", "2002:808:808::1", "2001:0:808:808::1", "::8.8.8.8", "::127.0.0.1", "fec0::1", "2001:db8::1",
        "3fff::1", "5f00::1", "100::1", "4000::1",
    ],
)  # fmt: skip
def test_an_address_of_no_public_host_is_refused(address: str):
    assert why_not_public(ip_address(address)) is not None


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "9.255.255.255", "11.0.0.0",
     "::ffff:8.8.8.8", "2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450:4001:830::200e", "64:ff9b::808:808"],
)  # fmt: skip
def test_a_public_address_is_allowed_also_inside_ipv6(address: str):
    assert why_not_public(ip_address(address)) is None


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
    assert why_not_public(ip_address(address)) is not None


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
    assert why_not_public(ip_address(text)) is not None
    assert why_not_public(ip_address("2606:4700::5efe:8.8.8.8")) is None
