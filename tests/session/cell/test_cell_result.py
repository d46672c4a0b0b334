"""What the author of a cell is told, from what was seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.streams import Capture
from sandbox_kernel.model import Note, Status
from sandbox_kernel.session.cell.cell_order import CellEnd
from sandbox_kernel.session.cell.cell_result import CellFacts, Frame, comeback_notes, judge_cell, make_result, reason
from sandbox_kernel.session.worker.messages import CellDone
from sandbox_kernel.session.worker.worker import RolledBack

PYTHON = Frame(language="python", backend="process", isolation="process+sandbox", memory_mb=64)


def end(how: str, *, interrupted: bool = False, code: int | None = None, disk_full: bool = False) -> CellEnd:
    return CellEnd(how=Ending(how), done=None, duration_s=1.0, interrupted=interrupted, disk_full=disk_full, code=code)


def done(status: str, *, interrupted: bool = False, limit: str | None = None) -> CellEnd:
    said = CellDone(id=1, status=status, exit_code=0 if status == "ok" else 1, limit=limit)
    return CellEnd(how=Ending.DONE, done=said, duration_s=1.0, interrupted=interrupted, disk_full=False)


def facts(*, oom_kills: int = 0, forks_refused: bool = False) -> CellFacts:
    return CellFacts(
        stdout=Capture(10), stderr=Capture(10), displays=(), dropped_displays=0, late_displays=0, violations=(), oom_kills=oom_kills,
        forks_refused=forks_refused, cpu_seconds=None, peak_bytes=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "measured", "status", "limit"),
    [
        (done("ok"), facts(), Status.OK, None),
        (done("ok"), facts(oom_kills=1), Status.OK, "memory"),
        (done("ok", limit="disk"), facts(), Status.OK, "disk"),
        (done("error"), facts(), Status.FAILED, None),
        (done("error", limit="memory"), facts(), Status.MEMORY_EXCEEDED, "memory"),
        (done("error", limit="open_files"), facts(), Status.FAILED, "open_files"),
        (done("error"), facts(forks_refused=True), Status.FAILED, "processes"),
        (done("interrupted", interrupted=True), facts(), Status.INTERRUPTED, None),
        (done("interrupted"), facts(), Status.FAILED, None),
        (end("died", code=-11), facts(), Status.KILLED, None),
        (end("died", code=-9), facts(oom_kills=1), Status.MEMORY_EXCEEDED, "memory"),
        (end("died", code=1, disk_full=True), facts(), Status.KILLED, "disk"),
        (end("timeout"), facts(), Status.TIMEOUT, "timeout"),
        (end("cpu"), facts(), Status.CPU_LIMIT, "cpu"),
        (replace(done("error", limit="open_files"), disk_full=True), facts(), Status.FAILED, "open_files"),
        (end("memory"), facts(), Status.MEMORY_EXCEEDED, "memory"),
        (end("disk"), facts(), Status.KILLED, "disk"),
        (end("interrupt", interrupted=True), facts(), Status.INTERRUPTED, None),
        (end("protocol"), facts(), Status.KILLED, None),
        (end("lost"), facts(), Status.KILLED, None),
        (end("lost"), facts(oom_kills=1), Status.MEMORY_EXCEEDED, "memory"),
    ],
)
def test_an_end_has_its_status_and_its_limit(
    seen: CellEnd, measured: CellFacts, status: Status, limit: str | None
) -> None:
    assert judge_cell(seen, measured, PYTHON) == (status, limit)


def test_a_heap_that_gave_up_near_the_limit_is_the_memory_limit() -> None:
    node = replace(PYTHON, language="javascript")
    full, small = replace(facts(), peak_bytes=60 << 20), replace(facts(), peak_bytes=30 << 20)
    assert judge_cell(end("died", code=-6), full, node) == (Status.MEMORY_EXCEEDED, "memory")
    assert judge_cell(end("died", code=-6), small, node) == (Status.KILLED, None)
    assert judge_cell(end("died", code=-6), full, PYTHON) == (Status.KILLED, None)


def test_a_death_is_told_by_its_signal_or_its_code() -> None:
    assert reason(end("died", code=-11)) == "the cell ended its own process by signal 11 (SIGSEGV)"
    assert reason(end("died", code=3)) == "the cell ended its own process with exit code 3"
    assert reason(end("timeout")) is None


def test_notes_count_variables_and_say_what_did_not_come_back() -> None:
    back = RolledBack(cell=1, names=1, threads=2, files="they are larger than 32 MB")
    assert comeback_notes(back, 0) == [
        "rolled back to the state before this cell; 1 variable kept",
        "files in the work folder were left as they are: they are larger than 32 MB",
        "2 threads of earlier cells did not come back",
    ]
    assert comeback_notes(RolledBack(cell=1, names=3, threads=0, files=""), 2) == [
        "rolled back to an older state: the last 2 cells are taken back too; 3 variables kept"
    ]


def test_a_signal_is_an_exit_code_above_128_too() -> None:
    result = make_result(end("died", code=-11), facts(), PYTHON, timeout=3.0, rolled_back=True, told=[Note("n")])
    assert (result.exit_code, result.signal, result.rolled_back, result.notes) == (139, 11, True, ("n",))
    assert (result.timeout, result.memory_limit_mb, result.language) == (3.0, 64, "python")
