"""Names that are hidden from programs are hidden on every way to them: spellings, folders, patches, guesses, undo."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, PolicyViolation, Sandbox
from sandbox_kernel.model import NoteKind
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.session_layer import SessionLayer
from sandbox_kernel.workspace.tree.rooted import Rooted

LOOK = "import os\nfor p in ('.env', '.git/config', '.ssh/k'): print(os.path.exists(p) and open(p).read())"


@pytest.fixture
def secrets(project: Path) -> Path:
    """A project with a secret file, a repository and a folder of keys."""
    for name in (".git", ".ssh", "sub"):
        (project / name).mkdir()
    (project / ".git/config").write_text("SECRET git\n")
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (project / ".ssh/k").write_text("SECRET key\n")
    (project / "sub/.env").write_text("SECRET sub\n")
    (project / "sub/plain.txt").write_text("plain\n")
    return project


@pytest.fixture
def box(secrets: Path, box: Sandbox) -> Sandbox:
    """A sandbox that works on the project when the secrets are in it."""
    return box


@pytest.mark.parametrize(
    "path",
    [".env", "./.env", "/box/.env", ".git//config", "sub/../.env", "sub/.env", ".ssh/k", "./.ssh/k", "/box/./.ssh//k"],
)
def test_no_spelling_shows_a_secret(secrets: Path, path: str) -> None:
    here = HereFolder(secrets)
    with pytest.raises(InvalidRequest, match="hidden"):
        here.holding(path).read(path)
    with pytest.raises(InvalidRequest, match="hidden"):
        here.holding(path).read_part(path, 0, 10)


@pytest.mark.parametrize("path", [".ssh", "./.ssh", "/box/.ssh/", "sub/../.ssh"])
def test_a_hidden_folder_is_not_listed(secrets: Path, path: str) -> None:
    with pytest.raises(InvalidRequest):
        HereFolder(secrets).list_dir(path)
    assert [entry.name for entry in HereFolder(secrets).list_dir("./sub")] == ["plain.txt"]
    assert ".env" not in [entry.name for entry in HereFolder(secrets).list_dir("/box")]


def test_the_patch_does_not_show_the_secret_that_a_program_replaced(secrets: Path) -> None:
    here = HereFolder(secrets)
    here.write(".env", "mine\n")
    here.write(".ssh/k", "mine\n")
    assert [change.path for change in here.diff()] == [".env", ".ssh/k"]
    assert "secret" not in here.patch().lower() and "hidden from programs" in here.patch()
    assert here.holding("./.env").read("./.env") == b"mine\n"


def test_removing_a_hidden_folder_does_not_tell_what_is_in_it(secrets: Path) -> None:
    here = HereFolder(secrets)
    with pytest.raises(InvalidRequest):
        here.remove(".ssh")
    here.remove("./sub")
    assert [change.path for change in here.diff()] == ["sub", "sub/plain.txt"]


def test_a_program_cannot_guess_a_secret(box: Sandbox, secrets: Path) -> None:
    (secrets / ".env").write_text("1234")
    (secrets / ".env").chmod(0o644)
    for guess in ("1233", "1234"):
        result = box.run(f"with open('.env', 'w') as file: file.write('{guess}')")
        assert [change.path for change in result.changes] == [".env"], guess
        assert [change.path for change in box.diff()] == [".env"], guess
        box.discard()


def test_discarding_does_not_put_the_users_secret_into_the_sandbox(box: Sandbox, secrets: Path) -> None:
    with box.session() as session:
        session.run(
            "import os\nos.makedirs('.ssh'); os.makedirs('.git', exist_ok=True)\n"
            "for p in ('.env', '.git/config', '.ssh/k'): open(p, 'w').write('mine')"
        )
        assert session.run(LOOK).stdout.split() == ["mine"] * 3
        box.discard()
        assert session.run(LOOK).stdout.split() == ["False"] * 3
        assert box.run(LOOK).stdout.split() == ["False"] * 3
        assert box.diff() == ()


def test_undo_does_not_bring_a_secret_that_was_hidden_meanwhile(box: Sandbox, secrets: Path) -> None:
    (secrets / ".env").unlink()
    with box.session() as session:
        for number in range(3):
            session.run(f"open('b.txt', 'w').write('{number}')")
        (secrets / ".env").write_text("SECRET late\n")
        session.run("open('b.txt', 'w').write('later')")
        session.undo(2)
        assert session.run(LOOK).stdout.split()[0] == "False"


def test_a_secret_that_comes_late_leaves_the_programs_own_file(secrets: Path) -> None:
    (secrets / ".env").unlink()
    with Sandbox(here=secrets) as box, box.session() as session:
        session.run("open('.env', 'w').write('mine')")
        (secrets / ".env").write_text("SECRET late\n")
        assert session.run(LOOK).stdout.split()[0] == "mine"


def test_looking_for_late_secrets_is_not_put_off_in_a_small_folder(secrets: Path) -> None:
    with Sandbox(here=secrets) as box, box.session() as session:
        session.run("x = 1")
        (secrets / "sub/late.pem").write_text("SECRET")
        result = session.run("import os; print(os.path.exists('sub/late.pem'))")
        assert result.here == "copy" or result.stdout == "False\n"


@pytest.mark.parametrize("closed", ["'.', 0o555", "'sub', 0o555", "'sub', 0"])
def test_a_folder_that_a_cell_has_closed_shows_no_late_secret(secrets: Path, closed: str) -> None:
    look = "for p in ('.', 'sub'): os.chmod(p, 0o755)\nprint(os.listdir('.'), os.listdir('sub'))"
    with Sandbox(here=secrets) as box, box.session() as session:
        session.run(f"import os; os.chmod({closed})")
        for path in (".env.late", "sub/.env.late"):
            (secrets / path).write_text("SECRET")
        for _ in range(2):
            assert ".env.late" not in session.run(look).stdout


def test_a_folder_that_is_made_anew_while_a_program_holds_it_shows_no_secret(secrets: Path) -> None:
    with Sandbox(here=secrets) as box, box.session() as session:
        session.run("import os, subprocess; held = subprocess.Popen(['sleep', '300'], cwd='sub')")
        shutil.rmtree(secrets / "sub")
        (secrets / "sub").mkdir()
        (secrets / "sub/.env").write_text("SECRET")
        for code in ("1", "held.kill(); held.wait()", "1", "print(os.listdir('sub'))"):
            shown = session.run(code).stdout
        assert ".env" not in shown


def test_a_folder_whose_time_was_set_back_is_looked_at_again(secrets: Path) -> None:
    with Sandbox(here=secrets) as box, box.session() as session:
        session.run("import os")
        for folder in (secrets, secrets / "sub"):
            before = folder.stat()
            (folder / ".env.late").write_text("SECRET")
            os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert ".env.late" not in session.run("print(os.listdir('.'), os.listdir('sub'))").stdout
        assert ".env.late" not in box.run("import os; print(os.listdir('.'), os.listdir('sub'))").stdout


def test_no_cell_runs_while_a_secret_cannot_be_hidden(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with Sandbox(here=secrets) as box, box.session() as session:
        session.run("x = 1")
        (secrets / ".env.late").write_text("SECRET")
        with monkeypatch.context() as patch:
            patch.setattr(SessionLayer, "_set_mode", full)
            patch.setattr(Rooted, "remove", full)
            for _ in range(2):
                with pytest.raises(PolicyViolation, match=r"\.env\.late.*No space left.*restart"):
                    session.run("print(open('.env.late').read())")
        assert session.run("print(x, __import__('os').path.exists('.env.late'))").stdout == "1 False\n"


@pytest.mark.parametrize("where", ["run", "session"])
def test_it_is_said_that_git_takes_a_hidden_file_for_deleted(project: Path, where: str) -> None:
    (project / "src/server.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    for words in (["init", "-q"], ["add", ".env", "run.sh", "data"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    with Sandbox(here=project) as box:
        line = "git add -A"
        result = box.run(line, "command") if where == "run" else box.session("command").run(line)
        assert result.ok, result.stderr
        (note,) = [note for note in result.notes if "git" in note]
        # The other hidden file is none of git's.
        assert note.startswith(".env: hidden from programs") and note.kind is NoteKind.HINT
        # Whatever git did inside, the secret stays, also where everything is applied by its name.
        box.apply()
        box.apply([".git"])
        assert (project / ".env").read_text() == "TOKEN=secret\n"
