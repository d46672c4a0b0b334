import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.net.proxy.tls_hello import MAX_HELLO_BYTES, ClientHello, HelloReader


def hello_bytes(name: str | None) -> bytes:
    """What this machine's own TLS library sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def made(extensions: bytes) -> bytes:
    body = (
        b"\x03\x03"
        + bytes(32)
        + b"\x00"
        + b"\x00\x02\x13\x01"
        + b"\x01\x00"
        + len(extensions).to_bytes(2, "big")
        + extensions
    )
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data


def server_name(*names: bytes, kind: int = 0) -> bytes:
    rows = b"".join(bytes([kind]) + len(name).to_bytes(2, "big") + name for name in names)
    return extension(0, len(rows).to_bytes(2, "big") + rows)


def test_the_name_in_a_hello_is_read_and_an_encrypted_one_is_noticed():
    assert HelloReader().feed(hello_bytes("example.org")) == ClientHello("example.org", False)
    assert HelloReader().feed(hello_bytes(None)) == ClientHello(None, False)
    assert HelloReader().feed(made(server_name(b"a.test") + extension(0xFE0D, b"x"))) == ClientHello("a.test", True)


def test_every_beginning_of_a_hello_asks_for_more():
    data = hello_bytes("example.org")
    for length in range(len(data)):
        assert HelloReader().feed(data[:length]) is None
    assert HelloReader().feed(data + b"more") == HelloReader().feed(data)


def test_a_hello_cut_into_many_records_is_put_together():
    message = hello_bytes("example.org")[5:]
    pieces = [message[at : at + 7] for at in range(0, len(message), 7)]
    data = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    hello = HelloReader().feed(data)
    assert hello is not None
    assert hello.server_name == "example.org"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"\x80\x2e\x01\x03\x01",
        b"\x17\x03\x03\x00\x05hello",
        b"\x16\x02\x00\x00\x05hello",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        made(server_name(b"a.test", b"b.test")),
        made(server_name(b"a.test") + server_name(b"b.test")),
        made(server_name(b"a.test", kind=1)),
        made(server_name("ä.test".encode())),
        made(extension(0, b"")),
        made(extension(0, b"\x00\x05\x00\x00\xffab")),
        made(b"\x00\x00\xff"),
        made(b"")[:-4] + b"\xff\xff\xff\xff",
    ],
)
def test_what_is_not_exactly_a_hello_is_an_error(data: bytes):
    with pytest.raises(ValueError):
        HelloReader().feed(data)


def test_a_hello_without_end_is_given_up():
    record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(0x4000 - 4)
    more = b"\x16\x03\x01\x40\x00" + bytes(0x4000)
    assert HelloReader().feed(record) is None
    with pytest.raises(ValueError, match=str(MAX_HELLO_BYTES)):
        HelloReader().feed(record + more + more)


def test_a_hello_that_trickles_in_tiny_records_is_read_once():
    message = hello_bytes("example.org")[5:]
    data = b"".join(b"\x16\x03\x01\x00\x01" + message[at : at + 1] for at in range(len(message)))
    reader = CountingReader()
    found = [hello for at in range(len(data)) if (hello := reader.feed(data[at : at + 1])) is not None]
    assert [hello.server_name for hello in found] == ["example.org"]
    assert reader.records == len(message)


class CountingReader(HelloReader):
    """Counts how often the header of a record was looked at in whole."""

    records = 0

    def _record_length(self) -> int:
        length = super()._record_length()
        self.records += length > 0
        return length


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 60))
@pytest.mark.slow
def test_a_hello_is_the_same_however_it_is_cut(junk: list[bytes], step: int):
    data = hello_bytes("example.org") + b"".join(junk)
    reader = HelloReader()
    pieces = (data[at : at + step] for at in range(0, len(data), step))
    assert next(filter(None, map(reader.feed, pieces))) == HelloReader().feed(data)
