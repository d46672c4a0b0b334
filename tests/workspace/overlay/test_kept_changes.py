"""What is kept of a program's changes: neither lost with something else, nor left after an undo."""

import os
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox
from sandbox_kernel.workspace import hidden
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder


@pytest.mark.parametrize("asked", ["apply", "discard"])
def test_the_other_files_of_a_new_folder_are_kept(project: Path, asked: str) -> None:
    here = HereFolder(project)
    here.write("out/a.csv", "a")
    here.write("out/b.csv", "hours of computing")
    getattr(here, asked)(["out/a.csv"])
    assert here.holding("out/b.csv").read("out/b.csv") == b"hours of computing"
    here.apply()
    assert (project / "out/b.csv").read_text() == "hours of computing"
    assert (project / "out/a.csv").exists() == (asked == "apply")


def test_the_files_of_a_folder_are_kept_when_its_mode_changes_back(project: Path) -> None:
    (project / "data").chmod(0o755)
    with Sandbox(here=project) as box:
        box.run("import os; os.chmod('data', 0o700); open('data/rows.csv', 'w').write('hours of computing')")
        box.run("import os; os.chmod('data', 0o755)")
        assert box.read_file("data/rows.csv") == b"hours of computing"
        assert [change.path for change in box.apply()] == ["data/rows.csv"]


@pytest.mark.parametrize("made", ["open('data', 'w').write('hours of computing')", "os.symlink('src', 'data')"])
@pytest.mark.one_case
def test_a_file_in_the_place_of_a_folder_with_earlier_changes_is_kept(box: Sandbox, project: Path, made: str) -> None:
    with box.session() as session:
        session.run("import os, shutil; os.mkdir('data/sub'); open('data/sub/new.csv', 'w').write('1')")
        session.run("open('data/rows.csv', 'w').write('2')")
        session.run("shutil.rmtree('data')")
        result = session.run(made)
        assert not result.notes and {change.path: change.kind for change in box.diff()}["data"] == "modified"
        session.undo(3)
        session.redo(3)
    box.apply(["data"])
    assert not (project / "data").is_dir() or (project / "data").is_symlink()


def test_the_host_writes_a_file_in_the_place_of_a_folder_with_earlier_changes(project: Path) -> None:
    here = HereFolder(project)
    here.write("data/rows.csv", "2")
    here.remove("data")
    here.write("data", "a file now")
    here.apply(["data"])
    assert (project / "data").read_text() == "a file now"


def test_undo_brings_back_a_large_file_of_the_user_that_was_changed_removed_or_replaced(project: Path) -> None:
    large = 70 << 20
    for name in ("changed", "removed", "replaced"):
        with open(project / name, "wb") as file:
            file.truncate(large)
    look = "import os; print([os.stat(name).st_size for name in ('changed', 'removed', 'replaced')], sorted(os.listdir('data')))"
    with Sandbox(here=project) as box, box.session() as session:
        before = session.run(look).stdout
        change = "os.truncate('changed', 5); os.remove('removed'); os.remove('replaced'); os.mkdir('replaced')"
        result = session.run(f"import os, shutil; {change}; shutil.rmtree('data')")
        assert result.ok, result.stderr
        back = session.undo()
        assert not [note for note in back.notes if "not all files" in str(note)]
        assert session.run(look).stdout == before and before.count(str(large)) == 3
        assert box.diff() == ()


def test_undo_brings_back_folders_and_links(box: Sandbox, project: Path) -> None:
    (project / "empty").mkdir()
    with box.session() as session:
        session.run("import os, shutil")
        session.run("shutil.rmtree('src'); os.rmdir('empty'); os.unlink('link'); os.symlink('data', 'link')")
        assert {change.path for change in box.diff()} == {"src", "src/tool.py", "empty", "link"}
        session.undo()
        assert box.diff() == () and box.apply() == ()
        assert session.run("print(os.readlink('link'), os.listdir('src'))").stdout == "run.sh ['tool.py']\n"
    assert (project / "empty").is_dir() and os.readlink(project / "link") == "run.sh"


def test_keeping_a_file_does_not_look_at_all_the_others(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = HereFolder(project)
    for number in range(50):
        here.write(f"made/{number}", "x" * number)
    kept = here.kept
    assert kept._held == sum(range(50))
    here.write("made/49", "")
    here.discard(["made/48"])
    assert kept._held == sum(range(48))


def test_a_folder_with_too_many_files_to_look_for_secrets_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden, "MOST_ENTRIES", 3)
    with Sandbox(here=project) as box, pytest.raises(InvalidRequest, match="name a smaller folder"):
        box.run("pass")
