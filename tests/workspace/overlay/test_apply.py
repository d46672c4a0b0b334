"""Applying: all or nothing, only over what a change is based on, never through a link, and put back after a crash."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel import Conflict, InvalidRequest, NotAsShown, Sandbox
from sandbox_kernel.workspace.overlay import apply as applying
from sandbox_kernel.workspace.overlay.apply import recover_all
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.selection import STAGE_PREFIX
from sandbox_kernel.workspace.tree.rooted import Rooted


def state(folder: Path) -> dict[str, object]:
    """Everything in a folder: type, mode and content of each path."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        data = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (oct(info.st_mode), data)
    return found


def change_much(here: HereFolder) -> None:
    here.write("data/rows.csv", "changed\n")
    here.write("src/new/deep.py", "x = 1\n")
    here.remove("data/more.csv")
    here.remove("link")


def test_an_application_is_done_as_a_whole(project: Path) -> None:
    here = HereFolder(project)
    change_much(here)
    here.write("run.sh", "#!/bin/sh\necho other\n")
    told = here.apply([".", *here.left_out()])
    assert ("run.sh", "modified") in [(change.path, change.kind) for change in told] and here.diff() == ()
    assert (project / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (project / "data/rows.csv").read_text() == "changed\n"
    assert (project / "src/new/deep.py").read_text() == "x = 1\n"
    assert not (project / "data/more.csv").exists() and not (project / "link").is_symlink()
    assert not [name for name in os.listdir(project) if name.startswith(STAGE_PREFIX)]


def test_a_file_that_the_user_changed_is_not_overwritten(project: Path) -> None:
    here = HereFolder(project)
    change_much(here)
    (project / "data/rows.csv").write_text("mine\n")
    before = state(project)
    with pytest.raises(Conflict, match=r"data/rows\.csv") as caught:
        here.apply()
    assert caught.value.paths == ("data/rows.csv",)
    assert state(project) == before
    assert len(here.diff()) == 5


def test_a_file_that_the_user_made_is_not_overwritten(project: Path) -> None:
    here = HereFolder(project)
    here.write("new.txt", "of the program")
    (project / "new.txt").write_text("of the user")
    with pytest.raises(Conflict):
        here.apply()
    assert (project / "new.txt").read_text() == "of the user"


def test_a_change_that_comes_between_look_and_rename_is_not_overwritten(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = HereFolder(project)
    change_much(here)
    write_journal = applying._Apply._write_journal

    def edited(self: applying._Apply) -> None:
        write_journal(self)
        (project / "data/rows.csv").write_text("in the last moment\n")

    monkeypatch.setattr(applying._Apply, "_write_journal", edited)
    with pytest.raises(Conflict):
        here.apply()
    assert (project / "data/rows.csv").read_text() == "in the last moment\n"
    assert (project / "data/more.csv").exists() and (project / "link").is_symlink()
    assert not (project / "src/new").exists()


def test_a_link_in_the_way_leads_nowhere_outside(project: Path, tmp_path: Path) -> None:
    here = HereFolder(project)
    here.write("data/rows.csv", "changed\n")
    outside = tmp_path / "outside"
    (project / "data").rename(outside)
    (project / "data").symlink_to(outside)
    with pytest.raises(Conflict):
        here.apply()
    assert (outside / "rows.csv").read_text() == "a,b\n1,2\n"


def test_a_chosen_file_takes_no_others_along(project: Path) -> None:
    here = HereFolder(project)
    change_much(here)
    assert [change.path for change in here.apply(["data/rows.csv"])] == ["data/rows.csv"]
    assert (project / "data/more.csv").exists()
    assert [change.path for change in here.discard(["data"])] == ["data/more.csv"]
    with pytest.raises(InvalidRequest, match="nothing changed"):
        here.apply(["nowhere"])


def test_a_journal_of_a_program_is_not_believed(project: Path) -> None:
    here = HereFolder(project)
    here.write(f"{STAGE_PREFIX}evil/journal", '[["run.sh", "file", 1, 0]]')
    assert here.apply() == ()
    with pytest.raises(InvalidRequest, match="never applied"):
        here.apply([f"{STAGE_PREFIX}evil"])


KILLED = """
import os, sys, time
from sandbox_kernel.workspace.overlay import apply as applying
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
project, stop_at = sys.argv[1], int(sys.argv[2])
here = HereFolder(project)
here.write("data/rows.csv", "changed")
here.write("a/new", "n")
here.remove("data/more.csv")

here.remove("src")
here.write("run.sh", "other")
calls = 0
real = applying.rename
def rename(*given, **more):
    global calls
    if calls == stop_at:
        print("here", flush=True)
        time.sleep(60)
    calls += 1
    real(*given, **more)
applying.rename = rename
here.apply([".", *here.left_out()])
print("done", flush=True)
"""


@pytest.mark.parametrize("stop_at", range(7))
def test_an_application_that_was_killed_is_finished_or_taken_back(project: Path, stop_at: int) -> None:
    before = state(project)
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(project), str(stop_at)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said = child.stdout.readline().strip()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert said in ("here", "done")
    with Rooted.at(project) as root:
        assert recover_all(root) == (1 if said == "here" else 0)
    if said == "here":
        assert state(project) == before
    else:
        assert (project / "run.sh").read_text() == "other" and not (project / "src").exists()


def test_an_application_at_work_is_not_taken_for_a_dead_one(project: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(project), "2"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline().strip() == "here"
        with Rooted.at(project) as root:
            assert recover_all(root) == 0
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    HereFolder(project)  # the next use puts it back
    assert (project / "src/tool.py").exists()


def test_another_state_than_the_one_that_was_shown_is_refused(project: Path, tmp_path: Path) -> None:
    with Sandbox() as box:
        box.work_on(project, keep_in=str(tmp_path / "kept"))
        box.write_file("a.txt", "harmless")
        shown = box.digest()
        assert box.digest() == shown
        box.write_file("a.txt", "evil....")  # of the same size
        with pytest.raises(NotAsShown):
            box.apply(shown=shown)
        assert not (project / "a.txt").exists() and [change.path for change in box.diff()] == ["a.txt"]
        shown = box.digest()
    # The next kernel has the same changes.
    with Sandbox() as box:
        box.work_on(project, keep_in=str(tmp_path / "kept"))
        assert [change.path for change in box.apply(shown=shown)] == ["a.txt"]
        with pytest.raises(NotAsShown):
            box.apply(shown=shown)
