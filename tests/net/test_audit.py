import json
import os
import stat
from pathlib import Path

import pytest

from sandbox_kernel.errors import FetchError, PolicyViolation
from sandbox_kernel.net import audit
from sandbox_kernel.net.audit import AuditFile, AuditRecord, audit_sink
from sandbox_kernel.net.fetch_messages import FetchRequest
from sandbox_kernel.net.safe_client import SafeClient


def record(**more: object) -> AuditRecord:
    return AuditRecord(**{"event": "allowed", "via": "fetch", "method": "GET", "host": "a.test", "port": 443, **more})  # type: ignore[arg-type]


def test_records_are_appended_as_json_lines_that_only_the_owner_reads(tmp_path: Path):
    path = tmp_path / "egress.jsonl"
    path.write_text('{"before": 1}\n')
    path.chmod(0o600)
    sink = AuditFile(path)
    sink(record())
    sink(record(event="refused", rule="domain_not_allowed"))
    sink.close()
    sink.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"before": 1}
    assert lines[2]["rule"] == "domain_not_allowed"
    assert lines[1]["host"] == "a.test"
    fresh = AuditFile(tmp_path / "new.jsonl")
    fresh.close()
    assert stat.S_IMODE(os.stat(tmp_path / "new.jsonl").st_mode) == 0o600


def test_text_of_a_guest_cannot_forge_or_flood_a_line(tmp_path: Path):
    line = record(path='x\n{"event": "allowed"}\u2028', reason="y" * 100_000).to_json_line()
    assert line.count("\n") == 1
    assert len(line) < 3000
    assert json.loads(line)["path"].startswith("x\n")


def test_a_path_that_cannot_be_opened_is_told_before_anything_runs(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("pipe", "read"):
        os.mkfifo(tmp_path / name)
    reader = os.open(tmp_path / "read", os.O_RDWR)
    for path in (tmp_path / "missing" / "log", tmp_path, *(tmp_path / name for name in ("link", "pipe", "read"))):
        with pytest.raises(PolicyViolation, match="audit log"):
            AuditFile(path)
    os.close(reader)


@pytest.mark.parametrize("url", ["/p?token=S3CRET", "/p?token=S3CRET#x"])
def test_no_query_of_a_refused_request_stands_in_the_log(site, names, tmp_path: Path, url: str):
    sink = AuditFile(tmp_path / "log")
    client = SafeClient(site.policy(), names, sink)
    host = site.url().removesuffix("/")
    for method, asked in (
        ("TRACE", host + url),
        ("GET", f"ftp://a.test{url}"),
        ("GET", f"http://u:S3CRET@a.test{url}"),
    ):
        with pytest.raises(FetchError):
            client.fetch(FetchRequest(url=asked, method=method))
    text = (tmp_path / "log").read_text()
    assert text.count("\n") == 3 and "S3CRET" not in text


def test_nothing_is_sent_when_the_log_cannot_be_written(site, names, tmp_path: Path):
    sink = AuditFile(tmp_path / "log")
    sink.close()
    with pytest.raises(FetchError) as caught:
        SafeClient(site.policy(), names, sink).fetch(site.url())
    assert caught.value.rule == "audit_failed"
    assert site.seen == []


def test_a_full_log_stops_what_it_should_have_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(audit, "MAX_FILE_BYTES", 400)
    sink = AuditFile(tmp_path / "log")
    with pytest.raises(FetchError, match="full"):
        for _ in range(10):
            sink(record())
    assert (tmp_path / "log").stat().st_size <= 400


def test_a_function_is_a_sink_and_so_is_nothing():
    kept: list[AuditRecord] = []
    audit_sink(kept.append)(record())
    audit_sink(None)(record())
    assert len(kept) == 1
