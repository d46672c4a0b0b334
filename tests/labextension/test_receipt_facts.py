"""What the page shows of a receipt, and what it makes of one that lies."""

from dataclasses import replace

import pytest

from sandbox_kernel.model import ExecResult, FsChange, Status, Violation, describe_end
from sandbox_kernel.receipt import facts, measurements
from tests.labextension.conftest import Evaluate


def read(evaluate: Evaluate, data: object, measured: object = None) -> dict[str, object]:
    receipt = evaluate("receipt.js", "readReceipt(values[0], values[1])", data, measured)
    assert isinstance(receipt, dict)
    return receipt


def read_result(evaluate: Evaluate, result: ExecResult) -> dict[str, object]:
    return read(evaluate, facts(result, describe_end(result)), measurements(result))


def test_every_fact_and_measurement_of_a_result_is_shown(evaluate: Evaluate) -> None:
    result = ExecResult(
        status=Status.KILLED, exit_code=3, signal=9, limit="memory", duration=1.5, compile_duration=0.25,
        cpu_seconds=1.0, peak_memory_bytes=64 << 20, added_memory_bytes=24 << 20, kept_memory_bytes=101 << 20, stdout_bytes=10, stderr_bytes=5 << 20, stderr_truncated=True,
        fuel_used=77, rolled_back=True, language="rust", backend="process", isolation="process+sandbox", timeout=2,
        memory_limit_mb=64,
        violations=(Violation(rule="network", subject="a.org", reason="no network", remedy="--allow-net a.org"),),
        notes=("a note",), chosen="backend 'auto' took a process",
    )  # fmt: skip
    shown = read_result(evaluate, result)
    assert shown["rows"] == [
        ["status", "killed"],
        ["exit code", "3"],
        ["signal", "9"],
        ["limit reached", "memory"],
        ["session", "as it was before this cell"],
        ["runs in", "isolated process"],
        ["time limit", "2 s"],
        ["memory limit", "64 MB"],
        ["time", "1.5 s"],
        ["compile time", "250 ms"],
        ["CPU time", "1 s"],
        ["peak memory", "64 MB"],
        ["of it by this cell", "24 MB"],
        ["kept states, beside it", "101 MB"],
        ["standard output", "10 bytes"],
        ["standard error", "5 MB, shown in part"],
        ["fuel used", "77"],
    ]
    assert shown["meters"] == [
        {"label": "time", "fraction": 0.75, "level": "high", "used": "1.5 s", "text": "1.5 s of 2 s"},
        {
            "label": "memory",
            "fraction": 1,
            "level": "full",
            "used": "64 MB",
            "text": "64 MB of 64 MB, +24 MB by this cell",
        },
    ]
    assert shown["refused"] == {
        "shown": [{"rule": "network", "subject": "a.org", "reason": "no network", "remedy": "--allow-net a.org"}],
        "hidden": 0,
    }
    assert shown["notes"] == {"shown": ["a note"], "hidden": 0}
    assert shown["isolation"] == "isolated process"


def test_memory_of_a_gpu_is_shown_where_a_cell_used_one(evaluate: Evaluate) -> None:
    shown = read_result(evaluate, ExecResult(peak_gpu_memory_bytes=512 << 20, gpu_memory_limit_mb=1024))
    assert ["peak GPU memory", "512 MB"] in shown["rows"]  # type: ignore[operator]
    meter = {"label": "GPU memory", "fraction": 0.5, "level": "low", "used": "512 MB", "text": "512 MB of 1 GB"}
    assert meter in shown["meters"]  # type: ignore[operator]


def test_only_a_run_with_nothing_notable_is_slim(evaluate: Evaluate) -> None:
    good = ExecResult(language="python", isolation="process+sandbox")
    refused = Violation(rule="network", subject="a.org", reason="no network")
    changed = FsChange(path="a.txt", kind="created")
    assert read_result(evaluate, good)["slim"] is True
    for notable in (
        replace(good, status=Status.TIMEOUT),
        replace(good, violations=(refused,)),
        replace(good, notes=("a note",)),
        replace(good, changes=(changed, changed)),
        replace(good, isolation="process"),
    ):
        assert read_result(evaluate, notable)["slim"] is False
    assert read_result(evaluate, replace(good, changes=(changed, changed)))["changed"] == "2 files changed"


@pytest.mark.parametrize(
    ("result", "tone"),
    [
        (ExecResult(), "good"),
        (ExecResult(limit="output"), "warn"),
        (ExecResult(violations=(Violation(rule="r", subject="s", reason="no"),)), "warn"),
        (ExecResult(status=Status.INTERRUPTED), "warn"),
        (ExecResult(status=Status.FAILED, exit_code=1), "bad"),
        (ExecResult(status=Status.TIMEOUT), "bad"),
    ],
)
@pytest.mark.one_case
def test_the_tone_says_whether_to_worry(evaluate: Evaluate, result: ExecResult, tone: str) -> None:
    assert read_result(evaluate, result)["tone"] == tone


@pytest.mark.parametrize(
    "nonsense", [None, 7, "text", [], [[]], {"violations": {"length": 9}, "notes": "x", "ending": {}}]
)
def test_nonsense_gives_an_empty_receipt_and_no_error(evaluate: Evaluate, nonsense: object) -> None:
    shown = read(evaluate, nonsense, nonsense)
    assert shown["ending"] == "unknown end"
    assert shown["meters"] == shown["rows"] == []


def test_texts_are_made_visible_and_short(evaluate: Evaluate) -> None:
    assert evaluate("receipt.js", "values.map(safeText)", "a\u202eb\x00\x1b[31m", "a\n\nb\tc", "x" * 500, 5) == [
        "a\ufffdb\ufffd\ufffd[31m",
        "a b c",
        "x" * 400 + "…",
        "",
    ]


def test_lists_are_cut_and_say_so(evaluate: Evaluate) -> None:
    notes = read(evaluate, {"notes": ["n"] * 1000})["notes"]
    assert notes == {"shown": ["n"] * 20, "hidden": 980}


def test_numbers_that_are_none_are_not_drawn(evaluate: Evaluate) -> None:
    measured = {"duration_s": -1, "cpu_s": "2", "peak_memory_bytes": True, "stdout_bytes": 1.5}
    shown = read(evaluate, {"timeout_s": None, "exit_code": "0"}, measured)
    assert shown["meters"] == shown["rows"] == []


def test_a_run_over_its_limit_fills_the_bar_and_no_more(evaluate: Evaluate) -> None:
    full = evaluate("receipt.js", "readReceipt({timeout_s: 1}, {duration_s: 1e300}).meters[0].fraction")
    assert full == 1
