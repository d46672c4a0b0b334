"""A session that uses an accelerator: it says so once, makes no checkpoints any more, and goes back to before that.

The device is made up: the worker is told that an open /dev/zero is one. ``tests/jail/test_gpu.py`` has a real one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import NoteKind, Status
from sandbox_kernel.session.session import Session

Value = Callable[[Session, str], str]

USE_IT = """
import os
from sandbox_guest.session import accelerator
accelerator._DEVICES = {os.stat('/dev/zero').st_rdev}
card = open('/dev/zero')
on_card = 1
"""


def kinds(result: object) -> list[NoteKind]:
    return [note.kind for note in result.notes]  # type: ignore[attr-defined]


def test_the_cell_that_begins_to_use_it_says_what_that_means_and_later_ones_do_not(session: Session) -> None:
    assert kinds(session.run("x = 1")) == []
    assert kinds(session.run(USE_IT)) == [NoteKind.STATE_ON_GPU]
    assert kinds(session.run("y = 2")) == []


def test_a_cell_that_must_be_ended_takes_the_session_back_to_before_the_gpu(session: Session, value: Value) -> None:
    session.run("kept = 1")
    session.run(USE_IT)
    session.run("later = 1")
    result = session.run("import os; os.kill(os.getpid(), 9)")
    assert (result.status, result.rolled_back) == (Status.KILLED, True)
    assert NoteKind.ROLLED_BACK in kinds(result)
    assert value(session, "kept, 'on_card' in globals(), 'later' in globals()") == "(1, False, False)"
    assert session.run("kept += 1").ok
    session.undo()
    assert value(session, "kept") == "1"


def test_an_undo_across_it_says_what_is_possible(session: Session) -> None:
    session.run("x = 1")
    session.run(USE_IT)
    session.run("x = 2")
    with pytest.raises(SandboxError):
        session.undo()
    assert session.run("x").displays[-1].data["text/plain"] == "2"
