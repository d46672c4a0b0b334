"""A session that uses an accelerator: it says so once, makes no checkpoints any more, and goes back to before that.

The device is made up: the worker is told that an open /dev/zero is one. ``tests/jail/test_gpu.py`` has a real one.
"""

from collections.abc import Callable

import pytest

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import NoteKind, Status
from sandbox_kernel.session.session import Session

Value = Callable[[Session, str], str]

USE_IT = """
import os
from sandbox_guest.session import freeze
freeze._DEVICES = {os.stat('/dev/zero').st_rdev}
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
    assert NoteKind.ROLLED_BACK_FURTHER in kinds(result)
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


def test_a_rollback_names_the_cells_that_it_lost(session: Session) -> None:
    session.run("kept = 1", number=7)
    session.run(USE_IT, number=8)
    session.run("later = 1", number=9)
    result = session.run("import os; os.kill(os.getpid(), 9)", number=10)
    lost = [note for note in result.notes if note.kind is NoteKind.LOST_ON_GPU]
    assert len(lost) == 1
    assert "[9]: later = 1, [8]:" in lost[0]


def test_a_named_state_is_copied_and_a_checkout_loads_it(session: Session, value: Value) -> None:
    session.run("kept, gone = 1, 2")
    session.run(USE_IT)
    session.run("del gone; shared = [1]; pair = (shared, shared)")
    session.checkpoint("good")
    session.run("kept = 'spoilt'; extra = 1")
    moved = session.checkout("good")
    assert NoteKind.COPY_LOADED in kinds(moved)
    assert value(session, "kept, on_card, pair[0] is pair[1], 'extra' in globals(), 'gone' in globals()") == (
        "(1, 1, True, False, False)"
    )


def test_a_rollback_goes_to_the_newest_copy(session: Session, value: Value) -> None:
    session.run(USE_IT)
    session.run("step = 1")
    session.checkpoint("one")
    session.run("step = 2")
    result = session.run("import os; os.kill(os.getpid(), 9)")
    assert result.rolled_back
    loaded = next(note for note in result.notes if note.kind is NoteKind.COPY_LOADED)
    assert "; 1 cell after it must be run again; not in it: card (" in loaded
    assert value(session, "step, on_card") == "(1, 1)"


def test_a_session_without_a_gpu_copies_nothing(session: Session) -> None:
    session.run("x = 1")
    session.checkpoint("plain")
    assert len(session._copies) == 0  # type: ignore[attr-defined]
