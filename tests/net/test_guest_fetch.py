"""Fetches of wasm guests: their JSON, and the bridge by its wire, with hostile embedders and some that go away."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import InvalidRequest, SandboxDestroyed
from sandbox_kernel.net.client.safe_client import SafeClient
from sandbox_kernel.net.guest_fetch import (
    MAX_GUEST_BODY_BYTES,
    MAX_GUEST_FETCHES,
    MAX_REQUEST_JSON_BYTES,
    FetchBridge,
    answer_async,
    decode_request,
    guest_rules,
    read_request_json,
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


KEYS = {"status", "headers", "body", "body_b64", "ok", "error"}


def ask(client: SafeClient | None, **request: object) -> dict[str, object]:
    document = json.loads(run_on_network_loop(answer_async(json.dumps(request).encode(), client)))
    assert set(document) == KEYS
    return document


def test_a_guest_fetches_through_the_client(site, names):
    site.routes["/echo"] = lambda seen: site.reply(200, seen.line.encode() + b"|" + seen.body, "X-A: 1", "X-A: 2")
    client = SafeClient(site.policy(), names)
    got = ask(client, url=site.url("/echo"), method="POST", headers={"X-Mine": "1"}, body="text")
    assert (got["status"], got["ok"], got["error"]) == (200, True, None)
    assert got["body"] == "POST /echo HTTP/1.1|text"
    assert got["headers"]["x-a"] == "1, 2"
    assert site.seen[0].all("x-mine") == ["1"]


def test_binary_bodies_cross_intact_in_both_directions(site, names):
    blob = bytes(range(256))
    site.routes["/echo"] = lambda seen: site.reply(200, seen.body)
    client = SafeClient(site.policy(), names)
    got = ask(client, url=site.url("/echo"), method="PUT", body_b64=base64.b64encode(blob).decode())
    assert base64.b64decode(got["body_b64"]) == blob
    assert "\ufffd" in got["body"]


def test_the_method_is_get_and_only_the_url_is_needed(site, names):
    assert ask(SafeClient(site.policy(), names), url=site.url())["body"] == "hello"
    assert site.seen[0].line == "GET / HTTP/1.1"


def test_without_a_client_networking_is_disabled():
    got = ask(None, url="https://example.org/")
    assert (got["status"], got["ok"]) == (0, False)
    assert "networking disabled" in got["error"]
    assert "--allow-net" in got["error"]


def test_a_refusal_names_its_rule():
    got = ask(SafeClient(FetchPolicy(allow_all_public=True)), url="http://169.254.169.254/")
    assert "(private_ip_blocked)" in got["error"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b'{"url": 7}',
        b'{"url": "https://a.test", "method": 7}',
        b'{"url": "https://a.test", "method": "G T"}',
        b'{"url": "https://a.test", "headers": []}',
        b'{"url": "https://a.test", "headers": {"a": 1}}',
        b'{"url": "https://a.test", "headers": {"a": "b\\r\\nc: d"}}',
        b'{"url": "https://a.test", "body": 7}',
        b'{"url": "https://a.test", "body": "\\ud800"}',
        b'{"url": "https://a.test", "body_b64": "%%%"}',
        b'{"url": "https://a.test", "body_b64": 7}',
        b'{"url": "https://a.test", "body_b64": "\xc3\xbc"}',
        b'{"url": "https://a.test", "body": "a", "body_b64": "YQ=="}',
        b'{"url": "https://a.test", "follow": true}',
        b'{"url": "https://a.test", "x": ' + b"1" * 5000 + b"}",
    ],
)
def test_a_hostile_request_gets_an_answer_and_not_a_crash(raw: bytes, site, names):
    document = json.loads(run_on_network_loop(answer_async(raw, SafeClient(site.policy(), names))))
    assert set(document) == KEYS
    assert document["error"]
    assert not document["ok"]
    assert len(json.dumps(document)) < 4000


def test_a_request_beyond_the_bound_is_not_even_parsed():
    with pytest.raises(InvalidRequest, match="at most"):
        decode_request(b" " * (MAX_REQUEST_JSON_BYTES + 1))


TEXTS = ("url", "method", "body")
words = st.text(max_size=20)
documents = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(TEXTS, st.none() | words), "headers": st.none() | st.dictionaries(words, words)}
)


@given(documents, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_a_request_is_read_as_json_reads_it(document: dict[str, object], ascii_only: bool, indent: int | str | None):
    data = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    texts, table = read_request_json(data, TEXTS, "headers", 1000)
    assert table == (document.pop("headers", None) or {})
    assert texts == document


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\ntrue0u1', max_size=40).map(str.encode))
def test_whatever_else_is_refused_with_a_typed_error(data: bytes):
    try:
        texts, table = read_request_json(data, TEXTS, "headers", 10)
    except InvalidRequest:
        return
    document = json.loads(data)
    assert table == (document.pop("headers", None) or {})
    assert texts == document


@pytest.mark.parametrize("name", ["lists", "headers", "objects", "numbers"])
def test_sixteen_megabytes_of_brackets_became_gigabytes_of_the_hosts_memory(name: str):
    room = MAX_REQUEST_JSON_BYTES - 100
    bombs = {
        "lists": b'{"url": [' + b"[]," * (room // 3) + b"[]]}",
        "headers": b'{"headers": {' + b",".join(b'"%x":""' % number for number in range(room // 11)) + b"}}",
        "objects": b'{"headers": ' + b'{"a":' * (room // 5),
        "numbers": b'{"url": ' + b"1" * room + b"}",
    }
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            decode_request(bombs[name])
        assert tracemalloc.get_traced_memory()[1] < 2 * MAX_REQUEST_JSON_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("said", [b'{"url": "a", "url": "b"}', b'{"headers": {"a": "1", "a": "2"}}'])
def test_a_key_that_stands_there_twice_is_refused(said: bytes):
    with pytest.raises(InvalidRequest, match="twice"):
        read_request_json(said, TEXTS, "headers", 10)
