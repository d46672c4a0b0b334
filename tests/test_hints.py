"""Hints: one sentence with what to write, where people stumble; none where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox_kernel.model import CellError, ExecResult, NoteKind, Status
from sandbox_kernel.model.hints import Stumble, hints

BESIDE = Stumble(beside=lambda path: path in ("data/sales.csv", "rows.csv"))


def failed(text: str, **more: object) -> ExecResult:
    return ExecResult(status=Status.FAILED, exit_code=1, stderr=text, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/sales.csv'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/box/data/sales.csv'",
        "Error: ENOENT: no such file or directory, open 'data/sales.csv'",
        "cat: data/sales.csv: No such file or directory",
    ],
)
def test_a_file_beside_the_notebook_was_a_bare_error(said: str) -> None:
    (hint,) = hints(failed(said), BESIDE)
    assert hint == "data/sales.csv is beside the notebook and not shown to the sandbox: %sandbox --here"
    assert hint.kind is NoteKind.HINT


def test_the_hint_of_a_running_session_cost_its_variables() -> None:
    result = ExecResult(
        language="python",
        status=Status.FAILED,
        error=CellError(ename="x", evalue="[Errno 2] No such file or directory: 'rows.csv'"),
    )
    (hint,) = hints(result, Stumble(beside=lambda path: True, running=True))
    assert hint.endswith(": %sandbox --here (a running session: %sandbox restart --keep --here)")
    (hint,) = hints(replace(result, language="command"), Stumble(beside=lambda path: True, running=True))
    assert hint.endswith("(a running session: %sandbox restart command first)")


@pytest.mark.parametrize("path", ["missing.csv", "../data/sales.csv", "/etc/passwd", "a/../../data/sales.csv"])
def test_a_file_elsewhere_was_told(path: str) -> None:
    seen: list[str] = []
    stumble = Stumble(beside=lambda asked: seen.append(asked) or asked == "data/sales.csv")
    assert hints(failed(f"No such file or directory: '{path}'"), stumble) == ()
    assert not any(asked.startswith(("/", "..")) for asked in seen)


def test_whether_a_file_exists_was_told_to_an_agent() -> None:
    assert hints(failed("No such file or directory: 'rows.csv'"), Stumble()) == ()


def test_a_limit_did_not_say_how_to_raise_it() -> None:
    slow = ExecResult(status=Status.TIMEOUT, timeout=30.0)
    assert "%sandbox --timeout 2m" in hints(slow, BESIDE)[0]
    large = ExecResult(status=Status.MEMORY_EXCEEDED, memory_limit_mb=512)
    assert "--memory 1G" in hints(large, Stumble(line=""))[0]


def test_a_read_only_place_or_a_missing_package_was_a_bare_error() -> None:
    (hint,) = hints(failed("OSError: [Errno 30] Read-only file system: '/data/x.csv'"), BESIDE)
    assert hint.startswith("/data can only be read") and "--mount HOST:/data:rw" in hint
    (hint,) = hints(failed("ModuleNotFoundError: No module named 'sklearn.linear'"), BESIDE)
    assert "pip install sklearn on the host" in hint


def test_a_good_run_got_advice() -> None:
    assert hints(ExecResult(stderr="No module named 'x'"), BESIDE) == ()
