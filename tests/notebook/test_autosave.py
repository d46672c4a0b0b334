"""Where autosave keeps states: per notebook, bounded, and a new kernel destroys nothing of the one before."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.model import Language, NoteKind
from sandbox_kernel.notebook.autosave import Autosaver, Key, notebook_path
from sandbox_kernel.util import own_folder


def save(kept: Autosaver, text: str, name: str = "") -> str:
    path = kept.place(Language.PYTHON, name)
    Path(path).write_text(text)
    kept.close()
    return path


def left(kept: Autosaver) -> list[tuple[str, str]]:
    return [(state.name, Path(state.path).read_text()) for state in kept.left_behind()]


def test_a_kernel_finds_what_the_one_before_left_and_not_what_it_saved_itself(tmp_path: Path) -> None:
    first = Autosaver(dict, "a.ipynb", str(tmp_path))
    save(first, "one"), save(first, "two"), save(first, "named", "work.1-a")
    assert left(first) == []
    second = Autosaver(dict, "a.ipynb", str(tmp_path))
    assert left(second) == [("", "two"), ("work.1-a", "named")]
    save(second, "empty")
    assert left(second) == [("", "two"), ("work.1-a", "named")]
    assert left(Autosaver(dict, "a.ipynb", str(tmp_path))) == [("", "empty")]
    assert left(Autosaver(dict, "b.ipynb", str(tmp_path))) == []


def test_half_a_file_and_a_foreign_file_are_no_states(tmp_path: Path) -> None:
    kept = Autosaver(dict, "a.ipynb", str(tmp_path))
    folder = Path(save(kept, "whole")).parent
    (folder / "python.0123456789abcdef.part").write_text("half")
    (folder / "cobol").write_text("?")
    (folder / "bash").mkdir()
    assert left(Autosaver(dict, "a.ipynb", str(tmp_path))) == [("", "whole")]


def test_a_session_whose_name_ends_like_half_a_file_is_offered(tmp_path: Path) -> None:
    save(Autosaver(dict, "a.ipynb", str(tmp_path)), "whole", "my.part")
    assert left(Autosaver(dict, "a.ipynb", str(tmp_path))) == [("my.part", "whole")]


def test_a_save_that_fails_leaves_what_the_kernel_before_had_saved(tmp_path: Path) -> None:
    save(Autosaver(dict, "a.ipynb", str(tmp_path)), "one")
    second = Autosaver(dict, "a.ipynb", str(tmp_path))
    second.place(Language.PYTHON, "")  # and then the disk is full
    second.close()
    assert left(second) == [("", "one")]
    third = Autosaver(dict, "a.ipynb", str(tmp_path))
    assert left(third) == [("", "one")]
    third.place(Language.PYTHON, "")
    third.close()
    assert left(Autosaver(dict, "a.ipynb", str(tmp_path))) == [("", "one")]


def test_two_kernels_of_one_notebook_do_not_replace_what_the_other_has_saved(tmp_path: Path) -> None:
    code = (
        "import sys; from sandbox_kernel.notebook.autosave import Autosaver\n"
        "Autosaver(dict, 'a.ipynb', sys.argv[1]).check(); print('claimed', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(SessionError, match="another kernel of this notebook"):
            Autosaver(dict, "a.ipynb", str(tmp_path)).check()
        Autosaver(dict, "b.ipynb", str(tmp_path)).check()
        other.kill()
    kept = Autosaver(dict, "a.ipynb", str(tmp_path))
    kept.check()
    kept.forget()
    kept.check()


def test_only_the_user_can_read_the_states(tmp_path: Path) -> None:
    path = Path(save(Autosaver(dict, "a.ipynb", str(tmp_path / "own")), "x"))
    assert [place.stat().st_mode & 0o77 for place in (path.parent, path.parent.parent)] == [0, 0]


def test_the_oldest_notebooks_go_first_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_folder, "MOST_KEPT", 2)
    for age, name in enumerate(("c", "b")):
        folder = Path(save(Autosaver(dict, name, str(tmp_path)), name)).parents[1]
        os.utime(folder, (1000 - age, 1000 - age))
    save(Autosaver(dict, "a", str(tmp_path)), "a")
    assert [left(Autosaver(dict, name, str(tmp_path))) for name in "abc"] == [[("", "a")], [], [("", "c")]]


def test_a_folder_that_others_can_change_is_refused_with_a_way_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SessionError, match="SANDBOX_KERNEL_CACHE"):
        Autosaver(dict, "a", str(tmp_path / "cache")).check()


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


def test_states_beyond_the_bound_are_not_kept_which_is_said(
    autosaver: Autosaver, session: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sandbox_kernel.notebook.autosave.MOST_BYTES", 1)
    autosaver.save()
    assert session.saves == 1 and autosaver.news() == ()
    session.cells = 10  # two bytes
    autosaver.save()
    (note,) = autosaver.news()
    assert "larger than" in note
    assert not [path for path in tmp_path.rglob("python*") if path.is_file()]


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
