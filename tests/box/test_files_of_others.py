"""What a session, a run or the host has in a shared folder is not lost to what another one does there."""

import os
from pathlib import Path

import pytest

from sandbox_kernel import BackendUnavailable, InvalidRequest, Sandbox
from sandbox_kernel.backends.process import ProcessBackend
from tests.waiting import until


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "work.txt").write_text("mine")
    return folder


def test_a_new_worker_that_cannot_have_the_users_folder_runs_no_cell_and_deletes_nothing(project: Path) -> None:
    with Sandbox(here=project) as box:
        box.backend = ProcessBackend(enforcer="landlock", policy=box.policy)  # which copies the folder
        session = box.session()
        assert session.run("open('work.txt').read()").ok
        with open(project / "large.bin", "wb") as file:
            file.truncate(200 << 20)
        session.restart()
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="MB"):
                session.run("print('ran')")
        assert box.diff() == ()
        assert box.apply() == ()
    assert (project / "work.txt").read_text() == "mine"


def test_a_run_that_replaces_a_folder_leaves_what_only_a_session_has_in_it() -> None:
    with Sandbox() as box:
        session = box.session()
        session.run(
            "import os; os.mkdir('d'); open('d/s', 'w').close(); open('d/model', 'wb').write(b'x' * (17 << 20))"
        )
        assert box.run("import shutil; shutil.rmtree('d'); open('d', 'w').write('a file')").ok
        result = session.run("print(os.listdir('d'))")
        assert "model" in result.stdout
        assert "d (file) was not put into this session" in " ".join(result.notes)


def test_what_the_host_writes_counts_more_than_an_older_change_of_a_thread() -> None:
    with Sandbox() as box:
        session = box.session()
        for name in ("config", "gone"):
            box.write_file(name, "first")
        later = "open('config', 'w').write('of a thread'); os.remove('gone')"
        session.run(f"import os, threading\nthreading.Timer(0.2, lambda: exec({later!r})).start()")
        assert session._supervisor.live is not None
        seen = session._supervisor.live.jail.box_fd
        until(lambda: "gone" not in os.listdir(seen))  # the cell has ended long ago
        for name in ("config", "gone"):
            box.write_file(name, "newer")
        assert session.run("print(open('config').read(), open('gone').read())").stdout == "newer newer\n"
        assert [box.read_file(name) for name in ("config", "gone")] == [b"newer", b"newer"]


def test_a_program_that_removes_its_own_file_asks_for_no_deletion_of_a_hidden_one(project: Path) -> None:
    (project / ".env").write_text("SECRET=1")
    with Sandbox(here=project) as box:
        assert box.run("open('.env', 'w').write('own')").ok
        assert box.run("import os; os.remove('.env')").ok
        assert box.diff() == ()
    assert (project / ".env").read_text() == "SECRET=1"


def test_an_undo_that_cannot_bring_all_back_makes_no_folder_private(project: Path) -> None:
    (project / "d").mkdir(mode=0o755)
    (project / "d" / "x").write_text("x")
    with open(project / "z.bin", "wb") as file:
        file.truncate(70 << 20)
    with Sandbox(here=project) as box:
        session = box.session()
        session.run("v = 1")
        session.run("import os; open('d/x', 'w').write('changed'); os.remove('z.bin')")
        session.undo()
        box.apply()
    assert (project / "d").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("over", [True, False], ids=["the user's folder", "a plain folder"])
def test_an_undo_parts_files_that_became_one_and_joins_files_that_were_one(project: Path, over: bool) -> None:
    with Sandbox(here=project) if over else Sandbox() as box:
        session = box.session()
        session.run("import os\nfor n in 'abc': open(n, 'w').write(n * 3)\nos.link('c', 'c2')")
        session.run("os.remove('b'); os.link('a', 'b'); os.remove('c2'); open('c2', 'w').write('no')")
        session.undo()
        told = session.run("print([open(n).read() for n in ('a', 'b', 'c', 'c2')], os.path.samefile('a', 'b'))").stdout
        assert told == "['aaa', 'bbb', 'ccc', 'ccc'] False\n"
        assert [box.read_file(name) for name in ("a", "b", "c2")] == [b"aaa", b"bbb", b"ccc"]


def test_a_kept_folder_has_every_name_that_a_program_chose(tmp_path: Path) -> None:
    for expected in ([], [".sk-model", "x"]):
        with Sandbox() as box:
            box.keep_files_in(str(tmp_path / "made" / "by us"))
            found = box.session().run(
                "import os; print(sorted(os.listdir('.')))\nfor n in ('.sk-model', 'x'): open(n, 'w')"
            )
            assert found.stdout == f"{expected}\n"


def test_files_are_not_kept_where_others_could_change_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with Sandbox() as box, pytest.raises(BackendUnavailable, match="files cannot be kept in"):
        box.keep_files_in(str(tmp_path))


def test_changes_outlive_the_sandbox_that_shared_the_folder(project: Path) -> None:
    owner, other = Sandbox(here=project), Sandbox()
    other.share_files(owner)
    try:
        session = other.session()
        session.run("open('work.txt', 'w').write('changed')")
        owner.destroy()
        assert [change.path for change in other.diff()] == ["work.txt"]
        assert session.run("print(open('work.txt').read())").stdout == "changed\n"
    finally:
        other.destroy()
    assert os.listdir(project) == ["work.txt"]
