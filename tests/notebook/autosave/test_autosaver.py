"""When states are saved by themselves, and what the next reply says about it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.model import Language, NoteKind
from sandbox_kernel.notebook.autosave import Autosaver, Key, notebook_path

KEY: Key = (Language.PYTHON, "")


class Kept:
    """A session that writes the number of its cells."""

    def __init__(self) -> None:
        self.cells = 1
        self.saves = 0
        self.broken = ""
        self.saved = threading.Event()

    @property
    def present_state(self) -> tuple[str, int]:
        return "life", self.cells

    def save(self, path: str) -> None:
        if self.broken:
            raise SessionError(self.broken)
        self.saves += 1
        Path(path).write_text(str(self.cells))
        self.saved.set()


@pytest.fixture
def session() -> Kept:
    return Kept()


@pytest.fixture
def autosaver(session: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Autosaver:
    monkeypatch.setenv("SANDBOX_KERNEL_CACHE", str(tmp_path))
    return Autosaver(lambda: {KEY: session}, "a.ipynb")


def test_it_saves_again_only_after_a_cell(autosaver: Autosaver, session: Kept) -> None:
    autosaver.save()
    autosaver.save()
    assert session.saves == 1
    session.cells += 1
    autosaver.save()
    assert session.saves == 2


@pytest.mark.slow
def test_it_saves_by_itself_and_no_more_when_it_is_off(autosaver: Autosaver, session: Kept) -> None:
    autosaver.switch_on(1)
    assert session.saved.wait(60)
    autosaver.switch_off()
    session.cells += 1
    autosaver.finish()
    assert session.saves == 1


def test_an_orderly_end_saves_once_more_when_it_is_on(autosaver: Autosaver, session: Kept) -> None:
    autosaver.finish()
    assert session.saves == 0
    autosaver.switch_on(3600)
    autosaver.finish()
    assert session.saves == 1


def test_a_session_that_cannot_be_saved_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_KERNEL_CACHE", str(tmp_path))
    autosaver = Autosaver(lambda: {KEY: object()}, "a.ipynb")
    autosaver.save()
    assert not autosaver.news()


def test_what_could_not_be_saved_is_said_once_and_tried_again(autosaver: Autosaver, session: Kept) -> None:
    session.broken = "the disk is full"
    autosaver.save()
    autosaver.save()
    (note,) = autosaver.news()
    assert note.kind is NoteKind.NOT_AUTOSAVED and "the disk is full" in note
    assert autosaver.news() == ()
    session.broken = ""
    autosaver.save()
    assert session.saves == 1


def test_the_state_of_an_earlier_kernel_is_offered_once(autosaver: Autosaver, session: Kept) -> None:
    assert autosaver.news() == ()
    autosaver.save()
    assert autosaver.news() == (), "its own state is no news"
    later = Autosaver(dict, "a.ipynb")
    (note,) = later.news()
    assert note.kind is NoteKind.STATE_OFFERED and "%sandbox recover" in note
    assert later.news() == ()


def test_forgotten_states_are_offered_to_nobody(autosaver: Autosaver, session: Kept) -> None:
    autosaver.save()
    autosaver.forget()
    assert Autosaver(dict, "a.ipynb").news() == ()
    autosaver.save()
    assert session.saves == 2


def test_a_kernel_without_a_notebook_says_what_to_do_instead() -> None:
    autosaver = Autosaver(dict, notebook_path({}))
    with pytest.raises(InvalidRequest, match="%sandbox save NAME"):
        autosaver.switch_on()
    assert autosaver.news() == ()
    assert notebook_path({"JPY_SESSION_NAME": "/a/b.ipynb"}) == "/a/b.ipynb"
