import asyncio
import socket
import threading
from collections.abc import Callable

import pytest

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.audit import AuditRecord
from sandbox_kernel.net.fetch_policy import FetchPolicy
from sandbox_kernel.net.resolve import LOOKUPS
from sandbox_kernel.net.safe_client import FetchRequest, SafeClient


def refused(client: SafeClient, request: FetchRequest | str) -> str:
    with pytest.raises(FetchError) as caught:
        client.fetch(request)
    return caught.value.rule


@pytest.fixture
def client(site, names) -> SafeClient:
    return SafeClient(site.policy(), names)


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        ("http://10.0.0.1/", "private_ip_blocked"),
        ("http://169.254.169.254/latest/meta-data/", "private_ip_blocked"),
        ("https://evil.example/", "domain_blocked"),
        ("https://other.example/", "domain_not_allowed"),
        ("ftp://example.org/", "scheme_not_allowed"),
        ({"method": "TRACE"}, "method_not_allowed"),
        ({"method": "POST", "body": b"x" * 11}, "request_body_too_large"),
    ],
)
def test_what_the_policy_refuses_is_neither_resolved_nor_sent(site, names, request_, rule: str):
    client = SafeClient(site.policy(max_request_body_bytes=10, blocked_domains=("evil.example",)), names)
    asked = request_ if isinstance(request_, str) else FetchRequest(url=site.url(), **request_)
    assert refused(client, asked) == rule
    assert [violation.rule for violation in client.violations] == [rule]
    assert names.asked == [] and site.seen == []


# What is fetched from a loopback server.


def test_an_allowed_url_is_fetched_byte_by_byte(client: SafeClient, site):
    body = bytes(range(256)) * 100
    site.routes["/b"] = site.reply(200, body, "Set-Cookie: a=1", "Set-Cookie: b=2", "Content-Type: text/plain")
    response = client.fetch(site.url("/b"))
    assert (response.status, response.ok, response.body, response.url) == (200, True, body, site.url("/b"))
    assert response.header("content-type") == "text/plain"
    assert [value for name, value in response.headers if name.lower() == "set-cookie"] == ["a=1", "b=2"]


def test_post_sends_its_body_and_headers(client: SafeClient, site):
    site.routes["/echo"] = lambda seen: site.reply(200, seen.body)
    request = FetchRequest(url=site.url("/echo?a=b"), method="POST", headers={"X-Mine": "1"}, body=b"\x00\xff data")
    assert client.fetch(request).body == b"\x00\xff data"
    seen = site.seen[0]
    assert seen.line == "POST /echo?a=b HTTP/1.1"
    assert seen.all("x-mine") == ["1"]
    assert seen.all("content-length") == ["7"]


@pytest.mark.parametrize("status", [200, 201, 204, 300, 304, 400, 404, 500])
def test_every_final_status_is_a_response(client: SafeClient, site, status: int):
    site.routes["/s"] = site.reply(status, b"")
    response = client.fetch(site.url("/s"))
    assert response.status == status
    assert response.ok == (status < 300)


def test_afetch_runs_many_at_once_and_fetch_works_inside_a_running_event_loop(site, names):
    meet = threading.Barrier(5, timeout=20)

    def together(seen: object) -> bytes:
        meet.wait()
        return site.reply(200, b"ok")

    site.routes["/wait"] = together
    client = SafeClient(site.policy(), names)

    async def main() -> list[bytes]:
        answers = await asyncio.gather(*(client.afetch(site.url("/wait")) for _ in range(5)))
        return [answer.body for answer in (*answers, client.fetch(site.url()))]

    assert asyncio.run(main()) == [b"ok"] * 5 + [b"hello"]


# Bounds, headers, redirects and errors.


def test_a_chunked_body_is_cut_off_while_it_is_read(start_server: Callable[..., object], site, names):
    sent = []

    def endless(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            sent.append(0x10000)
            assert sum(sent) < 100 << 20, "nobody stopped reading"

    server = start_server(endless)
    policy = site.policy(allowed_domains=(f"site.test:{server.port}",), max_response_body_bytes=1 << 20)
    client = SafeClient(policy, names)
    assert refused(client, f"http://site.test:{server.port}/") == "response_body_too_large"


def test_a_body_of_the_limit_passes_and_a_longer_declared_one_is_not_read_at_all(site, names):
    site.routes["/fits"] = site.reply(200, b"x" * 1000)
    site.routes["/big"] = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n"
    client = SafeClient(site.policy(max_response_body_bytes=1000), names)
    assert len(client.fetch(site.url("/fits")).body) == 1000
    assert refused(client, site.url("/big")) == "response_body_too_large"


def test_the_host_header_is_the_urls_whatever_the_guest_says(client: SafeClient, site):
    headers = {"Host": "evil.example", "Proxy-Authorization": "Basic x", "Connection": "keep-alive", "X-Ok": "1"}
    client.fetch(FetchRequest(url=site.url(), headers=headers))
    seen = site.seen[0]
    assert seen.all("host") == [f"site.test:{site.port}"]
    assert seen.all("connection") == ["close"]
    assert seen.all("proxy-authorization") == []
    assert seen.all("x-ok") == ["1"]


def test_each_hop_counts_against_the_rate(site, names):
    site.routes["/a"] = site.reply(302, b"", "Location: /b")
    site.routes["/b"] = site.reply(302, b"", "Location: /")
    client = SafeClient(site.policy(max_requests_per_minute=2), names)
    assert refused(client, site.url("/a")) == "rate_limit_exceeded"
    assert len(site.seen) == 2


def test_the_time_limit_is_for_all_hops_together(site, names, held):
    site.routes["/hop"] = site.reply(302, b"", "Location: /hold")
    client = SafeClient(site.policy(request_timeout_s=0.3), names)
    assert refused(client, site.url("/hop")) == "request_timeout"


def test_a_server_that_drips_bytes_for_ever_meets_the_total_time(start_server, site, names):
    gate = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not gate.wait(0.02):
            connection.sendall(b"x")

    server = start_server(drip)
    policy = site.policy(allowed_domains=(f"site.test:{server.port}",), request_timeout_s=0.4)
    try:
        assert refused(SafeClient(policy, names), f"http://site.test:{server.port}/") == "request_timeout"
    finally:
        gate.set()


def test_an_ipv6_literal_is_fetched(cleanup, names):
    listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    cleanup.callback(listener.close)
    port = listener.getsockname()[1]
    heads: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            heads.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nv6")

    threading.Thread(target=serve, daemon=True).start()
    policy = FetchPolicy(allowed_domains=(f"[::1]:{port}",), allow_private_for=("::1",))
    assert SafeClient(policy, names).fetch(f"http://[::1]:{port}/").body == b"v6"
    assert f"Host: [::1]:{port}\r\n".encode() in heads[0]


def test_a_refused_connection_and_a_failed_tls_handshake_are_failed_connections(start_server, site, names):
    def not_tls(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 speak plainly\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = unused.getsockname()[1]
    for scheme, port in (("http", closed), ("https", start_server(not_tls).port)):
        client = SafeClient(site.policy(allowed_domains=(f"site.test:{port}",)), names)
        assert refused(client, f"{scheme}://site.test:{port}/") == "connection_failed"


@pytest.mark.slow
def test_a_server_that_never_ends_its_handshake_is_a_connection_timeout(start_server, site, names):
    gate = threading.Event()
    server = start_server(lambda connection: gate.wait(20))
    policy = site.policy(allowed_domains=(f"site.test:{server.port}",), connect_timeout_s=1)
    try:
        assert refused(SafeClient(policy, names), f"https://site.test:{server.port}/") == "connection_timeout"
    finally:
        gate.set()


def test_every_decision_is_in_the_audit_log(site, names):
    records: list[AuditRecord] = []
    client = SafeClient(site.policy(), names, records.append)
    client.fetch(site.url("/?token=secret"))
    refused(client, "https://other.example/path?token=secret")
    refused(client, "https://user:secret@site.test/")
    assert [(record.event, record.host, record.rule) for record in records] == [
        ("allowed", "site.test", ""),
        ("finished", "site.test", ""),
        ("refused", "other.example", "domain_not_allowed"),
        ("refused", "", "invalid_url"),
    ]
    assert records[1].address == "127.0.0.1"
    assert (records[1].status, records[1].bytes_in) == (200, 5)
    assert "secret" not in "".join(record.to_json_line() for record in records)


# Ways around.


@pytest.mark.parametrize(("path", "rule"), [("/", "private_ip_blocked"), ("/go", "redirect_to_private_ip")])
def test_rebinding_between_check_and_use_changes_nothing_and_each_hop_is_judged_again(site, names, path, rule):
    # The second answer is refused; within one hop there is no second question.
    names.answers["site.test"] = [["127.0.0.1"], ["10.0.0.1"]]
    site.routes["/go"] = site.reply(302, b"", "Location: /")
    client = SafeClient(site.policy(), names)
    if path == "/":
        assert client.fetch(site.url()).body == b"hello"
        assert names.asked == ["site.test"]
    assert refused(client, site.url(path)) == rule


@pytest.mark.parametrize(
    ("location", "rule"),
    [
        ("http://127.0.0.2/", "redirect_to_private_ip"),
        ("http://2130706434/", "redirect_to_private_ip"),
        ("http://0x7f.2/", "redirect_to_private_ip"),
        ("http://[::ffff:10.0.0.1]/", "redirect_to_private_ip"),
        ("http://169.254.169.254/latest/", "redirect_to_private_ip"),
        ("http://other.example/", "domain_not_allowed"),
        ("http://site.test:22/", "port_not_allowed"),
        ("//other.example/", "domain_not_allowed"),
        ("file:///etc/passwd", "scheme_not_allowed"),
        ("http://a:b@site.test/", "invalid_url"),
    ],
)
def test_every_redirect_passes_the_whole_policy_again(client: SafeClient, site, location: str, rule: str):
    site.routes["/go"] = site.reply(302, b"", f"Location: {location}")
    assert refused(client, site.url("/go")) == rule
    assert len(site.seen) == 1


def test_as_many_redirects_as_allowed_are_followed_and_a_loop_ends(site, names):
    for number in range(3):
        site.routes[f"/{number}"] = site.reply(301, b"", f"Location: /{number + 1}")
    site.routes["/3"] = site.reply(200, b"end")
    site.routes["/loop"] = site.reply(302, b"", "Location: /loop")
    client = SafeClient(site.policy(max_redirects=3), names)
    assert client.fetch(site.url("/0")).body == b"end"
    assert refused(client, site.url("/loop")) == "too_many_redirects"
    assert len(site.seen) == 8


@pytest.fixture
def held(site):
    """An answer that waits for the end of the test, and what tells that it was asked for."""
    gate, arrived = threading.Event(), threading.Event()

    def hold(seen: object) -> bytes:
        arrived.set()
        gate.wait(20)
        return site.reply(200, b"ok")

    site.routes["/hold"] = hold
    yield arrived
    gate.set()


def test_too_many_at_once_are_refused_and_not_queued_and_a_cancelled_fetch_gives_its_place_back(site, names, held):
    client = SafeClient(site.policy(max_concurrent=1), names)

    async def main() -> bytes:
        task = asyncio.create_task(client.afetch(site.url("/hold")))
        await asyncio.to_thread(held.wait, 20)
        with pytest.raises(FetchError) as caught:
            await client.afetch(site.url())
        assert caught.value.rule == "rate_limit_exceeded"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await client.afetch(site.url())).body

    assert asyncio.run(main()) == b"hello"


def test_the_next_address_is_tried_when_the_first_does_not_answer(site, names):
    names.answers["site.test"] = [["127.0.0.3", "127.0.0.1"]]
    policy = site.policy(allow_private_for=("127.0.0.1", "127.0.0.3"))
    assert SafeClient(policy, names).fetch(site.url()).body == b"hello"


@pytest.mark.parametrize(
    "garbage",
    [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", b"\x00" * 50,
     b"HTTP/1.1 200 OK\r\n" + b"X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 10_000],
)  # fmt: skip
def test_a_server_that_speaks_nonsense_is_an_http_error(client: SafeClient, site, garbage: bytes):
    site.routes["/bad"] = garbage
    assert refused(client, site.url("/bad")) == "http_error"


def test_tls_needs_a_trusted_certificate_for_the_name_of_the_pinned_address(tls_site, names, authority):
    hosts = tuple(f"{name}.test:{tls_site.port}" for name in ("site", "other"))
    client = SafeClient(tls_site.policy(allowed_domains=hosts), names, ca_file=authority.ca_file)
    assert refused(client, tls_site.url(host="other.test", scheme="https")) == "connection_failed"
    assert refused(SafeClient(tls_site.policy(), names), tls_site.url(scheme="https")) == "connection_failed"
    assert tls_site.seen == []
    assert client.fetch(tls_site.url(scheme="https")).body == b"secret hello"


@pytest.mark.attack("N11", "network")
def test_no_secret_is_added_and_no_proxy_of_the_environment_is_used(client: SafeClient, site, monkeypatch, tmp_path):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine site.test login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    site.routes["/cookie"] = site.reply(200, b"", "Set-Cookie: session=1")
    client.fetch(site.url("/cookie"))
    client.fetch(site.url())
    names = {name.lower() for name, _ in site.seen[1].headers}
    assert names == {"host", "connection", "user-agent", "accept", "accept-encoding"}


@pytest.mark.attack("N11", "network")
def test_a_placeholder_reaches_no_host_that_is_not_allowed_in_url_header_or_body(client: SafeClient, site, names):
    for given in (
        {"url": "https://evil.example/?t=PLACEHOLDER"},
        {"url": "https://PLACEHOLDER.evil.example/"},
        {"url": "https://evil.example/", "headers": {"Authorization": "PLACEHOLDER"}},
        {"url": "https://evil.example/", "method": "POST", "body": b"PLACEHOLDER"},
    ):
        assert refused(client, FetchRequest(**given)) == "domain_not_allowed"
    assert names.asked == [] and site.seen == []


def test_names_that_one_client_waits_for_do_not_hold_up_the_lookups_of_others(site, names):
    hanging, release = threading.Semaphore(0), threading.Event()

    def hangs(host: str, port: int) -> list[str]:
        hanging.release()
        release.wait(30)
        return ["127.0.0.1"]

    async def main() -> bytes:
        stuck = SafeClient(FetchPolicy(allow_all_public=True, connect_timeout_s=30), hangs)
        waiting = [asyncio.create_task(stuck.afetch(f"http://a{number}.test/")) for number in range(40)]
        try:
            for _ in range(LOOKUPS):
                await asyncio.to_thread(hanging.acquire, timeout=20)
            response = await SafeClient(site.policy(connect_timeout_s=20), names).afetch(site.url())
            assert not any(task.done() for task in waiting)
            return response.body
        finally:
            release.set()
            await asyncio.gather(*waiting, return_exceptions=True)

    assert asyncio.run(main()) == b"hello"
