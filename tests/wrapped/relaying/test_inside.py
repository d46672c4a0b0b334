"""The protocol reader against real libzmq, and against bytes that no kernel would send."""

import contextlib
import socket
import time

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.wrapped.relaying import inside
from sandbox_kernel.wrapped.relaying.inside import GREETING, InnerConnection, ZmtpError, ZmtpReader, encode, ready
from sandbox_kernel.wrapped.relaying.relay import Relay


def greeted() -> ZmtpReader:
    reader = ZmtpReader()
    assert reader.feed(GREETING + ready(b"ROUTER")) == []
    assert reader.ready
    return reader


@pytest.fixture
def peer():
    context = zmq.Context()

    def connect(kind, channel):
        sock = context.socket(kind)
        port = sock.bind_to_random_port("tcp://127.0.0.1")
        raw = socket.create_connection(("127.0.0.1", port))
        raw.setblocking(False)
        return sock, InnerConnection(channel, raw)

    yield connect
    context.destroy(linger=0)


def messages(connection, until=1):
    found = []
    end = time.monotonic() + 20
    while len(found) < until and time.monotonic() < end:
        zmq.select([connection.fileno()], [], [], 0.1)
        found += connection.receive()
    return found


def test_a_router_of_libzmq_gets_our_name_and_answers(peer):
    router, connection = peer(zmq.ROUTER, "shell")
    messages(connection, until=0)
    while connection.is_full:
        zmq.select([connection.fileno()], [], [], 0.1)
        connection.receive()
    connection.send([b"client", b"", b"x" * 300])
    frames = router.recv_multipart()
    assert frames == [b"sandbox-relay", b"client", b"", b"x" * 300]
    router.send_multipart([frames[0], b"client", b"y" * 1_000_000])
    assert messages(connection) == [[b"client", b"y" * 1_000_000]]


@pytest.mark.parametrize("kind", [zmq.PUB, zmq.XPUB])
def test_a_publisher_of_libzmq_sends_us_everything(peer, kind):
    publisher, connection = peer(kind, "iopub")
    found = []
    end = time.monotonic() + 20
    while not found and time.monotonic() < end:
        publisher.send_multipart([b"topic", b"hello"])
        zmq.select([connection.fileno()], [], [], 0.05)
        found += connection.receive()
    assert found[0] == [b"topic", b"hello"]


@given(st.lists(st.lists(st.binary(max_size=600), min_size=1, max_size=6), max_size=6), st.integers(1, 50))
def test_messages_arrive_whole_however_the_bytes_are_cut(sent, size):
    data = b"".join(map(encode, sent))
    reader = greeted()
    found = [message for at in range(0, len(data), size) for message in reader.feed(data[at : at + size])]
    assert found == sent


@given(st.binary(max_size=400))
def test_any_bytes_give_messages_or_the_error(data):
    for reader in (ZmtpReader(), greeted()):
        with contextlib.suppress(ZmtpError):
            reader.feed(data)


def test_a_message_that_is_too_large_is_skipped_without_being_kept(monkeypatch):
    monkeypatch.setattr(inside, "MAX_MESSAGE", 1000)
    reader = greeted()
    data = encode([b"a" * 600, b"b" * 600]) + encode([b"next"])
    found = []
    for at in range(0, len(data), 100):
        found += reader.feed(data[at : at + 100])
        assert len(reader._buffer) <= 700
    assert found == [[b"next"]]
    assert reader.dropped == 1


def test_a_message_of_endless_parts_is_skipped():
    reader = greeted()
    for _ in range(5 * inside.MAX_PARTS):
        assert reader.feed(b"\x01\x01x") == []
        assert len(reader._parts) <= inside.MAX_PARTS
    assert reader.feed(b"\x00\x01x" + encode([b"next"])) == [[b"next"]]
    assert reader.dropped == 1


def test_a_frame_of_the_largest_size_is_skipped_as_it_comes():
    reader = greeted()
    reader.feed(b"\x02" + (1 << 62).to_bytes(8, "big"))
    for _ in range(10):
        reader.feed(b"x" * 1_000_000)
        assert len(reader._buffer) == 0


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n" + b"x" * 64, b"\xff" + bytes(8) + b"\x7f\x01" + bytes(60)])
def test_another_protocol_is_refused(data):
    with pytest.raises(ZmtpError):
        ZmtpReader().feed(data)


def test_a_message_before_the_handshake_is_refused():
    with pytest.raises(ZmtpError, match="before its handshake"):
        ZmtpReader().feed(GREETING + encode([b"early"]))


def test_what_is_sent_before_the_handshake_waits_for_its_end_and_has_a_bound_on_control():
    kernel, raw = socket.socketpair()
    raw.setblocking(False)
    with kernel, raw:
        connection = InnerConnection("control", raw)
        assert Relay._takes(connection)
        connection.send([b"early"])
        for _ in range(20):
            connection.send([b"x" * (100 << 10)])
        kernel.settimeout(20)
        assert kernel.recv(4096).startswith(GREETING) and not zmq.select([kernel], [], [], 0)[0]
        kernel.sendall(GREETING + ready(b"ROUTER"))
        assert messages(connection, until=0) == [] and connection.receive() == []
        assert kernel.recv(7) == encode([b"early"])
        assert len(connection.waiting) < inside._MOST_WAITING + (200 << 10)
