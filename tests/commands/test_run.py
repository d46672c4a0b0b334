"""``sandbox-kernel run --here``: the folder, the patch, applying, and the question at the end."""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.commands.run import _program
from sandbox_kernel.model import MAX_CODE_BYTES
from tests.test_cli import ROOT, cli
from tests.workspace.overlay.conftest import project as project

CODE = "open('data/rows.csv', 'a').write('3,4\\n'); open('n.txt', 'w').write('1\\n')"


@pytest.fixture(autouse=True)
def in_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)


def test_a_run_does_not_change_the_folder_unasked(project: Path) -> None:
    done = cli("run", "--here", "-c", CODE)
    assert done.returncode == 0 and b"2 files changed and nothing was written" in done.stderr
    assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n" and not (project / "n.txt").exists()


@pytest.mark.slow
def test_apply_writes_the_changes_and_diff_writes_a_patch(project: Path, tmp_path: Path) -> None:
    (project / "prog.py").write_text(CODE + "; open('b.bin', 'wb').write(bytes(9)); __import__('os').mkdir('empty')")
    patch = tmp_path / "out.patch"
    done = cli("run", "--here", "--diff", str(patch), "prog.py")
    assert done.returncode == 0, done.stderr
    assert "+3,4" in patch.read_text() and not (project / "n.txt").exists()
    assert b"3 files changed and only the diff was written: add --apply" in done.stderr
    # What is not text is in the patch too, and what no patch can hold is named.
    assert (
        "b/b.bin\nnew file mode 100644\n" in patch.read_text() and "GIT binary patch\nliteral 9\n" in patch.read_text()
    )
    assert b"not in the patch, which cannot hold them: empty;" in done.stderr
    done = cli("run", f"--here={project}", "--apply", "prog.py", env={"PYTHONSAFEPATH": "1"})
    assert done.returncode == 0 and b"4 written" in done.stderr, done.stderr
    assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n3,4\n"


def test_only_the_beginning_of_a_long_program_is_read(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse.py"
    sparse.touch()
    os.truncate(sparse, 1 << 28)
    assert len(_program(str(sparse))) == MAX_CODE_BYTES + 1


def test_apply_without_a_folder_is_refused() -> None:
    done = cli("run", "--apply", "-c", "1")
    assert done.returncode == 2 and b"add --here" in done.stderr


@pytest.mark.parametrize(
    ("answers", "applied"),
    [
        (b"apply\n", True),
        (b"diff\napply\n", True),
        (b"y\n", False),
        (b"yes\n", False),
        (b"all\n", False),
        (b"\n", False),
    ],
)
@pytest.mark.one_case
def test_only_the_word_apply_at_the_end_writes(project: Path, answers: bytes, applied: bool) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "sandbox_kernel", "run", "--here", "-c", CODE], stdin=theirs, stderr=theirs,
        stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:  # fmt: skip
        os.close(theirs)
        said = b""
        for line in answers.splitlines(keepends=True):
            while not said.endswith(b"Enter: no. "):
                said += os.read(ours, 1000)
            os.write(ours, line)
            if line == b"diff\n":
                said = said.replace(b"Enter: no. ", b"")
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 1000):
                said += part
        assert child.wait(60) == 0
    os.close(ours)
    assert "\x1b[0m▣ 2 files changed. Apply? Type apply or diff".encode() in said
    assert (b"+3,4" in said) == answers.startswith(b"diff")
    assert (project / "n.txt").exists() == applied


def test_apply_writes_nothing_of_a_program_that_failed(project: Path) -> None:
    done = cli("run", "--here", "--apply", "-c", f"{CODE}; raise SystemExit(3)")
    assert done.returncode == 3 and b"nothing was written: the program failed" in done.stderr
    assert not (project / "n.txt").exists()


def test_what_apply_leaves_out_can_be_named(project: Path) -> None:
    code = f"{CODE}; import os; os.mkdir('.vscode'); open('.vscode/tasks.json', 'w').write('1')"
    done = cli("run", "--here", "--apply", "-c", code)
    assert b"--apply-also PATH: .vscode" in done.stderr and (project / "n.txt").exists(), done.stderr
    assert not (project / ".vscode").exists()
    done = cli("run", "--here", "--apply", "--apply-also", ".vscode/tasks.json", "-c", code)
    assert done.returncode == 0 and (project / ".vscode/tasks.json").read_text() == "1", done.stderr
    assert cli("run", "--here", "--apply-also", "n.txt", "-c", "1").returncode == 2
