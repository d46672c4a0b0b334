"""Every way in which a cell can die, and that the session is then exactly as it was before that cell."""

from collections.abc import Callable

import pytest

from sandbox_kernel.model import ExecResult, Status
from sandbox_kernel.session.session import Session

Value = Callable[[Session, str], str]


def rolled_back(result: ExecResult, status: Status) -> ExecResult:
    assert (result.status, result.rolled_back) == (status, True), (result.notes, result.stderr)
    return result


DEATHS = {
    "timeout": ("while True: pass", Status.TIMEOUT, "timeout"),
    "memory": ("hog = bytearray(2 << 30)", Status.MEMORY_EXCEEDED, "memory"),
    "exit": ("import os; os._exit(3)", Status.KILLED, None),
    "kill": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Status.KILLED, None),
    "segfault": ("import ctypes; ctypes.string_at(0)", Status.KILLED, None),
    "abort": ("import os; os.abort()", Status.KILLED, None),
    "exec": ("import os; os.execv('/bin/true', ['true'])", Status.KILLED, None),
    "group": ("import os, signal; os.killpg(0, signal.SIGKILL)", Status.KILLED, None),
    "closed": ("import os; os.closerange(3, 256)", Status.KILLED, None),
}


@pytest.mark.attack("K07", "session")
def test_a_cell_that_dies_leaves_the_session_as_it_was(session: Session, value: Value) -> None:
    session.run("kept = [1, 2, 3]; import collections as c")
    for death, (code, status, limit) in DEATHS.items():
        timeout = 2 if death == "timeout" else 30
        result = session.run(f"kept.append(4); gone = 1; print('said')\n{code}", timeout=timeout)
        assert result.stdout == "said\n", death
        assert rolled_back(result, status).limit == limit, death
        assert "rolled back to the state before this cell; 2 variables kept" in result.notes, death
        assert value(session, "kept, c.__name__, 'gone' in globals()") == "([1, 2, 3], 'collections', False)", death


def test_an_exception_keeps_what_the_cell_had_done(session: Session, value: Value) -> None:
    result = session.run("x = 1\nraise ValueError('no')")
    assert (result.status, result.rolled_back) == (Status.FAILED, False)
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("ValueError", "no")
    assert "Cell In[1], line 2" in result.stderr
    assert value(session, "x") == "1"


def test_a_thread_that_computes_all_the_time_does_not_keep_a_state_from_coming_back(
    session: Session, value: Value
) -> None:
    session.run(
        "import threading\ndef burn():\n    while True: pass\nthreading.Thread(target=burn, daemon=True).start()"
    )
    session.run("x = 1")
    assert session.run("x = 2; import os; os._exit(1)").rolled_back
    assert value(session, "x") == "1"
