"""A jailed program reaches the domain that its policy allows, through the proxy, and nothing else."""

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer

import pytest

from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig, Sandbox, SandboxPolicy, Status
from sandbox_kernel.languages import node
from sandbox_kernel.net.egress import Egress
from sandbox_kernel.session.open_session import open_session
from tests.conftest import need
from tests.loopback_server import QuietHandler, serving


class _Answer(QuietHandler):
    def do_GET(self) -> None:
        pages = {"/info/refs": f"{'1' * 40}\trefs/heads/main\n", "/HEAD": "ref: refs/heads/main\n"}
        body = pages.get(self.path.partition("?")[0], f"served {self.headers['Host']}").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def port() -> Iterator[int]:
    with serving(_Answer) as number:
        yield number


def backend(port: int, policy: SandboxPolicy) -> ProcessBackend:
    proxy = Egress(allow_private_for=["allowed.test"], resolver=lambda host, port: ["127.0.0.1"]).proxy
    return ProcessBackend(ProcessConfig(pool_size=0), policy=policy, proxy=proxy)


def fetch(port: int, host: str) -> ExecRequest:
    code = (
        "import urllib.request, urllib.error\ntry:\n"
        f"  print(urllib.request.urlopen('http://{host}:{port}/', timeout=10).read().decode())\n"
        "except urllib.error.HTTPError as error: print(error.code, error.read().decode())"
    )
    return ExecRequest(language=Language.PYTHON, code=code, timeout=30)


@pytest.mark.attack("N09", "network")
def test_an_allowed_domain_is_reached_and_another_is_refused_and_told(port: int) -> None:
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    allowed = backend(port, policy).run(fetch(port, "allowed.test"))
    assert allowed.stdout == f"served allowed.test:{port}\n", allowed.stderr
    assert allowed.violations == ()
    refused = backend(port, policy).run(fetch(port, "other.test"))
    assert refused.stdout.startswith("403 ")
    (violation,) = refused.violations
    assert "other.test" in violation.subject
    assert "--allow-net" in violation.remedy
    assert refused.status is Status.OK


FAILS = {
    "python": "import urllib.request\ntry: urllib.request.urlopen(URL)\nexcept OSError as error: print(error)",
    "command": "curl -sS URL",
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(("language", "code"), FAILS.items(), ids=FAILS)
@pytest.mark.one_case
def test_an_allowed_host_that_does_not_answer_is_told_whatever_its_client_shows(
    language: str, code: str, scheme: str
) -> None:
    """curl says "response 502" and no more."""
    need(language != "command" or shutil.which("curl"), "this host has no curl")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    url = f"{scheme}://allowed.test:{port}/"
    source = code.replace("URL", url if language == "command" else repr(url))
    result = backend(port, policy).run(ExecRequest(language=Language.parse(language), code=source, timeout=30))
    (note,) = result.notes
    assert note.startswith(f"allowed, but not reached: could not connect to allowed.test:{port} (127.0.0.1)")
    assert result.violations == ()
    assert language == "command" or "could not connect" in result.stdout


@pytest.mark.slow
def test_each_cell_of_a_session_tells_what_it_did_not_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    with open_session(backend(port, policy), "python") as session:
        cell = f"import urllib.request\nurllib.request.urlopen('http://allowed.test:{port}/')"
        assert [note.startswith("allowed, but not reached: ") for note in session.run(cell).notes] == [True]
        assert session.run("1").notes == ()


@pytest.mark.attack("N06", "network")
def test_a_private_address_is_refused_even_with_the_whole_network_allowed(port: int) -> None:
    result = backend(port, SandboxPolicy.preset("standard").allow_network()).run(fetch(port, "somewhere.test"))
    assert result.stdout.startswith("403 ")
    assert result.violations


@pytest.mark.attack("N09", "network")
def test_an_allowed_domain_opens_no_direct_way_and_a_program_keeps_its_own_loopback(port: int) -> None:
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    code = f"{OWN_SERVER}\nimport socket\nsocket.create_connection(('127.0.0.1', {port}), 3)"
    result = backend(port, policy).run(ExecRequest(language=Language.PYTHON, code=code, timeout=30))
    assert result.stdout == "200\n200\n" and "Connection refused" in result.stderr, result.stderr
    assert result.violations == ()


def test_without_permission_there_is_no_proxy_at_all(port: int) -> None:
    code = "import os; print([name for name in os.environ if 'proxy' in name.lower()])"
    request = ExecRequest(language=Language.PYTHON, code=code, timeout=20)
    assert backend(port, SandboxPolicy.preset("standard")).run(request).stdout == "[]\n"


SESSION_GETS = {
    "python": (
        "import urllib.request\ndef get(h): return urllib.request.urlopen('http://' + h + ':PORT/').read().decode()",
        "print(get('{}'))",
    ),
    "javascript": (
        "const get = async (h) => (await fetch(`http://${h}:PORT/`)).text()",
        "console.log(await get('{}'))",
    ),
}


@pytest.mark.parametrize("language", SESSION_GETS)
@pytest.mark.slow
def test_a_session_reaches_the_allowed_domain_too_and_each_cell_tells_its_own_refusals(
    port: int, language: str
) -> None:
    define, call = SESSION_GETS[language]
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    with open_session(backend(port, policy), language) as session:
        assert session.run(define.replace("PORT", str(port))).ok
        result = session.run(call.format("allowed.test"))
        assert result.stdout == f"served allowed.test:{port}\n", result.stderr
        assert [violation.subject for violation in session.run(call.format("other.test")).violations] != []
        assert session.run("1").violations == ()


NODE_GETS = {
    "fetch": "console.log(await (await fetch(URL)).text())",
    "http.get": "require('http').get(URL, r => r.on('data', d => console.log(String(d))))",
}


@pytest.mark.parametrize("code", NODE_GETS.values(), ids=NODE_GETS)
@pytest.mark.parametrize("told", ["later", "at its start"])
@pytest.mark.parametrize("language", ["javascript", "typescript"])
@pytest.mark.one_case
def test_node_finds_the_proxy(port: int, language: str, code: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if told == "at its start":
        monkeypatch.setattr(node, "_can_be_told", lambda version: False)
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    source = code.replace("URL", f"'http://allowed.test:{port}/'")
    result = backend(port, policy).run(ExecRequest(language=Language.parse(language), code=source, timeout=30))
    assert result.stdout == f"served allowed.test:{port}\n", result.stderr
    refused = backend(port, policy).run(
        ExecRequest(language=Language.parse(language), code=source.replace("allowed.", "other."), timeout=30)
    )
    assert [violation.remedy for violation in refused.violations] == [f"--allow-net other.test:{port}"]


OWN_SERVER = """
import http.server, threading, urllib.request
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
for host in ("127.0.0.1", "localhost"):
    print(urllib.request.urlopen(f"http://{host}:{server.server_port}/", timeout=10).status)
"""


def test_the_hosts_loopback_is_reached_only_where_host_and_policy_name_it(port: int) -> None:
    policy = SandboxPolicy.preset("standard").allow_domain("127.0.0.1", port)
    opened = Egress(allow_private_for=["127.0.0.1"]).proxy
    result = ProcessBackend(ProcessConfig(pool_size=0), policy=policy, proxy=opened).run(fetch(port, "127.0.0.1"))
    assert result.stdout == f"served 127.0.0.1:{port}\n", result.stderr
    refused = ProcessBackend(ProcessConfig(pool_size=0), policy=policy).run(fetch(port, "127.0.0.1"))
    assert [violation.rule for violation in refused.violations] == ["private_ip_blocked"]


HTTPS = {
    "python": ("python", "import urllib.request; print(urllib.request.urlopen(URL).read().decode())", "SSL_CERT_FILE"),
    "curl": ("command", "curl -sS URL; echo", "CURL_CA_BUNDLE"),
    "node": ("javascript", "console.log(await (await fetch(URL)).text())", "NODE_EXTRA_CA_CERTS"),
    "git": ("command", "git ls-remote URL refs/heads/main | cut -f 2", "GIT_SSL_CAINFO"),
}


@pytest.mark.parametrize(("language", "code", "variable"), HTTPS.values(), ids=HTTPS)
@pytest.mark.one_case
def test_clients_inside_verify_the_server_through_the_tunnel(language: str, code: str, variable: str) -> None:
    trustme = pytest.importorskip("trustme")
    program = code.split()[0]
    need(language != "command" or shutil.which(program), f"this host has no {program}")
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("allowed.test").configure_cert(context)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
        source = code.replace(
            "URL", f"https://allowed.test:{port}/" if language == "command" else f"'https://allowed.test:{port}/'"
        )
        files = {"ca.pem": authority.cert_pem.bytes()}
        asked = ExecRequest(
            language=Language.parse(language), code=source, timeout=30, env={variable: "/box/ca.pem"}, files=files
        )
        result = backend(port, policy).run(asked)
        assert result.stdout in (f"served allowed.test:{port}\n", "refs/heads/main\n"), result.stderr
        distrusted = backend(port, policy).run(replace(asked, env={}))
        assert distrusted.stdout.strip() == ""
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_failed_lookup_is_told_although_the_program_catches_it() -> None:
    code = """
import socket
for name in ('nodots', 'example.test', 'other.example.test'):
    try:
        socket.create_connection((name, 8443))
    except OSError:
        print('caught')
"""
    with Sandbox() as box:
        for _ in range(2):  # the first jail of its kind, and one that a template forked
            result = box.run(code)
            assert result.stdout == "caught\n" * 3
            (note,) = result.notes
            assert note.wanted is not None and note.wanted.what == "example.test:8443", note
        assert box.run("print(1)").notes == ()
