"""A hostile program against the proxy, with raw sockets: N06, N09 and N10 of the attack list."""

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from dataclasses import replace

import h11
import pytest

from sandbox_kernel.model.result import MOST_VIOLATION_TEXT
from sandbox_kernel.net.fetch_policy import FetchPolicy
from sandbox_kernel.net.proxy.egress_proxy import ProxyLimits
from sandbox_kernel.net.safe_client import SafeClient
from sandbox_kernel.util.loop_thread import NETWORK


@pytest.mark.attack("N06", "network")
@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:443", "2130706433:443", "0x7f.1:443", "0177.0.0.1:443", "127.1:443", "[::1]:443",
        "[::ffff:127.0.0.1]:443",
        "[64:ff9b::7f00:1]:443", "169.254.169.254:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "168.63.129.16:80",
        "metadata.google.internal:80", "localhost:443", "10.0.0.1:443", "0:443",
    ],
)  # fmt: skip
def test_no_private_or_metadata_address_is_reached_even_with_the_whole_network_allowed(open_door, endpoint: str):
    door = open_door(FetchPolicy(allow_all_public=True))
    answer = door.talk(f"CONNECT {endpoint} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert door.rules == ["private_ip_blocked"]


@pytest.mark.attack("N06", "network")
@pytest.mark.parametrize("answers", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::ffff:169.254.169.254"]])
def test_a_public_name_with_a_private_answer_is_refused(open_door, names, answers: list[str]):
    names.answers["rebind.test"] = [answers]
    door = open_door(FetchPolicy(allow_all_public=True))
    assert door.talk(b"CONNECT rebind.test:443 HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 403 ")
    assert door.rules == ["private_ip_blocked"]


@pytest.mark.attack("N06", "network")
def test_rebinding_between_check_and_use_changes_nothing(site, open_door, names):
    names.answers["site.test"] = [["127.0.0.1"], ["10.0.0.1"]]
    door = open_door(site.policy())
    assert door.talk(door.get(site.url())).endswith(b"hello")
    assert names.asked == ["site.test"]
    assert door.talk(door.get(site.url())).startswith(b"HTTP/1.1 403 ")
    assert len(site.seen) == 1


def test_private_addresses_are_opened_one_by_one(site, open_door):
    policy = FetchPolicy(allowed_domains=(f"site.test:{site.port}",))
    closed, opened = open_door(policy), open_door(replace(policy, allow_private_for=("127.0.0.1",)))
    assert closed.talk(closed.get(site.url())).startswith(b"HTTP/1.1 403 ")
    assert opened.talk(opened.get(site.url())).endswith(b"hello")


@pytest.mark.attack("N09", "network")
def test_only_names_on_the_allow_list_are_ever_resolved(site, open_door, names):
    door = open_door(site.policy())
    for host in ("c2VjcmV0.attacker.test", "site.test.attacker.test", "xsite.test", "sub.site.test"):
        door.talk(f"CONNECT {host}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        door.talk(door.get(f"http://{host}/"))
    door.talk(b"CONNECT site.test:22 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert names.asked == []
    assert set(door.rules) == {"domain_not_allowed", "port_not_allowed"}


@pytest.mark.attack("N10", "network")
@pytest.mark.parametrize("port", [22, 25, 53, 3306, 8080])
def test_connect_to_a_port_that_no_rule_names_is_refused(open_door, port: int):
    for policy in (FetchPolicy(allow_all_public=True), FetchPolicy(allowed_domains=("site.test",))):
        door = open_door(policy)
        answer = door.talk(f"CONNECT site.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert door.rules == ["port_not_allowed"]


POST = b"POST http://site.test:PORT/ HTTP/1.1\r\nHost: x\r\n"
GET = b"GET http://site.test:PORT/ HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.attack("N10", "network")
@pytest.mark.parametrize(
    "request_bytes",
    [
        POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        POST + b"Content-Length: +4\r\n\r\nbody",
        POST + b"Content-Length: 4, 4\r\nTransfer-Encoding: identity\r\n\r\nbody",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        GET + b"Host: y\r\n\r\n",
        GET + b"Bad Header: y\r\n\r\n",
        GET + b"X: a\x00b\r\n\r\n",
        GET + b"X: a\rHost: b\r\n\r\n",
        b"GET http://site.test:PORT/ HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET http://site.test:PORT/\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"\x05\x01\x00\r\n\r\n",
        b"CONNECT site.test:PORT HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        GET + b"".join(b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(2000)) + b"\r\n",
    ],
    ids=lambda said: repr(said[:60]),
)
def test_a_smuggled_or_malformed_request_never_reaches_the_server(site, open_door, request_bytes: bytes):
    door = open_door(site.policy())
    answer = door.talk(request_bytes.replace(b"PORT", str(site.port).encode()))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert door.rules == ["malformed_request"]
    assert site.seen == []


@pytest.mark.attack("N10", "network")
def test_nothing_behind_the_first_request_of_a_connection_is_ever_sent(site, open_door):
    site.routes["/"] = lambda seen: site.reply(200, seen.body + b"|" + seen.rest)
    door = open_door(site.policy())
    for first, body in (
        (door.get(site.url()), b""),
        (door.post(site.url(), "Content-Length: 4", body=b"body"), b"body"),
    ):
        answer = door.talk(first + door.get("http://evil.test/") + door.get(site.url("/second")))
        assert answer.count(b"HTTP/1.1 ") == 1 and answer.endswith(b"\r\n\r\n" + body + b"|")
    assert [seen.line for seen in site.seen] == ["GET / HTTP/1.1", "POST / HTTP/1.1"]


@pytest.mark.attack("N10", "network")
def test_a_broken_chunk_ends_the_request(site, open_door):
    door = open_door(site.policy())
    with door.connect() as connection:
        connection.sendall(
            f"POST {site.url()} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".encode()
        )
        assert door.read_all(connection).startswith(b"HTTP/1.1 403 ")
    assert door.rules == ["malformed_request"]
    # The head may have been sent on before the chunk was read; nothing of the body follows it.
    assert all((request.body, request.rest) == (b"", b"") for request in site.seen)


@pytest.mark.attack("N10", "network")
def test_a_small_head_of_thousands_of_headers_is_refused_before_it_is_parsed(site, open_door, monkeypatch):
    read: list[int] = []
    monkeypatch.setattr(
        h11.Connection, "next_event", lambda http: read.append(len(http.trailing_data[0])) or h11.NEED_DATA
    )
    door = open_door(site.policy())
    answer = door.talk(b"GET http://site.test/ HTTP/1.1\r\n" + b"a:\r\n" * 2000 + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert door.rules == ["malformed_request"]
    assert all(size < 1000 for size in read), "h11 got to see the thousands of lines"


@pytest.mark.attack("N10", "network")
def test_as_many_headers_as_a_request_may_have_go_through(site, open_door):
    door = open_door(site.policy())
    body = b"line\n" * 1000
    headers = [f"X-{number}: y" for number in range(198)]
    assert door.talk(door.post(site.url(), *headers, f"Content-Length: {len(body)}", body=body)).endswith(b"hello")
    assert site.seen[0].body == body


@pytest.mark.attack("O07", "network")
@pytest.mark.parametrize(
    "said",
    [
        b"GET http://site.test/ HTTP/1.1\r\nHost: x\r\n" + b"obey me " * 2000 + b"\r\n\r\n",
        b"O" * 20_000 + b" http://site.test:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://" + b"o" * 15_000 + b"/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://site.test/" + b"o" * 15_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00\x1b[31m" * 3000 + b"\r\n\r\n",
    ],
)
def test_a_refusal_quotes_the_program_in_short(site, open_door, said: bytes):
    door = open_door(site.policy())
    assert door.talk(said.replace(b"PORT", str(site.port).encode())).startswith(b"HTTP/1.1 403 ")
    (violation,) = door.proxy.violations
    for text in (violation.subject, violation.reason, violation.remedy):
        assert len(text) <= MOST_VIOLATION_TEXT
        assert text.isprintable()


@pytest.mark.attack("N10", "network")
def test_a_flood_of_connections_waits_in_the_queue_of_its_own_jail(site, open_door, monkeypatch):
    monkeypatch.setattr("sandbox_kernel.net.proxy.egress_proxy._BURST", 3)
    monkeypatch.setattr("sandbox_kernel.net.proxy.egress_proxy._PER_SECOND", 0.001)
    flooded = open_door(site.policy())
    for _ in range(3):
        assert flooded.talk(flooded.get(site.url())).endswith(b"hello")
    with flooded.connect() as waiting:
        waiting.sendall(flooded.get(site.url()))
        monkeypatch.undo()
        other = open_door(site.policy())
        assert other.talk(other.get(site.url())).endswith(b"hello")
        # All proxies share one thread: it would have answered the one that waits before the other.
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
    assert len(site.seen) == 4


@pytest.mark.attack("N10", "network")
@pytest.mark.parametrize("way", ["upload", "download", "fetch"])
def test_others_have_their_turn_between_the_small_pieces_of_one_connection(site, open_door, names, monkeypatch, way):
    turn, pieces, read = 0, Counter(), h11.Connection.next_event

    async def turns():
        nonlocal turn
        while turn := turn + 1:
            await asyncio.sleep(0)

    monkeypatch.setattr(h11.Connection, "next_event", lambda http: pieces.update([turn]) or read(http))
    body, interim = b"1\r\nx\r\n" * 2000 + b"0\r\n\r\n", b"HTTP/1.1 102 Wait\r\n\r\n" * 2000 * (way != "upload")
    site.routes["/"] = interim + b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    beside, door = NETWORK.start(turns()), open_door(site.policy())
    if way == "fetch":
        SafeClient(site.policy(), names).fetch(site.url())
    else:
        door.talk(
            door.get(site.url())
            if way == "download"
            else door.post(site.url(), "Transfer-Encoding: chunked", body=body)
        )
    beside.cancel()
    assert pieces.total() > 2000 and max(pieces.values()) < 10


@pytest.mark.attack("N10", "network")
@pytest.mark.parametrize(
    ("said", "answer", "rules"),
    [(b"GET http://site.test/ HTTP/1.1\r\nX: ", b"HTTP/1.1 403 ", ["malformed_request"]), (b"", b"", [])],
    ids=["half a head", "nothing"],
)
@pytest.mark.slow
def test_a_head_that_never_ends_is_given_up_and_silence_is_closed_without_a_word(
    site, open_door, said: bytes, answer: bytes, rules: list[str]
):
    door = open_door(site.policy(), limits=ProxyLimits(head_timeout_s=1))
    with door.connect() as connection:
        connection.sendall(said)
        assert door.read_all(connection)[:13] == answer
    assert door.rules == rules


@pytest.mark.attack("N10", "network")
@pytest.mark.slow
def test_half_open_connections_take_the_places_of_their_own_sandbox_until_they_time_out(site, open_door):
    full = open_door(site.policy(max_concurrent=5), limits=ProxyLimits(head_timeout_s=3))
    other = open_door(site.policy(max_concurrent=5))
    with contextlib.ExitStack() as held:
        half_open = [held.enter_context(full.connect()) for _ in range(5)]
        for each in half_open:
            each.sendall(b"GET http://site.test/ HTTP/1.1\r\nX: ")
        while not (answer := full.talk(full.get(site.url()))).startswith(b"HTTP/1.1 403 "):
            assert answer.endswith(b"hello"), "until the proxy has accepted all of them"
        assert other.talk(other.get(site.url())).endswith(b"hello")
        for each in half_open:
            assert full.read_all(each).startswith(b"HTTP/1.1 403 ")
        while not (answer := full.talk(full.get(site.url()))).endswith(b"hello"):
            assert b"already under way" in answer, "until the proxy has closed the last of them"


@pytest.mark.attack("N10", "network")
def test_a_tls_hello_that_never_ends_is_given_up(site, open_door):
    door = open_door(site.policy(), limits=site.limits_as(443, head_timeout_s=0.2))
    with door.open_tunnel(f"site.test:{site.port}") as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00\x01")
        door.read_all(raw)
    assert door.rules == ["not_tls"]


@pytest.mark.attack("N10", "network")
def test_an_idle_tunnel_is_closed_and_a_server_that_never_answers_is_a_504(start_server, site, open_door):
    gone = threading.Semaphore(0)

    def wait(connection: socket.socket) -> None:
        while connection.recv(100):
            pass
        gone.release()

    server = start_server(wait)
    policy = site.policy(allowed_domains=(f"site.test:{server.port}",))
    door = open_door(policy, limits=ProxyLimits(idle_timeout_s=0.2))
    with door.open_tunnel(f"site.test:{server.port}") as raw:
        assert door.read_all(raw) == b""
    assert gone.acquire(timeout=20)
    assert door.talk(door.get(f"http://site.test:{server.port}/")).startswith(b"HTTP/1.1 504 ")


@pytest.mark.slow
def test_a_long_download_with_a_silent_client_is_not_idle(start_server, site, open_door):
    step = threading.Event()

    def drip(connection: socket.socket) -> None:
        for _ in range(8):
            connection.sendall(b"x")
            step.wait(0.25)

    server = start_server(drip)
    policy = site.policy(allowed_domains=(f"site.test:{server.port}",))
    door = open_door(policy, limits=ProxyLimits(idle_timeout_s=1.5))
    with door.open_tunnel(f"site.test:{server.port}") as raw:
        assert door.read_all(raw) == b"x" * 8


@pytest.mark.attack("N10", "network")
def test_connections_beyond_the_cap_are_refused_and_the_rest_goes_on(start_server, site, open_door):
    def echo(connection: socket.socket) -> None:
        while data := connection.recv(100):
            connection.sendall(data)

    server = start_server(echo)
    policy = site.policy(allowed_domains=(f"site.test:{server.port}",), max_concurrent=3)
    door = open_door(policy)
    held = [door.open_tunnel(f"site.test:{server.port}") for _ in range(3)]
    try:
        for _ in range(200):
            with door.connect() as connection:
                assert door.read_all(connection).startswith(b"HTTP/1.1 403 ")
        assert door.rules == ["rate_limit_exceeded"]
        assert server.connections == 3
        for connection in held:
            connection.sendall(b"still here")
            assert connection.recv(100) == b"still here"
    finally:
        for connection in held:
            connection.close()


def test_requests_a_minute_are_counted_for_each_domain(site, open_door):
    door = open_door(site.policy(max_requests_per_minute=2))
    answers = [door.talk(door.get(site.url()))[:12] for _ in range(3)]
    assert answers == [b"HTTP/1.1 200", b"HTTP/1.1 200", b"HTTP/1.1 403"]
    assert door.rules == ["rate_limit_exceeded"]
