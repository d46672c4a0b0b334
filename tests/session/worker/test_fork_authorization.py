"""A session whose policy denies starting processes: it has checkpoints, and no cell can start a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.session.session import Session

FORK = """
import os
def attempt(start):
    try:
        pid = start()
    except OSError as error:
        return error.strerror
    if pid == 0:
        os._exit(0)
    return 'started'
"""


@pytest.fixture
def session() -> Iterator[Session]:
    with Sandbox(SandboxPolicy()) as box, box.session() as made:
        yield made


def shown(session: Session, code: str) -> str:
    result = session.run(code)
    assert result.ok, result
    return result.stdout.strip()


def test_a_killed_cell_goes_back_and_keeps_the_state(session: Session) -> None:
    shown(session, "x = [1]; lines = (n for n in range(9)); next(lines); open('f', 'w').write('kept')")
    assert session.run("x.append(2); open('f', 'w').write('lost'); import os; os._exit(3)").rolled_back
    assert shown(session, "print(x, next(lines), open('f').read())") == "[1] 1 kept"
    assert session.run("x.append(3); import time; time.sleep(99)", timeout=0.5).rolled_back
    assert shown(session, "print(x)") == "[1]"


def test_the_tree_works_with_looks_exploration_and_save(session: Session, tmp_path: Path) -> None:
    shown(session, "x = 1")
    session.checkpoint("one")
    shown(session, "x = 2; y = 3")
    assert session.history()[-1].changed.added == ("y",)
    session.undo()
    session.redo()
    session.checkout("one")
    tried = session.explore(["x += 10", "x += 20"])
    tried.keep(1)
    assert shown(session, "print(x)") == "21"
    report = session.save(tmp_path / "s")  # type: ignore[attr-defined]
    assert "x" in report.stored
    with Sandbox(SandboxPolicy()) as box:
        assert shown(box.load_session(tmp_path / "s"), "print(x)") == "21"


@pytest.mark.parametrize(
    "start",
    [
        "os.fork",
        "lambda: os.posix_spawn('/bin/true', ['true'], {})",
        "lambda: __import__('subprocess').Popen(['/bin/true']).pid",
        "lambda: __import__('multiprocessing').get_context('fork').Process(target=int).start() or 1",
    ],
)
@pytest.mark.one_case
def test_no_cell_starts_a_process(session: Session, start: str) -> None:
    shown(session, FORK)
    assert shown(session, f"print(attempt({start}))") == "Operation not permitted"
    assert shown(session, f"print(attempt({start}))") == "Operation not permitted"


def test_a_thread_that_forks_all_the_time_gets_no_process_between_cells(session: Session) -> None:
    shown(
        session,
        FORK
        + """
import threading
seen, over = set(), threading.Event()
def go():
    while not over.is_set():
        seen.add(attempt(os.fork))
threads = [threading.Thread(target=go, daemon=True) for _ in range(4)]
for thread in threads: thread.start()
""",
    )
    for number in range(5):
        shown(session, f"x = {number}")
    assert shown(session, "over.set()\nfor t in threads: t.join()\nprint(seen, x)") == "{'Operation not permitted'} 4"
    assert all(node.alive for node in session.history()[-4:])


def test_a_fork_that_we_ordered_is_allowed_once_even_to_a_session_that_turned_it(session: Session) -> None:
    turned = """
import sys, os
from sandbox_guest.session import sleeping_fork
real = sleeping_fork._fork
count = []
def twice():
    for _ in range(3):
        pid = real()
        if pid < 0:
            count.append(os.strerror(sleeping_fork._errno()))
        else:
            if pid == 0: return 0
            count.append('child'); last = pid
    return last
sleeping_fork._fork = twice
"""
    result = session.run(turned)
    assert result.ok, result
    assert (
        shown(session, "sleeping_fork._fork = real; print(count)")
        == "['child', 'Operation not permitted', 'Operation not permitted']"
    )
