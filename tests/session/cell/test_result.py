"""What the author of a cell is told, from what was seen."""

import pytest

from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.streams import Capture
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import Language, Status, notes
from sandbox_kernel.session.cell.displays import Displays
from sandbox_kernel.session.cell.request import SessionSpec
from sandbox_kernel.session.cell.result import CellEnd, cell_result, judge_cell
from sandbox_kernel.session.worker.jailed_worker import RolledBack
from sandbox_kernel.session.worker.messages import CellDone


def end(how: str, **seen: object) -> CellEnd:
    known = {"done": None, "duration_s": 1.0, "interrupted": False, "disk_full": False}
    return CellEnd(how=Ending(how), **{**known, **seen})  # type: ignore[arg-type]


def done(status: str, limit: str | None = None, **seen: object) -> CellEnd:
    code = 0 if status == "ok" else 1
    return end("done", done=CellDone(id=1, status=status, exit_code=code, limit=limit), **seen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "status", "limit"),
    [
        (done("ok"), Status.OK, None),
        (done("ok", oom_kills=1), Status.OK, "memory"),
        (done("ok", limit="disk"), Status.OK, "disk"),
        (done("error"), Status.FAILED, None),
        (done("error", limit="memory"), Status.MEMORY_EXCEEDED, "memory"),
        (done("error", limit="open_files"), Status.FAILED, "open_files"),
        (done("error", forks_refused=True), Status.FAILED, "processes"),
        (done("interrupted", interrupted=True), Status.INTERRUPTED, None),
        (done("interrupted"), Status.FAILED, None),
        (end("died", code=-11), Status.KILLED, None),
        (end("died", code=-9, oom_kills=1), Status.MEMORY_EXCEEDED, "memory"),
        (end("died", code=1, disk_full=True), Status.KILLED, "disk"),
        (end("timeout"), Status.TIMEOUT, "timeout"),
        (end("cpu"), Status.CPU_LIMIT, "cpu"),
        (done("error", limit="open_files", disk_full=True), Status.FAILED, "open_files"),
        (end("memory"), Status.MEMORY_EXCEEDED, "memory"),
        (end("disk"), Status.KILLED, "disk"),
        (end("interrupt", interrupted=True), Status.INTERRUPTED, None),
        (end("protocol"), Status.KILLED, None),
        (end("lost"), Status.KILLED, None),
        (end("lost", oom_kills=1), Status.MEMORY_EXCEEDED, "memory"),
    ],
)
def test_an_end_has_its_status_and_its_limit(seen: CellEnd, status: Status, limit: str | None) -> None:
    assert judge_cell(seen, Language.PYTHON, 64) == (status, limit)


def test_a_heap_that_gave_up_near_the_limit_is_the_memory_limit() -> None:
    full, small = (end("died", code=-6, peak_bytes=peak << 20) for peak in (60, 30))
    assert judge_cell(full, Language.JAVASCRIPT, 64) == (Status.MEMORY_EXCEEDED, "memory")
    assert judge_cell(small, Language.JAVASCRIPT, 64) == (Status.KILLED, None)
    assert judge_cell(full, Language.PYTHON, 64) == (Status.KILLED, None)


def test_a_death_is_told_by_its_signal_or_its_code() -> None:
    assert end("died", code=-11).reason() == "the cell ended its own process by signal 11 (SIGSEGV)"
    assert end("died", code=3).reason() == "the cell ended its own process with exit code 3"
    assert end("timeout").reason() is None


def test_notes_count_variables_and_say_what_did_not_come_back() -> None:
    back = RolledBack(cell=1, names=1, threads=2, files_problem="they are larger than 32 MB")
    assert notes.rolled_back(1) == "rolled back to the state before this cell; 1 variable kept"
    assert back.losses() == [
        "not all files in the work folder are as they were before: they are larger than 32 MB",
        "2 threads of earlier cells did not come back",
    ]
    assert notes.rolled_back_further(2, 3) == (
        "rolled back to an older state: the last 2 cells are taken back too; 3 variables kept"
    )


def test_a_signal_is_an_exit_code_above_128_too() -> None:
    spec = SessionSpec(
        name="s", language=Language.PYTHON, memory_mb=64, checkpoints=1, limits=Limits(), grace_s=1.0, backend="process",
        isolation="process+sandbox",
    )  # fmt: skip
    output = Capture(10), Capture(10), Displays()
    ended = end("died", code=-11)
    result = cell_result(spec.request("x", 3.0), spec, ended, *output, 64)
    assert (result.exit_code, result.signal) == (139, 11)
    assert (result.timeout, result.memory_limit_mb, result.language) == (3.0, 64, "python")
