"""A saved session brings its whole work folder: modes, times, links and empty folders, also those of ``here``."""

import json
import os
import threading
from pathlib import Path

import pytest

from sandbox_kernel import Conflict, InvalidRequest, Sandbox, SandboxPolicy, SessionError
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.session import python_state, saved_file, take_state
from sandbox_kernel.session.session import Session
from sandbox_kernel.workspace.transfer import FolderState, folder_of, leads_out, put_folder, take_folder
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import Entry

MADE = """
import os
os.makedirs('empty/inner'); os.mkdir('closed', 0o700); open('run.sh', 'w').write('#!/bin/sh\\n'); os.chmod('run.sh', 0o4755)
open('closed/a', 'w').write('a'); os.symlink('closed/a', 'link'); os.symlink('../run.sh', 'closed/up')
os.symlink('/etc/passwd', 'out'); os.mkfifo('pipe'); os.link('run.sh', 'second'); open('a\\\\b', 'w').close()
os.utime('closed/a', (5, 5)); os.utime('empty', (7, 7))
"""
SEEN = """
def see(path):
    found = os.lstat(path)
    return path, oct(found.st_mode), int(found.st_mtime), os.readlink(path) if os.path.islink(path) else ''
print([see(path) for path in ('empty', 'empty/inner', 'closed', 'run.sh', 'closed/a', 'link', 'closed/up')])
"""


def printed(session: Session, code: str) -> str:
    result = session.run(code)
    assert result.ok, result.stderr
    return result.stdout


def test_no_name_of_a_file_keeps_a_session_from_being_loaded_again(tmp_path: Path) -> None:
    with Sandbox() as box:
        session = box.session()
        printed(session, "x = (n for n in range(3))")
        printed(session, "open('.sandbox-cells.json', 'w').write('{}')")
        session.save(tmp_path / "s")
        again = box.load_session(tmp_path / "s")
        assert printed(again, "print(open('.sandbox-cells.json').read(), list(x))") == "{} [0, 1, 2]\n"


def test_modes_times_links_and_empty_folders_are_in_a_saved_session(tmp_path: Path) -> None:
    with Sandbox(SandboxPolicy().allow_process_spawn()) as box, Sandbox(SandboxPolicy().allow_process_spawn()) as other:
        session = box.session()
        printed(session, MADE)
        report = session.save(tmp_path / "s")
        again = other.load_session(tmp_path / "s")
        expected = printed(session, SEEN).replace("0o104755", "0o100755")
        assert printed(again, SEEN) == expected, "set-user bits are dropped"
        assert set(report.files) == {"out", "pipe", "second", "a\\b"}
        assert again.restored == report
        assert "file out: the link leads out of the work folder" in str(report)
        assert "a fifo is not saved" in report.files["pipe"]
        assert report.files["second"] == "it and run.sh were one file, and are two files now"


def test_behind_landlock_a_loaded_session_has_its_changes_to_the_folder_of_the_user(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("gone.txt", "changed.txt"):
        (project / name).write_text(name)
    changed = {("changed.txt", "modified"), ("gone.txt", "deleted"), ("new", "created")}
    for cell in (
        "import os; os.remove('gone.txt'); open('changed.txt', 'a').write('!'); open('new', 'w').write('n')",
        "",
    ):
        with Sandbox(here=project) as box:
            box.backend = ProcessBackend(enforcer="landlock", policy=box.policy)
            session = box.session() if cell else box.load_session(tmp_path / "s")
            result = session.run(cell or "print(sorted(os.listdir()), open('changed.txt').read())")
            assert result.ok and "copy" in str(result.notes), result.stderr
            assert {(change.path, change.kind) for change in box.diff()} == changed
            session.save(tmp_path / "s")
    assert result.stdout == "['changed.txt', 'new'] changed.txt!\n"


LINK = "; os.mkdir('other'); open('other/a.csv', 'w').write('mine'); os.symlink('other', 'data')"


@pytest.mark.parametrize("then", ["", "; open('data', 'w').write('a file now')", "; os.mkdir('data')", LINK])
@pytest.mark.one_case
def test_a_session_that_has_removed_a_folder_of_the_user_is_saved_and_loaded(tmp_path: Path, then: str) -> None:
    project = tmp_path / "project"
    (project / "data/deep").mkdir(parents=True)
    for name in ("data/a.csv", "data/deep/b.csv", "odd\\name", "kept.txt"):
        (project / name).write_text(name)
    with Sandbox(here=project) as box:
        session = box.session()
        printed(session, "import os, shutil; kept = 41; os.remove('odd\\\\name'); shutil.rmtree('data')" + then)
        listed = {(change.path, change.kind) for change in box.diff()}
        assert session.save(tmp_path / "s").files.keys() == {"odd\\name"}
    with Sandbox(here=project) as box:
        again = box.load_session(tmp_path / "s")
        assert printed(again, "print(kept)") == "41\n"
        assert {(change.path, change.kind) for change in box.diff()} == listed - {("odd\\name", "deleted")}
        if then == LINK:  # nothing was removed through it
            assert printed(again, "print(open('data/a.csv').read())") == "mine\n"


def test_a_session_on_a_folder_of_the_user_saves_only_what_it_changed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("kept.txt", "gone.txt", "changed.txt"):
        (project / name).write_text(name)
    with Sandbox(here=project) as box:
        session = box.session()
        printed(
            session, "import os; os.remove('gone.txt'); open('changed.txt', 'a').write('!'); os.symlink('new', 'l')"
        )
        printed(
            session, "os.mkdir('hollow'); open('new', 'w').write('n'); os.chmod('new', 0o755); os.utime('new', (9, 9))"
        )
        session.save(tmp_path / "s")
    saved = saved_file.read_saved(str(tmp_path / "s")).state.folder
    assert set(saved.files) == {"changed.txt", "new"}, "the folder itself is the user's"
    with Sandbox(here=project) as box:
        again = box.load_session(tmp_path / "s")
        seen = "print(sorted(os.listdir()), open('changed.txt').read(), os.stat('new').st_mtime, os.readlink('l'))"
        assert printed(again, seen) == ("['changed.txt', 'hollow', 'kept.txt', 'l', 'new'] changed.txt! 9.0 new\n")
        assert {(change.path, change.kind) for change in box.diff()} == {
            ("changed.txt", "modified"), ("gone.txt", "deleted"), ("hollow", "created"), ("l", "created"), ("new", "created"),
        }  # fmt: skip
    assert sorted(os.listdir(project)) == ["changed.txt", "gone.txt", "kept.txt"]
    with Sandbox() as box:
        again = box.load_session(tmp_path / "s")
        assert printed(again, "print(sorted(os.listdir()))") == "['changed.txt', 'hollow', 'l', 'new']\n"
        assert "load it with --here" in again.restored.files["."]


@pytest.mark.parametrize("edited", ["before it was saved", "after it was saved"])
def test_changes_of_a_loaded_session_are_written_over_the_versions_that_the_user_had_when_it_was_saved(
    tmp_path: Path, edited: str
) -> None:
    (project := tmp_path / "project").mkdir()
    for name in ("changed.txt", "gone.txt"):
        (project / name).write_text("first")
    with Sandbox(here=project) as box:
        session = box.session()
        printed(session, "import os; open('changed.txt', 'w').write('session'); os.remove('gone.txt')")
        session.save(tmp_path / "unedited")
        if edited == "before it was saved":
            (project / "changed.txt").write_text("the user's")
        session.save(tmp_path / "s")
    if edited == "after it was saved":
        (project / "gone.txt").write_text("the user's")
    with Sandbox(here=project) as box:
        printed(box.load_session(tmp_path / "s"), "1")
        with pytest.raises(Conflict):
            box.apply()
    assert "the user's" in {each.read_text() for each in project.iterdir()}
    for name in ("changed.txt", "gone.txt"):
        (project / name).unlink()
    with Sandbox(here=project) as box:
        box.load_session(tmp_path / "unedited")
        assert [change.path for change in box.apply()] == ["changed.txt"]


@pytest.mark.parametrize(
    ("path", "target", "out"),
    [
        ("a", "b", False), ("a", "b/c", False), ("d/a", "../b", False), ("d/e/a", "../../b/c", False),
        ("a", "../b", True), ("d/a", "../../b", True), ("a", "/etc/passwd", True), ("a", "/box/b", True),
        ("a", "b/../c", True), ("d/a", "../x/..", True), ("a", "", True), ("d/a", "..", False), ("a", "..", True),
    ],
)  # fmt: skip
def test_a_link_leads_out_also_through_another_one(path: str, target: str, out: bool) -> None:
    assert leads_out(path, target) is out


def test_a_folder_is_put_over_what_is_there_and_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "d").symlink_to(tmp_path / "outside")
    (tmp_path / "box" / "f").mkdir()
    files = [Entry("d/x", "file", data=b"x"), Entry("f", "file", data=b"f")]
    state = FolderState({each.path: each for each in (*files, Entry("d", "directory"), Entry("gone", "gone"))})
    with Rooted.at(tmp_path / "box") as root:
        assert put_folder(state, root) == {}
        assert set(take_folder(root).entries) == {"d", "d/x", "f"}
    assert list((tmp_path / "outside").iterdir()) == []
    assert (tmp_path / "box" / "d").stat().st_mode & 0o777 == 0o700


def test_an_interrupt_while_the_file_is_written_ends_the_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox(SandboxPolicy().allow_process_spawn()) as box:
        session = box.session()
        printed(session, "x = 1")
        session.save(tmp_path / "s")
        before = (tmp_path / "s").read_bytes()
        sendfile, cells = os.sendfile, []

        def slow(*args: int) -> int:
            runs = threading.Thread(target=lambda: cells.append(printed(session, "print(x)")))
            runs.start()
            runs.join(30)
            assert session.interrupt()
            return sendfile(*args)

        monkeypatch.setattr(saved_file.os, "sendfile", slow)
        with pytest.raises(SessionError, match="interrupted: nothing was saved"):
            session.save(tmp_path / "s")
        assert cells == ["1\n"], "cells run meanwhile, and their end does not take the interrupt away"
        assert not session.interrupt()
        assert (tmp_path / "s").read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_folder_whose_names_are_too_long_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_file, "_MOST_HEADER", 2000)
    with Sandbox(SandboxPolicy().allow_process_spawn()) as box:
        session = box.session()
        printed(session, "for n in range(20): open(f'{n:0100}', 'w').close()")
        with pytest.raises(SessionError, match="too long names"):
            session.save(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_small_file_that_says_it_is_large_takes_no_memory_from_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, path = 700 << 20, tmp_path / "s"
    fields = {
        "language": "python", "guest": python_state.GUEST, "guest_version": "Python", "memory_mb": 4096, "elapsed_s": 0.0,
        "memory_bytes": large, "memory_sha256": "",
    }  # fmt: skip
    text = json.dumps(fields).encode()
    path.write_bytes(saved_file.MAGIC + len(text).to_bytes(4, "big") + text)
    os.truncate(path, saved_file.ALIGNMENT + large)
    monkeypatch.setattr(saved_file.SealedMemory, "of_file", lambda *_: pytest.fail("its memory was read"))
    with Sandbox() as box, pytest.raises(InvalidRequest, match="variables of 700 MB, and the session may have 512 MB"):
        box.load_session(path)


def test_a_report_of_very_many_names_is_shown_in_part_and_every_name_as_plain_text() -> None:
    told = {
        "stored": ["x" * 10_000, "y"],
        "recomputed": [f"n{number}" for number in range(1000)],
        "lost": {**{f"a.b{number}": "\x1b[31m" * 900 for number in range(1000)}, "no name": "", "x" * 600: ""},
    }
    answer = take_state.state_answer({"report": told})
    assert answer.report is not None
    assert take_state.state_answer({"report": {**told, "stored": 3}}).report is None
    report = python_state._report(answer.report)
    assert report.stored == ("y",)
    assert len(report.lost) == 1000
    assert "… and 960 more" in str(report) and " and 960 more" in str(report)
    assert len(str(report)) < 40_000 and "\x1b" not in str(report)
    odd = saved_file.SaveReport(files={"a\x1b]0;t\x07\udcff": "why"})
    assert "file a\\x1b]0;t\\x07\\xff: why" in str(odd)


def test_a_file_that_grows_while_it_is_saved_is_saved_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("12345")
    with Rooted.at(tmp_path) as root:
        (entry,) = root.walk()
        state = folder_of([entry._replace(size=3)], lambda one: root.read_part(one.names, 0, one.size)[0])
        assert dict(state.files) == {"log": b"123"}
        (tmp_path / "log").unlink()
        state = folder_of([entry], lambda one: root.read_part(one.names, 0, one.size)[0])
    assert not state.files and not state.entries
    assert "was changed while the session was saved" in state.left_out["log"]
