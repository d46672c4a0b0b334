"""Runs that go to a runner end as they do in this process; a runner that dies harms nobody."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.crowd import Crowd, shared_crowd
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, FsChange, Language, Note, NoteKind, Status
from sandbox_kernel.workspace.tree.rooted import Rooted
from tests.conftest import descendants, end_spares
from tests.waiting import until_gone


def python(code: str, **given: object) -> ExecRequest:
    return ExecRequest(**{"language": Language.PYTHON, "code": code, "timeout": 60, **given})


@pytest.fixture
def crowded() -> Iterator[ProcessBackend]:
    """A backend whose runs all go to its one runner, because others seem to run at the same time."""
    backend = ProcessBackend(ProcessConfig(runners=1))
    crowd = shared_crowd(1)
    with ExitStack() as others:
        for _ in range(3):
            others.enter_context(crowd.one_more(may_move=False))
        while not pids(crowd):
            backend.run(python("pass"))
        yield backend
    end_spares()


def pids(crowd: Crowd) -> list[int]:
    """The processes of the runners that are there now."""
    return [runner.pid for runner in crowd._runners if not runner.has_ended()]


@contextmanager
def no_jail_of_this_process() -> Iterator[None]:
    """Fail where this process makes a jail itself: then nothing was given to a runner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "take", lambda *_: pytest.fail("the run stayed in this process"))
        yield


def comparable(result: ExecResult) -> ExecResult:
    """The result without what differs between two runs of one program."""
    result = replace(result, duration=0, compile_duration=None, cpu_seconds=None, peak_memory_bytes=None)
    if result.status is Status.MEMORY_EXCEEDED:  # the kernel's killer or ours, whichever was first
        result = replace(result, exit_code=None, signal=None)
    return result


@pytest.mark.parametrize(
    "request_",
    [
        python("print('a'); import sys; print('b', file=sys.stderr)"),
        python("import sys; print(sys.stdin.read(), sys.argv[1:]); sys.exit(3)", stdin="given", args=("x",)),
        python("raise ValueError('no')"),
        python("while True: pass", timeout=0.5),
        python("x = bytearray(400 << 20)", memory_limit_mb=100),
        python("print('x' * 10_000_000)", limits=Limits(output_bytes=1000)),
        python("import os; os.kill(os.getpid(), 11)"),
        ExecRequest(language=Language.COMMAND, code="echo $A; exit 7", env={"A": "from the caller"}, timeout=60),
    ],
    ids=["output", "input", "error", "time", "memory", "much output", "signal", "shell"],
)  # fmt: skip
@pytest.mark.slow
def test_a_run_in_a_runner_ends_as_in_this_process(crowded: ProcessBackend, request_: ExecRequest) -> None:
    here = ProcessBackend(ProcessConfig(runners=0)).run(request_)
    with no_jail_of_this_process():
        there = crowded.run(request_)
    assert comparable(there) == comparable(here)


@pytest.mark.slow
def test_files_that_a_program_leaves_reach_the_caller_and_its_notes_come_back(crowded: ProcessBackend) -> None:
    taken: dict[str, bytes] = {}

    def keep(box: Rooted, changes: Sequence[FsChange]) -> list[Note]:
        for change in changes:
            taken[change.path] = box.read(change.path)
        return [Note("taken")]

    request = python("open('new', 'w').write(open('given').read() * 2)", files={"given": "ab"})
    result = crowded.run(request, RunContext(keep=keep))
    assert taken == {"new": b"abab"}
    assert (result.notes, [change.path for change in result.changes]) == (("taken",), ["new"])


@pytest.mark.slow
def test_output_and_memory_are_told_on_the_calling_thread_while_the_program_runs(crowded: ProcessBackend) -> None:
    heard: dict[str, str] = {"stdout": "", "stderr": ""}
    threads: set[int] = set()
    used: list[int] = []
    go_on = "import sys, time\nprint('one', flush=True)\ntime.sleep(1)\nprint('two', file=sys.stderr)"

    def hear(stream: str, text: str) -> None:
        heard[stream] += text
        threads.add(threading.get_ident())

    result = crowded.run(python(go_on), RunContext(on_output=hear, on_usage=lambda now, _: used.append(now)))
    assert heard == {"stdout": "one\n", "stderr": "two\n"} == {"stdout": result.stdout, "stderr": result.stderr}
    assert threads == {threading.get_ident()}
    assert used


@pytest.mark.slow
def test_a_run_in_a_runner_can_be_stopped_and_its_files_are_told_and_not_kept(crowded: ProcessBackend) -> None:
    stop = Stop()
    heard = RunContext(
        on_output=lambda *_: stop.set(), stop=stop, keep=lambda *_: pytest.fail("a stopped run leaves nothing")
    )
    result = crowded.run(python("open('left', 'w').close(); print('ready', flush=True)\nwhile True: pass"), heard)
    stop.close()
    assert result.status is Status.INTERRUPTED
    assert [change.path for change in result.changes] == ["left"]
    assert [note.kind for note in result.notes] == [NoteKind.FILES_NOT_KEPT]


@pytest.mark.slow
def test_a_callback_that_fails_ends_the_run_and_the_caller_gets_its_error(crowded: ProcessBackend) -> None:
    class OfTheCallerError(Exception):
        pass

    def fail(*_: object) -> None:
        raise OfTheCallerError

    with pytest.raises(OfTheCallerError):
        crowded.run(python("print(1, flush=True)\nwhile True: pass"), RunContext(on_output=fail))
    with pytest.raises(OfTheCallerError):
        crowded.run(python("open('new', 'w').close()"), RunContext(keep=fail))
    assert crowded.run(python("print(2)")).stdout == "2\n"


@pytest.mark.slow
def test_an_error_of_the_request_is_the_same_error(crowded: ProcessBackend) -> None:
    request = python("pass", memory_limit_mb=1)
    with pytest.raises(InvalidRequest) as here:
        ProcessBackend(ProcessConfig(runners=0)).run(request)
    with pytest.raises(InvalidRequest) as there:
        crowded.run(request)
    assert str(there.value) == str(here.value)


@pytest.mark.slow
def test_a_runner_that_is_killed_takes_its_jails_along_and_the_next_run_works(
    crowded: ProcessBackend, nothing_left: None
) -> None:
    while not (found := pids(shared_crowd(1))):
        crowded.run(python("pass"))
    inside: set[int] = set()

    def kill(*_: object) -> None:
        inside.update(descendants(found[0]))
        os.kill(found[0], signal.SIGKILL)

    with pytest.raises(BackendUnavailable, match="ended before the program did"):
        crowded.run(python("print('runs', flush=True)\nwhile True: pass"), RunContext(on_output=kill))
    assert inside
    until_gone(*inside)
    assert crowded.run(python("print('on')")).stdout == "on\n"


def test_a_runner_that_ended_before_the_run_began_leaves_the_run_to_this_process(crowded: ProcessBackend) -> None:
    (pid,) = pids(shared_crowd(1))
    crowd = shared_crowd(1)
    with crowd.one_more(may_move=True) as runner:
        assert runner is not None
        os.kill(pid, signal.SIGKILL)
        until_gone(pid)
        result = crowded.run(python("print('here')"))
    assert result.stdout == "here\n"


def test_one_or_two_runs_start_no_runner() -> None:
    crowd = Crowd(1)
    for _ in range(50):
        with crowd.one_more(may_move=True) as first, crowd.one_more(may_move=True) as second:
            assert first is second is None
    assert pids(crowd) == []
    crowd.close()


def test_a_runner_is_replaced_when_the_search_path_changes(
    crowded: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = pids(shared_crowd(1))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/opt/more")
    assert crowded.run(python("print(1)")).stdout == "1\n"
    assert pids(shared_crowd(1)) != [old]


def test_runners_must_be_a_number() -> None:
    with pytest.raises(InvalidRequest, match="runners"):
        ProcessConfig(runners=-1)


@pytest.mark.slow
def test_many_runs_at_once_are_spread_over_the_runners_and_nothing_is_left(nothing_left: None) -> None:
    backend = ProcessBackend(ProcessConfig(runners=2))
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda n: backend.run(python(f"print({n})")), range(100)))
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(100)]
    assert len(pids(shared_crowd(2))) == 2
