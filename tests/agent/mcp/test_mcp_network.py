"""An agent and the network over MCP: the allowed host answers, the other is a violation, both are in the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from tests.agent.mcp.mcp_peers import over_stdio
from tests.loopback_server import QuietHandler, serving

GET = "import urllib.request\nprint(urllib.request.urlopen('http://HOST:PORT/', timeout=10).status)"


class _Hello(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def port() -> Iterator[int]:
    with serving(_Hello) as number:
        yield number


@pytest.mark.slow
def test_requests_are_allowed_or_refused_and_written_down(port: int, tmp_path: Path) -> None:
    log, temporary = tmp_path / "audit.jsonl", tmp_path / "t"
    temporary.mkdir()
    options = ("--allow-net", f"127.0.0.1:{port}", "--allow-private", "127.0.0.1", "--audit", str(log))
    held = over_stdio(temporary, *options)
    for tool in ("sandbox_exec", "session_run"):
        code = GET.replace("PORT", str(port))
        allowed = held.answer(tool, language="python", code=code.replace("HOST", "127.0.0.1"))
        assert (allowed["stdout"], "violations" in allowed) == ("200\n", False), allowed
        refused = held.answer(tool, language="python", code=code.replace("HOST", "other.test"))
        assert refused["status"] == "failed"
        (violation,) = refused["violations"]
        assert (violation["rule"], violation["remedy"]) == ("domain_not_allowed", f"--allow-net other.test:{port}")
    held.close()
    seen = {(line["event"], line["host"]) for line in map(json.loads, log.read_text().splitlines())}
    assert seen == {("allowed", "127.0.0.1"), ("finished", "127.0.0.1"), ("refused", "other.test")}
