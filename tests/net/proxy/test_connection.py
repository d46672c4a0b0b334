"""What may flow through a CONNECT tunnel."""

import socket
import ssl

import pytest

from sandbox_kernel.net.proxy.egress_proxy import ProxyLimits


def test_tls_through_a_tunnel_reaches_the_named_host(tls_site, open_door, authority):
    door = open_door(tls_site.policy(), limits=tls_site.limits_as(443))
    context = ssl.create_default_context(cafile=authority.ca_file)
    with door.open_tunnel(f"site.test:{tls_site.port}") as raw:
        with context.wrap_socket(raw, server_hostname="site.test") as secure:
            secure.sendall(b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n")
            assert door.read_all(secure).endswith(b"secret hello")
    assert door.proxy.violations == ()


@pytest.mark.parametrize("name", ["other.test", None])
@pytest.mark.parametrize("strict_port", [True, False])
@pytest.mark.one_case
def test_a_tls_hello_for_another_host_is_cut_off(tls_site, open_door, name: str | None, strict_port: bool):
    limits = tls_site.limits_as(443) if strict_port else ProxyLimits()
    door = open_door(tls_site.policy(), limits=limits)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with door.open_tunnel(f"site.test:{tls_site.port}") as raw:
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            context.wrap_socket(raw, server_hostname=name)
    assert door.rules == ["sni_mismatch"]
    assert tls_site.seen == []


def test_a_name_cut_between_two_records_and_two_packets_is_still_read(tls_site, open_door):
    door = open_door(tls_site.policy(), limits=tls_site.limits_as(443))
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="other.test").do_handshake()
    message = outgoing.read()[5:]
    at = message.index(b"other.test") + 3
    with door.open_tunnel(f"site.test:{tls_site.port}") as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (message[:at], message[at:]):
            raw.sendall(b"\x16\x03\x01" + len(piece).to_bytes(2, "big"))
            raw.sendall(piece)
        door.read_all(raw)
    assert door.rules == ["sni_mismatch"]


def test_an_encrypted_hello_is_cut_off_although_its_outer_name_is_right(tls_site, open_door):
    door = open_door(tls_site.policy(), limits=tls_site.limits_as(443))
    name = b"\x00\x00\x00\x0e\x00\x0c\x00\x00\x09site.test"
    extensions = name + b"\xfe\x0d\x00\x01x"
    body = b"\x03\x03" + bytes(33) + b"\x00\x02\x13\x01\x01\x00" + len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    with door.open_tunnel(f"site.test:{tls_site.port}") as raw:
        raw.sendall(b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message)
        door.read_all(raw)
    assert door.rules == ["sni_mismatch"]
    assert "ECH" in door.proxy.violations[0].reason


_SSH, _HTTP_2 = b"SSH-2.0-OpenSSH_9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize(
    ("port", "first"),
    [(443, b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n"), (443, _SSH), (443, _HTTP_2), (443, b"\x00\x01"),
     (80, _HTTP_2), (80, _SSH), (80, b"GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n"),
     (80, b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n")],
)  # fmt: skip
def test_only_tls_passes_to_a_tls_port_and_only_http_to_a_plain_one(site, open_door, port: int, first: bytes):
    door = open_door(site.policy(), limits=site.limits_as(port))
    with door.open_tunnel(f"site.test:{site.port}") as raw:
        raw.sendall(first)
        answer = door.read_all(raw)
    assert (b"403" in answer and door.rules == ["not_tls"]) if port == 443 else len(door.rules) == 1
    assert site.seen == []


def test_plain_http_in_a_tunnel_is_a_request_to_the_tunnels_host(site, open_door):
    door = open_door(site.policy(), limits=site.limits_as(80))
    with door.open_tunnel(f"site.test:{site.port}") as raw:
        raw.sendall(door.get("/", host="evil.test"))
        assert door.read_all(raw).endswith(b"hello")
    assert site.seen[0].all("host") == [f"site.test:{site.port}"]


def test_a_server_that_speaks_first_works_on_a_port_that_a_rule_names(start_server, site, open_door):
    def greet(connection: socket.socket) -> None:
        connection.sendall(b"220 welcome\r\n")
        connection.sendall(b"you said " + connection.recv(100))

    server = start_server(greet)
    door = open_door(site.policy(allowed_domains=(f"site.test:{server.port}",)))
    with door.open_tunnel(f"site.test:{server.port}") as raw:
        assert raw.recv(100) == b"220 welcome\r\n"
        raw.sendall(b"hi")
        assert door.read_all(raw) == b"you said hi"


def test_a_tunnel_may_be_half_closed(start_server, site, open_door):
    def count(connection: socket.socket) -> None:
        total = 0
        while data := connection.recv(65536):
            total += len(data)
        connection.sendall(str(total).encode())

    server = start_server(count)
    door = open_door(site.policy(allowed_domains=(f"site.test:{server.port}",)))
    with door.open_tunnel(f"site.test:{server.port}") as raw:
        raw.sendall(b"x" * 300_000)
        raw.shutdown(socket.SHUT_WR)
        assert door.read_all(raw) == b"300000"
