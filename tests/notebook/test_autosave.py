"""Where autosave keeps states: per notebook, bounded, and a new kernel destroys nothing of the one before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.errors import SessionError
from sandbox_kernel.model import Language
from sandbox_kernel.notebook import autosave
from sandbox_kernel.notebook.autosave import KeptStates


def save(kept: KeptStates, text: str, name: str = "") -> str:
    path = kept.place(Language.PYTHON, name)
    Path(path).write_text(text)
    return path


def left(kept: KeptStates) -> list[tuple[str, str]]:
    return [(state.name, Path(state.path).read_text()) for state in kept.left_behind()]


def test_a_kernel_finds_what_the_one_before_left_and_not_what_it_saved_itself(tmp_path: Path) -> None:
    first = KeptStates("a.ipynb", str(tmp_path))
    save(first, "one"), save(first, "two"), save(first, "named", "work.1-a")
    assert left(first) == []
    second = KeptStates("a.ipynb", str(tmp_path))
    assert left(second) == [("", "two"), ("work.1-a", "named")]
    save(second, "empty")
    assert left(second) == [("", "two"), ("work.1-a", "named")]
    assert left(KeptStates("a.ipynb", str(tmp_path))) == [("", "empty")]
    assert left(KeptStates("b.ipynb", str(tmp_path))) == []


def test_half_a_file_and_a_foreign_file_are_no_states(tmp_path: Path) -> None:
    kept = KeptStates("a.ipynb", str(tmp_path))
    folder = Path(save(kept, "whole")).parent
    (folder / "python.0123456789abcdef.part").write_text("half")
    (folder / "cobol").write_text("?")
    (folder / "bash").mkdir()
    assert left(KeptStates("a.ipynb", str(tmp_path))) == [("", "whole")]


def test_a_session_whose_name_ends_like_half_a_file_is_offered(tmp_path: Path) -> None:
    save(KeptStates("a.ipynb", str(tmp_path)), "whole", "my.part")
    assert left(KeptStates("a.ipynb", str(tmp_path))) == [("my.part", "whole")]


def test_a_save_that_fails_leaves_what_the_kernel_before_had_saved(tmp_path: Path) -> None:
    save(KeptStates("a.ipynb", str(tmp_path)), "one")
    second = KeptStates("a.ipynb", str(tmp_path))
    second.place(Language.PYTHON, "")  # and then the disk is full
    assert left(second) == [("", "one")]
    third = KeptStates("a.ipynb", str(tmp_path))
    assert left(third) == [("", "one")]
    third.place(Language.PYTHON, "")
    assert left(KeptStates("a.ipynb", str(tmp_path))) == [("", "one")]


def test_two_kernels_of_one_notebook_do_not_replace_what_the_other_has_saved(tmp_path: Path) -> None:
    code = (
        "import sys; from sandbox_kernel.notebook.autosave import KeptStates\n"
        "KeptStates('a.ipynb', sys.argv[1]).check(); print('claimed', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(SessionError, match="another kernel of this notebook"):
            KeptStates("a.ipynb", str(tmp_path)).check()
        KeptStates("b.ipynb", str(tmp_path)).check()
        other.kill()
    kept = KeptStates("a.ipynb", str(tmp_path))
    kept.check()
    kept.forget()
    kept.check()


def test_only_the_user_can_read_the_states(tmp_path: Path) -> None:
    path = Path(save(KeptStates("a.ipynb", str(tmp_path / "own")), "x"))
    assert [place.stat().st_mode & 0o77 for place in (path.parent, path.parent.parent)] == [0, 0]


def test_the_oldest_notebooks_go_first_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autosave, "MOST_NOTEBOOKS", 2)
    for age, name in enumerate(("c", "b", "a")):
        path = save(KeptStates(name, str(tmp_path)), name)
        os.utime(path, (1000 - age, 1000 - age))
    assert KeptStates("a", str(tmp_path)).tidy()
    assert [left(KeptStates(name, str(tmp_path))) for name in "abc"] == [[("", "a")], [], [("", "c")]]


def test_a_state_that_alone_is_too_large_is_removed_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autosave, "MOST_BYTES", 3)
    save(KeptStates("old", str(tmp_path)), "abc")
    kept = KeptStates("new", str(tmp_path))
    save(kept, "abcd")
    assert not kept.tidy()
    assert not os.listdir(tmp_path)


def test_a_folder_that_others_can_change_is_refused_with_a_way_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SessionError, match="SANDBOX_KERNEL_CACHE"):
        KeptStates("a", str(tmp_path / "cache")).check()
