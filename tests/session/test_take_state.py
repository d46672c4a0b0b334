"""How variables get out of a jail: without room in its work folder, bounded, and so that a save can be interrupted."""

import _thread
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy, SessionError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.take_state import MAX_TRIES, Intake, take_variables

#: A variable that never can be stored in time, and makes a file when a process that saves is at it.
SLOW = """
import os, time
class Slow:
    def __reduce__(self):
        open('seen', 'a').write('s'); time.sleep(600)
slow = Slow(); kept = [1]
"""


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox(SandboxPolicy().allow_process_spawn()) as made:
        yield made


def value(session: Session, expression: str) -> str:
    result = session.run(expression, timeout=60)
    assert result.ok, result
    return str(result.displays[-1].data["text/plain"])


def when_it_saves(session: Session, act: Callable[[], object]) -> threading.Thread:
    """Call a function once the process that saves is at the slow variable: two others look at it before."""
    worker = session._supervisor.live
    assert worker is not None
    folder = worker.jail.box_fd

    def wait() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with open(os.open("seen", os.O_RDONLY, dir_fd=folder)) as file:
                if len(file.read()) > len(before):
                    act()
                    return
            time.sleep(0.02)

    session.history()  # the looks are over
    before = session.read_file("seen")
    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_session_with_more_variables_than_its_work_folder_can_hold_is_saved(box: Sandbox, tmp_path: Path) -> None:
    session = box.session(memory_mb=512)
    assert session.run("import numpy as np; large = np.ones(40_000_000); open('f', 'w').write('kept')").ok
    report = session.save(tmp_path / "s")
    assert not report.lost, report
    with session.fork() as other:
        assert value(other, "large.sum() == 40_000_000, open('f').read()") == "(np.True_, 'kept')"
        assert value(other, "__import__('os').listdir()") == "['f']"
    session.close()
    assert value(box.load_session(tmp_path / "s"), "large.sum() == 40_000_000") == "np.True_"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("by", ["interrupt", "ctrl-c"])
@pytest.mark.one_case
def test_an_interrupted_save_ends_writes_no_file_and_leaves_the_next_cell_alone(
    box: Sandbox, tmp_path: Path, by: str
) -> None:
    session = box.session()
    assert session.run(SLOW).ok
    thread = when_it_saves(session, session.interrupt if by == "interrupt" else _thread.interrupt_main)
    with pytest.raises((SessionError, KeyboardInterrupt)) as caught:
        session.save(tmp_path / "s")
    assert by != "interrupt" or "interrupted: nothing was saved" in str(caught.value)
    thread.join()
    assert not list(tmp_path.iterdir())
    result = session.run("kept.append(2); kept")
    assert result.ok and not result.notes and not result.rolled_back, result
    assert result.displays[-1].data["text/plain"] == "[1, 2]"
    assert session.run("del slow").ok
    assert not session.save(tmp_path / "s").lost, "an old interrupt does not end the next save"


def test_a_variable_that_ends_the_process_that_saves_is_lost_alone_in_a_session_without_processes(
    tmp_path: Path,
) -> None:
    with Sandbox(SandboxPolicy()) as box:
        session = box.session()
        assert session.run("import os\nclass Bad:\n    def __reduce__(self): os._exit(3)\nx = Bad(); y = [1]").ok
        assert session.run("x").ok
        report = session.save(tmp_path / "s")
        assert list(report.lost) == ["x"] and "y" in report.stored
        assert value(box.load_session(tmp_path / "s"), "y") == "[1]"
        refused = session.run("os.fork()")
        assert not refused.ok, "no leave to fork was left over"


def test_what_a_worker_writes_is_bounded_and_a_pipe_that_stays_open_is_not_waited_for() -> None:
    with Intake(1 << 20) as intake:
        kept_open = os.dup(intake.writer)
        os.write(intake.writer, b"x" * 1000)
    assert not intake.overflowed and intake.count == len(intake.memory) == 1000
    os.close(kept_open)
    with Intake(1000) as intake:
        os.write(intake.writer, b"x" * 2000)
    assert intake.overflowed


def test_a_worker_that_always_asks_for_another_try_gets_few() -> None:
    forks = []

    def ask(*_: object) -> object:
        return SimpleNamespace(answer={"ended": {}})

    jail = SimpleNamespace(places=SimpleNamespace(work="/box"))
    worker: Any = SimpleNamespace(jail=jail, allow_fork=lambda: forks.append(1), ask=ask)
    with contextlib.closing(Stop()) as stop, pytest.raises(SessionError, match="could not be stored"):
        take_variables(worker, 100, stop)
    assert len(forks) == MAX_TRIES


@pytest.mark.parametrize(
    "answer", [{}, {"size": 5, "report": {}}, {"size": 3, "report": []}, {"size": True}, {"problem": 3}]
)
def test_what_a_worker_says_must_fit_what_it_wrote(answer: dict[str, object]) -> None:
    def ask(_what: str, _order: str, _pos: int, _time: float, writer: int, _stop: Stop) -> object:
        os.write(writer, b"abc")
        return SimpleNamespace(answer=answer)

    jail = SimpleNamespace(places=SimpleNamespace(work="/box"))
    worker: Any = SimpleNamespace(jail=jail, allow_fork=lambda: None, ask=ask)
    with contextlib.closing(Stop()) as stop, pytest.raises(SessionError, match="could not be stored"):
        take_variables(worker, 100, stop)
