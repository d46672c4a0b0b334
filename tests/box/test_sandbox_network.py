"""The facade and the network: fetches, runs and their audit log, private hosts by name, refusals that say what to do."""

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import (
    FetchError,
    FetchRequest,
    InvalidRequest,
    NetworkingDisabled,
    PolicyViolation,
    Sandbox,
    SandboxDestroyed,
    SandboxPolicy,
)
from sandbox_kernel.cli import main
from sandbox_kernel.net.egress import AUDIT_VARIABLE
from tests.loopback_server import QuietHandler, serving


class _Echo(QuietHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("X-Method", self.command)
        self.send_header("X-Word", self.headers.get("X-Word", ""))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST


@pytest.fixture
def port() -> Iterator[int]:
    with serving(_Echo) as number:
        yield number


def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def policy(port: int) -> SandboxPolicy:
    return SandboxPolicy.preset("standard").allow_domain("allowed.test", port)


def box(port: int, audit: Path | None = None) -> Sandbox:
    return Sandbox(policy(port), audit=audit, allow_private_for=["allowed.test"], resolver=loopback)


def get(url: str) -> str:
    return f"import urllib.request\nprint(urllib.request.urlopen({url!r}, timeout=10).status)"


def test_fetch_sends_every_method_with_headers_and_body(port: int) -> None:
    url = f"http://allowed.test:{port}/"
    with box(port) as sandbox:
        assert sandbox.fetch(url).status == 200
        answer = sandbox.fetch(url, method="PUT", headers={"X-Word": "yes"}, body=bytes(range(256)))
        assert (answer.header("x-method"), answer.header("x-word")) == ("PUT", "yes")
        assert answer.body == bytes(range(256))
        assert sandbox.fetch(FetchRequest(url=url, method="POST", body="text")).text == "text"
        with pytest.raises(InvalidRequest, match="its own method"):
            sandbox.fetch(FetchRequest(url=url), method="POST")
    with pytest.raises(SandboxDestroyed):
        sandbox.fetch(url)


def test_fetches_run_on_the_callers_loop_too(port: int) -> None:
    with box(port) as sandbox:
        answer = asyncio.run(sandbox.afetch(f"http://allowed.test:{port}/", method="POST", body=b"x"))
        assert answer.body == b"x"


def test_a_refused_fetch_names_its_rule_and_the_option(port: int) -> None:
    with box(port) as sandbox, pytest.raises(FetchError, match=r"--allow-net other\.test:443") as refused:
        sandbox.fetch("https://other.test/")
    assert refused.value.rule == "domain_not_allowed"
    with Sandbox() as closed, pytest.raises(NetworkingDisabled, match="networking disabled"):
        closed.fetch(f"http://allowed.test:{port}/")


def test_all_fetches_of_a_sandbox_share_one_rate_limit(port: int) -> None:
    with box(port) as sandbox:
        assert sandbox._fetcher("x") is sandbox._fetcher("y")


@pytest.mark.slow
def test_a_private_host_is_reached_only_where_the_facade_allows_it(port: int) -> None:
    url = f"http://allowed.test:{port}/"
    with box(port) as sandbox:
        assert sandbox.run(get(url)).stdout == "200\n"
    with Sandbox(policy(port), resolver=loopback) as strict:
        (refused,) = strict.run(get(url)).violations
        assert refused.rule == "private_ip_blocked"
    with pytest.raises(PolicyViolation, match="metadata"):
        Sandbox(allow_private_for=["169.254.169.254"])
    with pytest.raises(PolicyViolation, match="list of hosts"):
        Sandbox(allow_private_for="allowed.test")


@pytest.mark.slow
def test_fetches_runs_and_sessions_write_the_audit_log(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "audit.jsonl"
    with box(port, log) as sandbox:
        sandbox.fetch(f"http://allowed.test:{port}/?secret=1")
        sandbox.run(get(f"http://allowed.test:{port}/"))
        sandbox.run(get("http://other.test/"))
        with sandbox.session() as session:
            session.run(get("http://third.test/"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    seen = {(line["via"], line["event"], line["host"]) for line in lines}
    assert {("fetch", "finished", "allowed.test"), ("proxy", "finished", "allowed.test")} <= seen
    assert {("proxy", "refused", "other.test"), ("proxy", "refused", "third.test")} <= seen
    assert "secret" not in log.read_text()
    other = tmp_path / "other.jsonl"
    monkeypatch.setenv(AUDIT_VARIABLE, str(other))
    with Sandbox(policy(port)) as sandbox, pytest.raises(FetchError):
        sandbox.fetch("http://other.test/")
    assert json.loads(other.read_text())["event"] == "refused"


def test_an_audit_log_that_cannot_be_opened_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(PolicyViolation, match="audit log"):
        Sandbox(audit=tmp_path / "missing" / "audit.jsonl")


def test_a_run_on_a_cluster_is_refused_where_an_audit_log_is_kept(port: int, tmp_path: Path) -> None:
    with box(port, tmp_path / "log") as sandbox, pytest.raises(InvalidRequest, match="dask"):
        sandbox.run("1", backend="dask")


def test_the_command_line_tells_refusals_and_logs_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    log = tmp_path / "audit.jsonl"
    code = "import urllib.request\ntry: urllib.request.urlopen('http://other.test/')\nexcept OSError: pass"
    assert main(["run", "-c", code, "--allow-net", "allowed.test", "--audit", str(log)]) == 0
    said = capfd.readouterr().err
    assert "[other.test:80 was refused (domain_not_allowed): other.test is not on the allow list" in said
    assert "to allow it: --allow-net other.test:80]" in said
    assert json.loads(log.read_text())["rule"] == "domain_not_allowed"


@pytest.mark.slow
def test_the_command_line_reaches_a_private_host_only_when_it_is_allowed(
    port: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = get(f"http://127.0.0.1:{port}/")
    words = ["run", "-c", code, "--allow-net", f"127.0.0.1:{port}"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert main([*words, "--allow-private", "127.0.0.1"]) == 0
    assert capfd.readouterr().out == "200\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert main(words) == 1
    assert "--allow-private 127.0.0.1" in capfd.readouterr().err
