"""Applications that were interrupted: only our own are taken back, and nothing in the folder stops its use for good."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel import ExecutionFailed, Sandbox
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.selection import STAGE_PREFIX
from tests.workspace.overlay.test_apply import KILLED, state


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the journals, of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/sandbox-kernel/applying"


def killed_at(project: Path, rename: int) -> str:
    """Kill an application before one of its renames; returns the name of its stage."""
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(project), str(rename)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "here"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    (stage,) = (name for name in os.listdir(project) if name.startswith(STAGE_PREFIX))
    return stage


def strange_stage(project: Path) -> Path:
    stage = project / f"{STAGE_PREFIX}000000000000"
    stage.mkdir()
    journal = [[".git/hooks/post-checkout", "gone", 0, 0], [".vscode", "gone", 0, 0]]
    (stage / "journal").write_text(json.dumps(journal))
    (stage / "old0").write_text("#!/bin/sh\n")
    (stage / "old1").mkdir()
    (project / ".git/hooks").mkdir(parents=True)
    return stage


def test_a_stage_that_came_with_the_folder_is_not_believed(project: Path) -> None:
    strange_stage(project)
    before = state(project)
    with Sandbox(here=project) as box:
        result = box.run("import os; print(sorted(os.listdir('.')))")
        assert STAGE_PREFIX not in result.stdout
        assert [note for note in result.notes if STAGE_PREFIX in note], result.notes
        box.write_file("ok.txt", "fine")
        assert [change.path for change in box.apply()] == ["ok.txt"]
    (project / "ok.txt").unlink()
    assert state(project) == before


@pytest.mark.parametrize("journal", ["no json", "{}", '[["a", "gone", 0]]', '[["link", "gone", 0, 0]]', "FIFO", "GONE"])
def test_a_strange_stage_does_not_make_the_folder_unusable(project: Path, journal: str) -> None:
    stage = strange_stage(project)
    (stage / "journal").unlink()
    if journal == "FIFO":
        os.mkfifo(stage / "journal")
    elif journal == "GONE":
        (project / f"{STAGE_PREFIX}file").write_text("not a folder")
    else:
        (stage / "journal").write_text(journal)
    here = HereFolder(project)
    here.write("a.txt", "x")
    here.apply()
    assert (project / "a.txt").read_text() == "x" and stage.exists()


def test_a_folder_that_was_copied_with_a_stage_is_not_taken_back(project: Path, tmp_path: Path) -> None:
    killed_at(project, 3)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(project), str(copy)], check=True)
    before = state(copy)
    HereFolder(copy)
    assert state(copy) == before
    HereFolder(project)
    assert (project / "src/tool.py").exists() and not list(project.glob(f"{STAGE_PREFIX}*"))


def test_a_damaged_journal_is_told_once_and_does_not_block_the_folder(project: Path, records: Path) -> None:
    stage = killed_at(project, 3)
    (records / stage.removeprefix(STAGE_PREFIX) / "journal").write_text("{")
    with pytest.raises(ExecutionFailed, match="journal is damaged"):
        HereFolder(project)
    assert (project / stage).exists()
    here = HereFolder(project)
    here.write("a.txt", "x")
    here.apply()
    assert (project / "a.txt").read_text() == "x" and (project / stage).exists()


def test_a_file_that_the_user_made_anew_after_a_crash_stays_and_does_not_block_the_folder(project: Path) -> None:
    before = state(project)
    stage = killed_at(project, 4)
    gone = next(path for path in ("src/tool.py", "data/more.csv") if not (project / path).exists())
    (project / gone).parent.mkdir(exist_ok=True)
    (project / gone).write_text("made anew\n")
    with pytest.raises(ExecutionFailed, match="the versions of before are in"):
        HereFolder(project)
    assert (project / gone).read_text() == "made anew\n"
    assert any((project / stage).iterdir())
    HereFolder(project)
    now = state(project)
    changed = {path for path in before if before[path] != now.get(path)}
    assert changed == {gone}


def test_an_edit_after_a_crash_is_kept(project: Path) -> None:
    killed_at(project, 6)
    edited = next(path for path in ("data/rows.csv", "run.sh") if (project / path).read_text() in ("changed", "other"))
    with open(project / edited, "a") as file:
        file.write("an hour of work\n")
    with pytest.raises(ExecutionFailed):
        HereFolder(project)
    assert (project / edited).read_text().endswith("an hour of work\n")


def test_an_apply_without_a_private_place_writes_nothing(project: Path, records: Path) -> None:
    records.parent.mkdir(parents=True)
    records.write_text("in the way")
    here = HereFolder(project)
    here.write("a.txt", "x")
    with pytest.raises(ExecutionFailed, match="XDG_STATE_HOME"):
        here.apply()
    assert not (project / "a.txt").exists() and not list(project.glob(f"{STAGE_PREFIX}*"))
