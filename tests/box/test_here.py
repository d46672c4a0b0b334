"""A sandbox on a folder of the user: programs see it, nothing in it changes until it is applied.

Behind every wall that this machine has: with a layer (with and without kept templates), and on a private copy.
"""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Conflict, InvalidRequest, ProcessConfig, Sandbox, SandboxPolicy
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.model import NoteKind
from sandbox_kernel.session.session import Session
from tests.workspace.overlay.conftest import project as project

WALLS = ["layer", "layer-without-templates", "copy"]


@pytest.fixture(params=WALLS)
def box(request: pytest.FixtureRequest, project: Path) -> Iterator[Sandbox]:
    with Sandbox(here=project) as made:
        if request.param == "copy":
            made.backend = ProcessBackend(enforcer="landlock", policy=made.policy)
        elif request.param == "layer-without-templates":
            made.backend = ProcessBackend(ProcessConfig(pool_size=0, templates=False), policy=made.policy)
        yield made


def kinds(changes: object) -> dict[str, str]:
    return {change.path: change.kind for change in changes if change.type != "directory"}  # type: ignore[attr-defined]


def untouched(project: Path) -> bool:
    return (project / "data/rows.csv").read_text() == "a,b\n1,2\n" and sorted(os.listdir(project)) == [
        ".env", "data", "link", "run.sh", "src",
    ]  # fmt: skip


@pytest.mark.one_case
def test_a_program_sees_the_folder(box: Sandbox, project: Path, request: pytest.FixtureRequest) -> None:
    result = box.run("import os; print(sorted(os.listdir('.')), open('data/rows.csv').read().split())")
    assert result.ok, result.stderr
    assert result.stdout == "['data', 'link', 'run.sh', 'src'] ['a,b', '1,2']\n"
    assert result.changes == () and box.diff() == ()
    copied = request.node.callspec.params["box"] == "copy"
    assert result.here == ("copy" if copied else "layer")
    assert (NoteKind.COPIED_FOLDER in [note.kind for note in result.notes]) == copied


@pytest.mark.one_case
def test_the_folder_is_also_at_its_own_path_where_a_layer_can_be(
    box: Sandbox, project: Path, request: pytest.FixtureRequest
) -> None:
    code = (
        f"import os; p = {str(project)!r}\n"
        "open(p + '/own.txt', 'w').write('hi'); print(open('own.txt').read(), sorted(os.listdir(p)))"
    )
    result = box.run(code)
    if request.node.callspec.params["box"] != "copy":
        assert result.stdout == "hi ['data', 'link', 'own.txt', 'run.sh', 'src']\n", result.stderr
        assert kinds(box.diff()) == {"own.txt": "created"}
    assert untouched(project)


def test_an_environment_inside_of_the_folder_is_read_only_at_its_own_path(project: Path) -> None:
    (project / ".venv").mkdir()
    (project / ".venv/lib.py").write_text("x = 1\n")
    policy = SandboxPolicy.preset("standard").allow_read(str(project / ".venv"))
    with Sandbox(policy, here=project) as box:
        result = box.run(
            f"p = {str(project)!r}\nprint(open(p + '/.venv/lib.py').read())\nopen(p + '/.venv/lib.py', 'a')"
        )
    assert result.stdout == "x = 1\n\n" and "Read-only" in result.stderr


@pytest.mark.one_case
def test_a_program_does_not_change_the_users_folder(box: Sandbox, project: Path) -> None:
    result = box.run(
        "import os\nopen('data/rows.csv', 'a').write('3,4\\n'); open('out.txt', 'w').write('hi\\n')\n"
        "os.unlink('data/more.csv')"
    )
    assert result.ok, result.stderr
    wanted = {"data/rows.csv": "modified", "out.txt": "created", "data/more.csv": "deleted"}
    assert kinds(result.changes) == wanted and kinds(box.diff()) == wanted
    assert untouched(project)
    patch = box.patch()
    assert "+3,4" in patch and "+hi" in patch and "deleted file" in patch
    # The next program sees what the first one did.
    again = box.run(
        "import os; print(open('data/rows.csv').read().split(), os.listdir('data'), os.path.exists('out.txt'))"
    )
    assert again.stdout == "['a,b', '1,2', '3,4'] ['rows.csv'] True\n"
    assert again.changes == ()
    assert kinds(box.apply()) == wanted
    assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n3,4\n"
    assert (project / "out.txt").read_text() == "hi\n" and not (project / "data/more.csv").exists()
    assert box.diff() == ()


def test_a_patch_is_one_that_git_takes(box: Sandbox, project: Path, tmp_path: Path) -> None:
    box.run("open('data/rows.csv', 'a').write('3,4\\n'); open('new.py', 'w').write('x = 1\\n')")
    subprocess.run(["git", "apply", "-"], input=box.patch(), text=True, cwd=project, check=True)
    assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n3,4\n" and (project / "new.py").exists()


@pytest.mark.slow
def test_secrets_are_not_shown(box: Sandbox, project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".git/config").write_text("[remote]\n\turl = https://user:token@example.org\n")
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (project / "src/server.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    code = "import os\nfor p in ('.env', '.git/config', 'src/server.pem', '.git/HEAD'): print(os.path.exists(p))"
    assert box.run(code).stdout.split() == ["False", "False", "False", "True"]
    with box.session() as session:
        assert session.run(code).stdout.split() == ["False", "False", "False", "True"]
    assert box.diff() == ()
    with pytest.raises(InvalidRequest):
        box.read_file(".env")


@pytest.mark.one_case
def test_a_conflict_is_seen_and_nothing_is_written(box: Sandbox, project: Path) -> None:
    box.run("open('data/rows.csv', 'a').write('3,4\\n'); open('fine.txt', 'w').write('x')")
    (project / "data/rows.csv").write_text("mine\n")
    with pytest.raises(Conflict) as caught:
        box.apply()
    assert caught.value.paths == ("data/rows.csv",)
    assert (project / "data/rows.csv").read_text() == "mine\n" and not (project / "fine.txt").exists()
    assert kinds(box.apply(["fine.txt"])) == {"fine.txt": "created"}
    box.discard()
    assert box.run("print(open('data/rows.csv').read())").stdout == "mine\n\n"


@pytest.mark.slow
def test_a_run_that_was_stopped_leaves_no_changes(box: Sandbox, project: Path) -> None:
    result = box.run("open('half.txt', 'w').write('x')\nwhile True: pass", timeout=1)
    assert result.status == "timeout"
    assert box.diff() == () and untouched(project)


@pytest.mark.slow
def test_undo_and_rollback_take_the_files_back(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        session.run("import os; x = 1")
        session.run("open('data/rows.csv', 'a').write('A\\n'); open('new', 'w').write('1'); os.unlink('data/more.csv')")
        before = kinds(box.diff())
        assert before == {"data/rows.csv": "modified", "new": "created", "data/more.csv": "deleted"}
        late = session.run("open('data/rows.csv', 'a').write('B\\n'); os.unlink('new')\nwhile True: pass", timeout=1)
        assert late.rolled_back and kinds(box.diff()) == before
        assert seen(session) == (["a,b", "1,2", "A"], ["rows.csv"], True)
        session.undo(2)
        assert box.diff() == ()
        assert seen(session) == (["a,b", "1,2"], ["more.csv", "rows.csv"], False)
        assert untouched(project)


def seen(session: Session) -> tuple[object, ...]:
    result = session.run(
        "print((open('data/rows.csv').read().split(), sorted(os.listdir('data')), os.path.exists('new')))"
    )
    assert result.ok, result.stderr
    return eval(result.stdout)  # type: ignore[no-any-return]


@pytest.mark.one_case
def test_a_session_and_a_run_see_the_same_files(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        session.run("open('made', 'w').write('m'); open('data/rows.csv', 'a').write('C\\n')")
        result = box.run("import os; print(open('data/rows.csv').read().split()); os.unlink('made')")
        assert result.stdout == "['a,b', '1,2', 'C']\n"
        assert session.run("import os; print(os.path.exists('made'))").stdout == "False\n"
        box.apply()
        assert session.run("print(open('data/rows.csv').read().split())").stdout == "['a,b', '1,2', 'C']\n"
        session.run("open('data/rows.csv', 'a').write('D\\n')")
        box.discard()
        assert session.run("print(open('data/rows.csv').read().split())").stdout == "['a,b', '1,2', 'C']\n"
        assert box.diff() == ()


def test_changes_of_folders_links_and_modes_are_told_and_applied(project: Path) -> None:
    with Sandbox(here=project) as box:
        result = box.run(
            "import os, shutil\nshutil.rmtree('src'); os.mkdir('src'); open('src/other.py', 'w').write('1\\n')\n"
            "os.rename('data/rows.csv', 'data/renamed.csv'); os.symlink('run.sh', 'second.sh'); os.chmod('run.sh', 0o700)\n"
            "os.makedirs('a/b'); shutil.rmtree('data') if False else None"
        )
        assert result.ok, result.stderr
        if result.here != "layer":
            pytest.skip("no layer here")
        assert kinds(result.changes) == {
            "src/tool.py": "deleted", "src/other.py": "created", "data/renamed.csv": "renamed", "second.sh": "created",
            "run.sh": "modified",
        }  # fmt: skip
        again = box.run("import os; print(os.readlink('second.sh'), oct(os.stat('run.sh').st_mode), os.listdir('src'))")
        assert again.stdout == "run.sh 0o100700 ['other.py']\n"
        box.apply()
    assert os.readlink(project / "second.sh") == "run.sh" and (project / "run.sh").stat().st_mode & 0o777 == 0o700
    assert os.listdir(project / "src") == ["other.py"] and (project / "a/b").is_dir()
    assert sorted(os.listdir(project / "data")) == ["more.csv", "renamed.csv"]


def test_a_folder_that_becomes_a_file_and_back_is_applied(project: Path) -> None:
    with Sandbox(here=project) as box:
        box.run("import shutil; shutil.rmtree('src'); open('src', 'w').write('now a file')")
        box.apply(["src"])
        assert (project / "src").read_text() == "now a file"
        box.run("import os; os.unlink('src'); os.mkdir('src'); open('src/x.txt', 'w').write('again')")
        box.apply(["src"])
        assert (project / "src/x.txt").read_text() == "again"


def test_a_link_that_leaves_the_folder_is_not_applied(project: Path) -> None:
    with Sandbox(here=project) as box:
        assert box.run("import os; os.symlink('/etc/passwd', 'out'); os.symlink('run.sh', 'in.sh')").ok
        assert kinds(box.apply()) == {"in.sh": "created"}
        assert not (project / "out").is_symlink()


@pytest.mark.slow
def test_a_database_stays_whole_after_undo(project: Path) -> None:
    with sqlite3.connect(project / "data.db") as base:
        base.execute("create table t (n)")
        base.execute("insert into t values (1)")
    base.close()
    with Sandbox(here=project) as box, box.session() as session:
        session.run("import sqlite3; base = sqlite3.connect('data.db')")
        session.run("base.execute('insert into t values (2)'); base.commit()")
        assert session.run("print(base.execute('select count(*) from t').fetchone())").stdout == "(2,)\n"
        session.undo(2)
        assert session.run("print(base.execute('select count(*) from t').fetchone())").stdout == "(1,)\n"
        session.run("base.execute('insert into t values (3)'); base.commit()")
        box.apply()
    with sqlite3.connect(project / "data.db") as base:
        assert base.execute("select n from t order by n").fetchall() == [(1,), (3,)]
    base.close()


def test_git_works_inside(project: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=project, check=True, capture_output=True
        )

    (project / ".gitignore").write_text(".env\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    with Sandbox(here=project) as box:
        result = box.run(
            "git status --porcelain && echo more >> data/rows.csv && git -c user.name=a -c user.email=a@b commit -qam second"
            " && git log --oneline | wc -l",
            "command",
        )
        assert result.ok, result.stderr
        assert result.stdout.split() == ["2"]
        assert kinds(box.apply()) == {"data/rows.csv": "modified"}
    log = subprocess.run(["git", "log", "--oneline"], cwd=project, check=True, capture_output=True, text=True)
    assert len(log.stdout.splitlines()) == 1


def test_a_folder_that_cannot_be_worked_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for wrong in (tmp_path / "missing", tmp_path / "file", "/", "~", "a\0b"):
        with pytest.raises(Exception, match=r"here=|not a path"):
            Sandbox(here=wrong)
    with Sandbox() as box, pytest.raises(InvalidRequest, match="Sandbox\\(here="):
        box.apply()


@pytest.mark.slow
def test_a_session_names_its_folder(project: Path) -> None:
    with Sandbox() as box:
        with box.session(here=project) as session:
            assert session.run("open('x', 'w').write('1'); print(open('data/rows.csv').read())").ok
        assert kinds(box.diff()) == {"x": "created"}
        with pytest.raises(InvalidRequest, match="works on"):
            box.session(here=project / "data")


def test_no_path_of_the_folder_leads_past_the_layer(project: Path) -> None:
    with Sandbox(here=project) as box:
        result = box.run(
            "import os\nfor p in ('/here', '/box/upper', '/box/work'):\n"
            "    print(p, os.listdir(p) if os.path.exists(p) else None)"
        )
        assert result.here == "copy" or result.stdout == "/here []\n/box/upper None\n/box/work None\n"


def test_a_socket_of_the_host_in_the_folder_cannot_be_reached(project: Path) -> None:
    import socket

    place = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(project)
        try:
            server.bind("control.sock")
        finally:
            os.chdir(place)
        os.chmod(project / "control.sock", 0o777)
        server.listen(1)
        with Sandbox(here=project) as box:
            result = box.run("import socket; s = socket.socket(socket.AF_UNIX); s.connect('control.sock')")
        assert result.exit_code == 1
        assert "refused" in result.stderr or "not permitted" in result.stderr or "No such" in result.stderr


@pytest.mark.slow
def test_the_report_lists_what_is_hidden(project: Path) -> None:
    with Sandbox(here=project) as box:
        assert ".env" in box.report().hidden
    with Sandbox() as box:
        assert box.report().hidden == ()


def test_what_the_host_has_no_work_left_to_keep_is_kept_after_the_next_cell(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_WORK_S", "WORK_SHARE"):
        monkeypatch.setattr(f"sandbox_kernel.session.cell.displays.{name}", 0.0)
    with box.session() as session:
        first = session.run("for number in range(1100):\n    open(f'{number:04}.txt', 'w').write('made')")
        assert "600 changed files are kept when the next cell ends" in str(first.notes)
        assert len(box.diff()) == 500
        second = session.run("import os\nos.unlink('0999.txt'); open('1099.txt', 'w').write('later')")
        assert "kept when the next cell ends" in str(second.notes)
        assert "kept when" not in str(session.run("pass").notes)
        kept = {change.path for change in box.diff()}
        assert kept == {f"{number:04}.txt" for number in range(1100) if number != 999}
        assert box.read_file("1099.txt") == b"later"
