"""The bridge of wasm guests by its wire: hostile embedders, many at once, and embedders that go away."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox_kernel.errors import SandboxDestroyed
from sandbox_kernel.net.client.safe_client import SafeClient
from sandbox_kernel.net.guest_fetch.fetch_json import MAX_REQUEST_JSON_BYTES
from sandbox_kernel.net.guest_fetch.fetch_server import (
    MAX_GUEST_BODY_BYTES,
    MAX_GUEST_FETCHES,
    FetchBridge,
    guest_rules,
)
from sandbox_kernel.net.network_thread import run_on_network_loop
from sandbox_kernel.net.rules.fetch_policy import FetchPolicy


class Held:
    """A server that answers when it is told to, and knows who is still there."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()
        self.left = threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            self.asked.release()
            if connection.recv(1) == b"" and not self.go.is_set():
                self.left.release()

    def close(self) -> None:
        self.go.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.close()


@pytest.fixture
def place() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.fixture
def bridge(held: Held, place: socket.socket) -> Iterator[FetchBridge]:
    policy = FetchPolicy(allowed_domains=[f"site.test:{held.port}"], allow_private_for=["site.test"])
    with FetchBridge(SafeClient(guest_rules(policy), lambda *_: ["127.0.0.1"])) as made:
        made.start(place)
        yield made


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def receive(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(65536):
        data += part
    return data


def dial(place: socket.socket) -> socket.socket:
    return socket.create_connection(place.getsockname(), timeout=20)


def test_a_request_gets_one_answer_and_the_connection_ends(bridge: FetchBridge, place: socket.socket) -> None:
    with dial(place) as connection:
        connection.sendall(frame(b'{"url": "http://other.test/"}'))
        data = receive(connection)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert "domain_not_allowed" in json.loads(data[4:])["error"]
    assert [violation.rule for violation in bridge.take_violations()] == ["domain_not_allowed"]
    assert bridge.violations == ()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param((MAX_REQUEST_JSON_BYTES + 1).to_bytes(4, "big"), id="a length beyond the bound"),
        pytest.param(b"\xff\xff\xff\xff" + bytes(1000), id="the largest length"),
    ],
)
def test_a_frame_that_is_too_long_is_hung_up_on_unread(bridge: FetchBridge, place: socket.socket, said: bytes) -> None:
    with dial(place) as connection:
        connection.sendall(said)
        try:
            assert receive(connection) == b""
        except ConnectionResetError:
            return


@pytest.mark.parametrize("said", [b"", b"nonsense", b"[" * 100_000, b'{"url": 1}', b'{"url": "\\ud800"}', b"\xff\xfe"])
def test_whatever_is_said_is_answered_with_an_error(bridge: FetchBridge, place: socket.socket, said: bytes) -> None:
    with dial(place) as connection:
        connection.sendall(frame(said))
        assert json.loads(receive(connection)[4:])["error"]


def test_a_runner_that_goes_away_ends_its_fetch(bridge: FetchBridge, held: Held, place: socket.socket) -> None:
    with dial(place) as connection:
        connection.sendall(frame(json.dumps({"url": f"http://site.test:{held.port}/"}).encode()))
        assert held.asked.acquire(timeout=20)
    assert held.left.acquire(timeout=20)


def test_closing_ends_every_fetch_and_may_be_done_twice(
    bridge: FetchBridge, held: Held, place: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    with dial(place) as connection:
        connection.sendall(frame(json.dumps({"url": f"http://site.test:{held.port}/"}).encode()))
        assert held.asked.acquire(timeout=20)
        bridge.close()
        assert held.left.acquire(timeout=20)
        assert receive(connection) == b""
    bridge.close()
    run_on_network_loop(asyncio.sleep(0))
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    with pytest.raises(SandboxDestroyed), socket.create_server(("127.0.0.1", 0)) as other:
        bridge.start(other)


def test_more_at_once_than_a_guest_can_ask_for_are_hung_up_on(
    bridge: FetchBridge, held: Held, place: socket.socket
) -> None:
    wanted = frame(json.dumps({"url": f"http://site.test:{held.port}/"}).encode())
    with ThreadPoolExecutor() as threads:
        waiting = [dial(place) for _ in range(MAX_GUEST_FETCHES)]
        for connection in waiting:
            connection.sendall(wanted)
        for _ in waiting:
            assert held.asked.acquire(timeout=20)
        with dial(place) as more:
            assert threads.submit(receive, more).result(20) == b""
        for connection in waiting:
            connection.close()


def test_a_guest_has_the_rules_of_its_sandbox_and_smaller_bounds() -> None:
    rules = guest_rules(FetchPolicy(allowed_domains=["a.test"], max_response_body_bytes=10))
    assert (rules.max_response_body_bytes, rules.max_concurrent) == (10, MAX_GUEST_FETCHES)
    assert guest_rules(FetchPolicy()).max_response_body_bytes == MAX_GUEST_BODY_BYTES
