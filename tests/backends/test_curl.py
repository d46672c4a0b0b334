"""curl, the host's own behind the proxy and the one inside WebAssembly: methods, headers, files, exit codes, and refusals."""

import base64
import shutil
from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from tests.conftest import need
from tests.loopback_server import QuietHandler, serving


class _Site(QuietHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"page"
        self.send_response(404 if self.path == "/404" else 200)
        for name in ("User-Agent", "Authorization", "X-Word"):
            self.send_header(f"Saw-{name}", self.headers.get(name, ""))
        self.send_header("Saw-Method", self.command)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(_Site) as number:
        yield number


@pytest.fixture(scope="module", params=["process", "wasm"])
def box(request: pytest.FixtureRequest, port: int) -> Iterator[Sandbox]:
    need(request.param == "wasm" or shutil.which("curl"), "this host has no curl")
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    with Sandbox(policy, request.param, allow_private_for=["allowed.test"], resolver=lambda *_: ["127.0.0.1"]) as made:
        yield made


SECRET = base64.b64encode(b"me:word").decode()


@pytest.mark.parametrize(
    ("line", "printed", "code"),
    [
        pytest.param("curl -s URL", "page", 0, id="curl_basic"),
        pytest.param("curl -s -d a=b URL", "a=b", 0, id="post"),
        pytest.param("curl -s -X PUT -d a=b -i URL | grep -ic 'saw-method: put'", "1\n", 0, id="method"),
        pytest.param("curl -s -H 'X-Word: w' -i URL | grep -ic 'saw-x-word: w'", "1\n", 0, id="curl_with_headers"),
        pytest.param("curl -s -o out URL; echo; cat out", "\npage", 0, id="curl_output_file prints nothing else"),
        pytest.param("curl -sI URL | grep -ic 'saw-method: head'", "1\n", 0, id="-I sends HEAD"),
        pytest.param("curl -sf URL404", "", 22, id="-f fails for a 404"),
        pytest.param("curl -s URL404", "page", 0, id="a 404 is an answer without -f"),
        pytest.param("curl -s -A us -i URL | grep -ic 'saw-user-agent: us'", "1\n", 0, id="-A"),
        pytest.param(f"curl -s -u me:word -i URL | grep -c 'Basic {SECRET}'", "1\n", 0, id="-u"),
        pytest.param("sh -c 'curl -s URL'", "page", 0, id="inside sh -c"),
        pytest.param("curl -s URL | tr a-z A-Z", "PAGE", 0, id="in a pipe"),
    ],
)
@pytest.mark.one_case
def test_curl_does_as_it_is_told(box: Sandbox, port: int, line: str, printed: str, code: int) -> None:
    result = box.run(line.replace("URL", f"http://allowed.test:{port}/"), "command")
    assert (result.stdout, result.exit_code) == (printed, code), result.stderr


def test_a_refused_curl_fails_and_is_told_with_the_option(box: Sandbox, port: int) -> None:
    result = box.run(f"curl -sSf http://other.test:{port}/", "command")
    assert result.exit_code != 0
    assert [violation.remedy for violation in result.violations] == [f"--allow-net other.test:{port}"]


@pytest.mark.parametrize("backend", ["process", "wasm"])
@pytest.mark.one_case
def test_curl_reaches_nothing_without_a_rule(port: int, backend: str) -> None:
    with Sandbox(backend=backend) as closed:
        result = closed.run(f"curl -sS http://allowed.test:{port}/", "command")
    assert result.exit_code != 0
    assert result.stdout == ""
