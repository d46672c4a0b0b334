"""Files of a session that are too large to be shared: kept for its next kernel, bounded, never outdated."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.workspace import box_folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(box_folder, "MAX_SHARED_FILE", 100)
    monkeypatch.setattr(box_folder, "MOST_LARGE_BYTES", 1000)
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state" / "large"


def test_large_files_outlive_their_session(place: Path) -> None:
    with Sandbox() as box, box.session() as session:
        session.keep_large_files(str(place))
        assert session.run(
            "import os; os.mkdir('d'); open('d/a', 'w').write('a' * 300); open('b', 'w').write('b' * 300)"
        ).ok
        assert session.run("open('d/a', 'a').write('c'); os.rename('b', 'e'); open('small', 'w').write('s')").ok
    assert {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()} == {"d/a", "e"}
    with Sandbox() as box, box.session() as session:
        session.keep_large_files(str(place))
        seen = session.run("import os; print(len(open('d/a').read()), len(open('e').read()), os.path.exists('b'))")
        assert (seen.stdout, seen.changes) == ("301 300 False\n", ())
        session.run("os.remove('e'); open('d/a', 'w').write('small now')")
    assert not [path for path in place.rglob("*") if path.is_file()]


def test_an_old_version_does_not_pass_for_the_present_one(place: Path) -> None:
    with Sandbox() as box, box.session() as session:
        session.keep_large_files(str(place))
        assert session.run("open('a', 'w').write('a' * 300)").ok
        told = session.run("open('a', 'w').write('a' * 2000)")
        assert any("a (file) is lost when the kernel ends" in note for note in told.notes), told.notes
    assert list(place.iterdir()) == []


def test_undo_takes_a_kept_file_back_too(place: Path) -> None:
    with Sandbox() as box, box.session() as session:
        session.keep_large_files(str(place))
        session.run("open('a', 'w').write('a' * 300)")
        session.run("open('a', 'w').write('b' * 300)")
        session.undo()
        assert (place / "a").read_text() == "a" * 300
