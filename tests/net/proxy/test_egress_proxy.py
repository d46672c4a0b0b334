"""The proxy from outside: what goes through, what is told, and its life."""

import asyncio
import contextlib
import http.client
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request

import pytest

from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SandboxDestroyed
from sandbox_kernel.net.audit import AuditRecord
from sandbox_kernel.net.fetch_policy import FetchPolicy
from sandbox_kernel.net.proxy.egress_proxy import EgressProxy
from sandbox_kernel.util.loop_thread import NETWORK


def test_a_plain_request_goes_through_with_its_host_forced(site, open_door):
    door = open_door(site.policy())
    answer = door.talk(
        door.get(site.url("/"), "Proxy-Authorization: Basic x", "Connection: X-Drop", "X-Drop: 1", "X-Keep: 1")
    )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\nhello")
    seen = site.seen[0]
    assert seen.line == "GET / HTTP/1.1"
    assert seen.all("host") == [f"site.test:{site.port}"]
    assert seen.all("connection") == ["close"]
    assert seen.all("x-keep") == ["1"]
    assert not seen.all("x-drop")
    assert not seen.all("proxy-authorization")
    assert door.proxy.violations == ()


def test_bodies_pass_in_both_framings(site, open_door):
    site.routes["/echo"] = lambda seen: site.reply(200, seen.body)
    door = open_door(site.policy())
    by_length = door.talk(door.post(site.url("/echo"), "Content-Length: 4", body=b"body"))
    assert by_length.endswith(b"\r\n\r\nbody")
    pieces = b"4;ext=1\r\nbody\r\n0\r\nT: 1\r\n\r\n"
    chunked = door.talk(door.post(site.url("/echo"), "Transfer-Encoding: chunked", body=pieces))
    assert chunked.startswith(b"HTTP/1.1 200 ")
    assert site.seen[1].body == b"4\r\nbody\r\n0\r\n\r\n"


def test_a_large_body_streams_both_ways_and_an_answer_without_a_length_ends_with_the_connection(site, open_door):
    blob = bytes(range(256)) * 20_000
    site.routes["/echo"] = lambda seen: site.reply(200, seen.body)
    site.routes["/old"] = b"HTTP/1.0 200 OK\r\n\r\nuntil the end"
    door = open_door(site.policy())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{door.port}"}))
    for path, data, wanted in (("/echo", blob, blob), ("/old", None, b"until the end")):
        with opener.open(urllib.request.Request(site.url(path), data=data), timeout=30) as answer:
            assert answer.read() == wanted


def test_a_client_that_waits_for_100_continue_is_told_to_go_on(site, open_door):
    site.routes["/echo"] = lambda seen: site.reply(200, seen.body)
    door = open_door(site.policy())
    with door.connect() as connection:
        connection.sendall(door.post(site.url("/echo"), "Content-Length: 4", "Expect: 100-continue"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"body")
        assert door.read_all(connection).endswith(b"\r\n\r\nbody")


def test_a_host_that_is_not_allowed_gets_a_403_with_the_option_that_allows_it(site, open_door, names):
    door = open_door(site.policy())
    answer = door.talk(door.get("http://other.test/?x=1"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")
    assert b"X-Sandbox-Rule: domain_not_allowed" in head
    assert b"--allow-net other.test:80" in body
    (violation,) = door.proxy.violations
    assert (violation.rule, violation.subject) == ("domain_not_allowed", "other.test:80")
    assert violation.remedy == "--allow-net other.test:80"
    assert names.asked == []


def test_python_shows_the_reason_of_a_refused_tunnel(site, open_door):
    door = open_door(site.policy())
    connection = http.client.HTTPSConnection("127.0.0.1", door.port, timeout=20)
    connection.set_tunnel("other.test", 443)
    with pytest.raises(OSError, match=r"403 refused by the sandbox .*--allow-net other\.test:443"):
        connection.request("GET", "/")


def test_a_dead_server_is_a_502_and_no_violation(site, open_door):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    door = open_door(site.policy(allowed_domains=(f"site.test:{port}",)))
    assert door.talk(door.get(f"http://site.test:{port}/")).startswith(b"HTTP/1.1 502 ")
    assert door.proxy.violations == ()


@pytest.mark.parametrize(
    "garbage",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: aaaaaaaaaaaaaaaaaaaaaa\r\n" * 10_000,
     b"HTTP/1.1 200 OK\r\n" + b"obey me " * 2000 + b"\r\n\r\n"],
)  # fmt: skip
def test_a_server_that_speaks_nonsense_is_a_502_and_quoted_in_short(site, open_door, garbage: bytes):
    site.routes["/bad"] = garbage
    door = open_door(site.policy())
    assert door.talk(door.get(site.url("/bad"))).startswith(b"HTTP/1.1 502 ")
    (note,) = door.proxy.take_failures()
    assert len(note) < 600


def test_close_ends_every_connection_prints_nothing_and_may_be_called_twice(start_server, site, open_door, caplog):
    server = start_server(lambda connection: connection.recv(100))
    door = open_door(site.policy(allowed_domains=(f"site.test:{server.port}",)))
    idle = door.connect()
    busy = door.open_tunnel(f"site.test:{server.port}")
    door.proxy.close()
    door.proxy.close()
    assert door.read_all(busy) == b""
    assert door.read_all(idle) == b""
    idle.close()
    busy.close()
    NETWORK.run(asyncio.sleep(0))
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    with pytest.raises(ConnectionRefusedError):
        door.connect()
    with socket.create_server(("127.0.0.1", 0)) as late, pytest.raises(SandboxDestroyed):
        door.proxy.start(late)


def test_what_is_not_a_listening_socket_is_refused(site):
    with EgressProxy(site.policy()) as proxy:
        with socket.socket() as plain, socket.socket(type=socket.SOCK_DGRAM) as datagram:
            for wrong in (plain, datagram):
                with pytest.raises(InvalidRequest, match="listening"):
                    proxy.start(wrong)


def test_all_proxies_share_one_thread(site, open_door):
    doors = [open_door(site.policy()) for _ in range(4)]
    for door in doors:
        assert door.talk(door.get(site.url())).endswith(b"hello")
    assert [thread.name for thread in threading.enumerate()].count("sandbox-kernel-net") == 1


def test_a_policy_that_the_proxy_cannot_enforce_is_refused_at_once():
    with pytest.raises(PolicyViolation, match="TLS"):
        EgressProxy(FetchPolicy(methods=("GET",)))
    EgressProxy(FetchPolicy(methods=("GET",), schemes=("http",))).close()


def test_a_whole_https_url_is_sent_on_over_tls(tls_site, open_door, authority, monkeypatch):
    """Guests in WebAssembly leave TLS to the proxy."""
    url = tls_site.url(scheme="https")
    distrusting = open_door(tls_site.policy())
    assert distrusting.talk(distrusting.get(url)).startswith(b"HTTP/1.1 502 ")
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    door = open_door(tls_site.policy())
    assert door.talk(door.get(url)).endswith(b"secret hello")
    plain = open_door(tls_site.policy(schemes=("http",)))
    assert plain.talk(plain.get(url)).startswith(b"HTTP/1.1 403 ")
    assert plain.rules == ["scheme_not_allowed"]


def test_without_https_a_tls_tunnel_is_refused(tls_site, open_door):
    door = open_door(tls_site.policy(schemes=("http",)), limits=tls_site.limits_as(443))
    context = ssl.create_default_context()
    with door.open_tunnel(f"site.test:{tls_site.port}") as raw, pytest.raises(ssl.SSLError):
        context.wrap_socket(raw, server_hostname="site.test")
    assert door.rules == ["scheme_not_allowed"]


def test_every_decision_is_in_the_audit_log(site, open_door):
    records: list[AuditRecord] = []
    door = open_door(site.policy(), audit=records.append)
    door.talk(door.get(site.url("/?token=secret")))
    door.talk(door.get("http://other.test/?token=secret"))
    door.proxy.close()
    assert [(record.event, record.host, record.rule) for record in records] == [
        ("allowed", "site.test", ""),
        ("finished", "site.test", ""),
        ("refused", "other.test", "domain_not_allowed"),
    ]
    assert records[1].bytes_in > 0
    assert "secret" not in "".join(record.to_json_line() for record in records)


def test_curl_works_and_shows_refusals(site, tls_site, open_door, authority):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl on this machine")
    policy = site.policy(allowed_domains=(f"site.test:{site.port}", f"site.test:{tls_site.port}"))
    door = open_door(policy, limits=tls_site.limits_as(443))
    env = dict.fromkeys(("http_proxy", "https_proxy"), f"http://127.0.0.1:{door.port}")

    def run(*args: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([curl, "-sS", "--max-time", "20", *args], env=env, capture_output=True, check=False)

    assert run(site.url()).stdout == b"hello"
    assert run("--cacert", authority.ca_file, tls_site.url(scheme="https")).stdout == b"secret hello"
    assert b"--allow-net other.test:80" in run("http://other.test/").stdout
    assert b"403" in run("https://other.test/").stderr


_INSIDE = """
import fcntl, socket, struct, sys, urllib.request
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", 0x41, b""))  # SIOCSIFFLAGS: lo up
listener = socket.create_server(("127.0.0.1", 3128))
with socket.socket(fileno=int(sys.argv[1])) as channel:
    socket.send_fds(channel, [b"x"], [listener.fileno()])
    listener.close()
    assert channel.recv(1) == b"g"
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[3])), timeout=5)
    print("the host's loopback is reachable")
except ConnectionRefusedError:
    print("alone")
opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": "http://127.0.0.1:3128"}))
print(opener.open(sys.argv[2], timeout=20).read().decode())
"""


def test_a_program_in_a_network_namespace_of_its_own_gets_out_through_its_own_socket(site, names):
    unshare = ["unshare", "--user", "--map-root-user", "--net"]
    try:
        works = subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        works = False
    if not works:
        pytest.skip("this machine makes no network namespaces")
    ours, theirs = socket.socketpair()
    command = [*unshare, sys.executable, "-c", _INSIDE, str(theirs.fileno()), site.url(), str(site.port)]
    with ours, EgressProxy(site.policy(), resolver=names) as proxy:
        program = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdout=subprocess.PIPE, env={})
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        proxy.start(socket.socket(fileno=descriptors[0]))
        ours.sendall(b"g")
        printed, _ = program.communicate(timeout=30)
    assert printed == b"alone\nhello\n"
    assert program.returncode == 0


def test_a_header_that_is_no_ascii_is_passed_on(site, open_door, caplog):
    door = open_door(site.policy())
    said = f"GET {site.url()} HTTP/1.1\r\nHost: x\r\nX-Name: J\xfcrgen\r\n\r\n".encode("latin-1")
    assert door.talk(said).endswith(b"hello")
    assert site.seen[0].all("x-name") == ["J\xfcrgen"]
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_a_mistake_of_ours_is_told_once_and_the_connection_ends(site, open_door, caplog, monkeypatch):
    def mistaken(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("sandbox_kernel.net.proxy.connection.read_request", mistaken)
    door = open_door(site.policy())
    for _ in range(5):
        with door.connect() as connection:
            connection.sendall(door.get(site.url()))
            with contextlib.suppress(ConnectionResetError):
                assert door.read_all(connection) == b""
    assert [record.name for record in caplog.records] == ["sandbox_kernel.net.proxy.egress_proxy"]
