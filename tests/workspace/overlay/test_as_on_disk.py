"""Cells see the user's folder as it is on disk, whatever they looked at before; what they change is based on that."""

import os
from pathlib import Path

import pytest

from sandbox_kernel import Conflict, InvalidRequest, Sandbox
from sandbox_kernel.session.session import Session
from sandbox_kernel.workspace.overlay import session_layer


def save(path: Path, text: str) -> None:
    """Save as editors do: a new file, renamed over the old one."""
    path.with_name("draft~").write_text(text)
    os.rename(path.with_name("draft~"), path)


def read(session: Session, path: str) -> str:
    result = session.run(f"print(open({path!r}).read(), end='')")
    assert result.ok, result.stderr
    return result.stdout


def test_a_save_between_two_cells_is_seen_and_not_overwritten(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        assert read(session, "data/rows.csv") == "a,b\n1,2\n"
        save(project / "data/rows.csv", "an hour of work\n")
        assert read(session, "data/rows.csv") == "an hour of work\n"
        session.run("with open('data/rows.csv', 'a') as file: file.write('one line\\n')")
        box.apply()
    assert (project / "data/rows.csv").read_text() == "an hour of work\none line\n"


def test_a_file_that_the_session_holds_open_does_not_hide_the_save_over_it(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        session.run("held = open('data/rows.csv')")
        save(project / "data/rows.csv", "an hour of work\n")
        assert read(session, "data/rows.csv") == "an hour of work\n"
        assert session.run("print(held.read().split())").stdout == "['a,b', '1,2']\n"
        session.run("with open('data/rows.csv', 'a') as file: file.write('one line\\n')")
        assert [change.path for change in box.diff()] == ["data/rows.csv"]
        box.apply()
    assert (project / "data/rows.csv").read_text() == "an hour of work\none line\n"


def test_a_file_that_comes_after_a_cell_has_looked_for_it_is_found(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        assert not session.run("open('sales.csv')").ok
        assert not session.run("open('new/sales.csv')").ok
        (project / "sales.csv").write_text("1\n")
        (project / "new").mkdir()
        (project / "new/sales.csv").write_text("2\n")
        assert read(session, "sales.csv") == "1\n" and read(session, "new/sales.csv") == "2\n"
        (project / "sales.csv").unlink()
        assert not session.run("open('sales.csv')").ok
        assert box.diff() == ()


def test_a_save_after_apply_or_discard_is_seen_and_not_overwritten(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        session.run("for p in ('data/rows.csv', 'data/more.csv'): open(p, 'w').write('of the program\\n')")
        box.apply(["data/rows.csv"])
        box.discard(["data/more.csv"])
        assert read(session, "data/rows.csv") == "of the program\n" and read(session, "data/more.csv") == "a,b\n3,4\n"
        for name in ("rows", "more"):
            save(project / f"data/{name}.csv", f"later work on {name}\n")
        assert read(session, "data/rows.csv") == "later work on rows\n"
        session.run("with open('data/more.csv', 'a') as file: file.write('one line\\n')")
        box.apply()
        (project / "data/rows.csv").unlink()
        assert not session.run("open('data/rows.csv')").ok
        assert box.diff() == ()
    assert (project / "data/more.csv").read_text() == "later work on more\none line\n"


def test_a_file_put_into_a_folder_that_a_cell_has_made_is_found(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        session.run("import os; os.mkdir('out'); open('out/a.txt', 'w').write('a\\n')")
        box.apply()
        assert read(session, "out/a.txt") == "a\n"
        (project / "out/b.txt").write_text("b\n")
        (project / "out/.env").write_text("SECRET\n")
        assert read(session, "out/b.txt") == "b\n"
        result = session.run("print(os.path.exists('out/.env'), sorted(os.listdir('out')))")
        assert result.stdout == "False ['a.txt', 'b.txt']\n"
        assert box.diff() == ()


def test_a_host_that_cannot_renew_overwrites_no_save(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_layer.SessionLayer, "renew", lambda _: False)
    with Sandbox(here=project) as box, box.session() as session:
        read(session, "data/rows.csv")
        save(project / "data/rows.csv", "an hour of work\n")
        result = session.run("with open('data/rows.csv', 'a') as file: file.write('one line\\n')")
        if result.here == "layer":
            with pytest.raises(Conflict):
                box.apply()
            assert (project / "data/rows.csv").read_text() == "an hour of work\n"


WRITES_LATER = """
import os, threading
open('a.py', 'w').write('v2')
def late():
    done.wait()
    open('late.bin', 'w').write('result')
done = threading.Event()
threading.Thread(target=late).start()
threading.Timer(0.2, done.set).start()
"""


def test_what_was_written_between_two_cells_is_kept_after_an_apply(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        assert session.run(WRITES_LATER).ok
        # Until it is written, these reads of the host put nothing in; what was applied is put in before the next cell.
        while "late.bin" not in [entry.name for entry in session.list_dir(".")]:
            pass
        box.apply(["a.py"])
        seen = session.run("print(sorted(os.listdir('.')))")
        assert "late.bin" in [change.path for change in seen.changes]
        assert [change.path for change in box.diff()] == ["late.bin"]


def test_a_folder_at_the_same_path_is_not_taken_for_the_old_one(project: Path) -> None:
    with Sandbox(here=project) as box:
        for _ in range(3):
            assert box.run("print(open('data/rows.csv').read())").ok
        project.rename(project.with_name("old"))
        (project / "data").mkdir(parents=True)
        (project / "data/rows.csv").write_text("new\n")
        with pytest.raises(InvalidRequest, match="another folder now"):
            box.run("pass")
        with Sandbox(here=project) as other:
            other.backend = box.backend
            for _ in range(3):
                assert other.run("print(open('data/rows.csv').read())").stdout == "new\n\n"
