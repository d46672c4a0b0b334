"""A jail that ends before its program has begun: an error of ours, never a result of the program."""

import os

import pytest

from sandbox_kernel import EnforcerFailed, ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.jail.accounting.processes import living, tree
from sandbox_kernel.jail.enforcer import start_jail
from sandbox_kernel.jail.gate_messages import MAX_REPORT, JobFile, Step
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.run_job import Job, JobOutcome, run_job
from sandbox_kernel.jail.spawner import wait_buried
from sandbox_kernel.jail.walls import WORK, Walls
from tests.conftest import cgroup_leaves


def test_a_gate_that_fails_before_the_program_begins_is_an_error_and_no_result(nothing_left: None) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))
    request = ExecRequest(language=Language.PYTHON, code="print(1)", timeout=10)
    jail = backend._pool.take(backend.walls(request, backend._recipe(request)))
    try:
        # A place that nobody inside can write.
        files = (JobFile(root="/usr/nowhere", name="a", data=b"all"),)
        job = Job(steps=(), files=files, timeout_s=10, memory_bytes=1 << 28, processes=8, output_bytes=1000)
        with pytest.raises(EnforcerFailed, match=r"before the program began, nothing was run: .*Read-only file system"):
            run_job(jail, job)
    finally:
        jail.destroy()
        jail.forget()


MIB = 1 << 20


def ready_jail() -> Jail:
    python = find_python("python3")
    return start_jail(Walls(python.executable, python.runtime, (), 8 * MIB, 8 * MIB, 8 * MIB)).wait_ready()


def job(source: str, *, reports: bool, timeout_s: float = 20, ends: bool = False) -> Job:
    step = Step(kind="python", argv=["cell.py"], env={}, rlimits={}, cwd=WORK, source=source.encode(), reports=reports)
    return Job(
        steps=(step,), timeout_s=timeout_s, memory_bytes=256 * MIB, processes=16, output_bytes=MIB, ends_with_report=ends
    )  # fmt: skip


def run(source: str, *, reports: bool, timeout_s: float = 20, ends: bool = False) -> JobOutcome:
    jail = ready_jail()
    try:
        return run_job(jail, job(source, reports=reports, timeout_s=timeout_s, ends=ends))
    finally:
        jail.forget()


@pytest.mark.parametrize(
    ("source", "ends", "report", "code"),
    [("os.write(3, b'all well')", False, b"all well", 0), ("os._exit(7)", True, b"", 7)],
    ids=["reported", "died"],
)
def test_a_step_that_reports_is_heard_and_one_that_dies_without_is_waited_for(
    source: str, ends: bool, report: bytes, code: int
) -> None:
    done = run(f"import os; {source}", reports=True, ends=ends)
    assert (done.report, done.exits[-1].code, done.stderr.text, done.stopped_by) == (report, code, "", None)


@pytest.mark.slow
def test_a_report_made_before_the_time_limit_is_kept() -> None:
    done = run("import os, time; os.write(3, b'so far'); time.sleep(60)", reports=True, timeout_s=1)
    assert (done.report, done.stopped_by) == (b"so far", "timeout")


@pytest.mark.slow
def test_a_report_without_end_is_cut_and_blocks_only_its_writer() -> None:
    done = run("import os\nwhile True: os.write(3, b'x' * 65536)", reports=True, timeout_s=1)
    assert done.stopped_by == "timeout"
    assert 0 < len(done.report) <= MAX_REPORT


@pytest.mark.parametrize("probe", ["os.fstat(3)", "os.write(3, b'x')"])
def test_other_steps_have_no_channel(probe: str) -> None:
    source = f"import os\ntry:\n    {probe}\n    print('open')\nexcept OSError as error:\n    print(error.errno)"
    done = run(source, reports=False)
    assert (done.stdout.text, done.report) == ("9\n", b"")


def test_a_report_can_be_the_end_and_what_was_printed_before_it_is_there() -> None:
    """A runner that has reported only takes itself down; nobody waits for that."""
    program = "import os, time; os.write(1, b'x' * 200_000); os.write(3, b'done'); time.sleep(60)"
    done = run(program, reports=True, ends=True)
    assert (done.report, done.exits, done.stopped_by, done.stdout.total) == (b"done", (), None, 200_000)


def test_a_jail_that_reported_is_killed_at_once_and_gone_soon_with_its_group() -> None:
    """Nobody waits for its end, but it ends: everything inside, and what was the host's of it."""
    before = cgroup_leaves()
    jail = ready_jail()
    inside = living(tree(jail.init_pid))
    program = "import os, time; os.fork(); open('kept', 'w').write('x'); os.write(3, b'done'); time.sleep(60)"
    done = run_job(jail, job(program, reports=True, ends=True))
    assert done.report.startswith(b"done")
    assert os.listdir(jail.box_fd) == ["kept"]
    assert wait_buried()
    assert living(inside) == {}
    assert cgroup_leaves() <= before
    jail.destroy()
    jail.forget()


def test_a_jail_that_was_stopped_is_gone_when_the_run_returns() -> None:
    """A report that came before does not change that: the program went on, and somebody had to end it."""
    python = find_python("python3")
    jail = start_jail(Walls(python.executable, python.runtime, (), 8 * MIB, 8 * MIB, 8 * MIB))
    jail.wait_ready()
    inside = living(tree(jail.init_pid))
    step = Step(kind="python", argv=["cell.py"], env={}, rlimits={}, cwd=WORK, source=b"while True: pass", reports=True)
    done = run_job(jail, Job(
        steps=(step,), timeout_s=0.3, memory_bytes=256 * MIB, processes=16, output_bytes=MIB, ends_with_report=True
    ))  # fmt: skip
    assert done.stopped_by == "timeout"
    assert living(inside) == {}
    jail.forget()
