"""An agent and the network over MCP: the allowed host answers, the other is a violation, both are in the audit log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from tests.agent.mcp_peers import http_server, over_stdio

GET = "import urllib.request\nprint(urllib.request.urlopen('http://HOST:PORT/', timeout=10).status)"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_allowed_refused_and_written_down(transport: str, port: int, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    temporary = tmp_path / "t"
    temporary.mkdir()
    options = ("--allow-net", f"127.0.0.1:{port}", "--allow-private", "127.0.0.1", "--audit", str(log))

    def asks(held) -> None:  # type: ignore[no-untyped-def]
        for tool in ("sandbox_exec", "session_run"):
            code = GET.replace("PORT", str(port))
            allowed = held.answer(tool, language="python", code=code.replace("HOST", "127.0.0.1"))
            assert (allowed["stdout"], "violations" in allowed) == ("200\n", False), allowed
            refused = held.answer(tool, language="python", code=code.replace("HOST", "other.test"))
            assert refused["status"] == "success"
            (violation,) = refused["violations"]
            assert (violation["rule"], violation["remedy"]) == ("domain_not_allowed", f"--allow-net other.test:{port}")

    if transport == "stdio":
        held = over_stdio(temporary, *options)
        asks(held)
        held.close()
    else:
        with http_server(temporary, *options) as server:
            held = server.connect()
            asks(held)
            held.close()
    seen = {(line["event"], line["host"]) for line in map(json.loads, log.read_text().splitlines())}
    assert seen == {("allowed", "127.0.0.1"), ("finished", "127.0.0.1"), ("refused", "other.test")}
