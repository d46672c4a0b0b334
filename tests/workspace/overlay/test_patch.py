"""A patch makes exactly the bytes, names and links of the sandbox, or says that it does not show them."""

import os
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.workspace.overlay import patch as making
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder

CONTENTS = {
    "nbsp.md": "prix\u00a0: 3 \u20ac\n",
    "crlf.csv": "a,b\r\n1,2\r\n",
    "bom.csv": "\ufeffa,b\n",
    "family.txt": "\U0001f468\u200d\U0001f469\n",
    "form.txt": "one\x85two\n",
    "my file.txt": "blank in its name\n",
    "q\\t.txt": "backslash\n",
    'say "hi".txt': "quotes\n",
    "\u00e9t\u00e9.txt": "summer\n",
    "no end": "no line feed",
    "empty": "",
}


def taken(project: Path, patch: str) -> None:
    done = subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=project, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_git_makes_the_same_bytes_and_names_of_a_patch(project: Path) -> None:
    here = HereFolder(project)
    for name, text in CONTENTS.items():
        here.write(name, text)
    here.write("data/rows.csv", "a,b\r\n3,4\r\n")
    patch = here.patch()
    taken(project, patch)
    for name, text in CONTENTS.items():
        if name == "form.txt":
            assert "# form.txt: created, not shown as text, 9 bytes" in patch and not (project / name).exists()
        elif text:
            assert (project / name).read_bytes() == text.encode(), name
    assert (project / "data/rows.csv").read_bytes() == b"a,b\r\n3,4\r\n"


@pytest.mark.parametrize("text", ["\x1b[2Jgone\n", "innocent\rrm -rf\n", "a\u202eb\n", "zero\0\n"])
def test_a_patch_cannot_deceive_a_terminal(project: Path, text: str) -> None:
    here = HereFolder(project)
    here.write("x.txt", text)
    here.write("fine.txt", "fine\n")
    assert text.strip() not in here.patch() and "# x.txt: created, not shown as text" in here.patch()
    taken(project, here.patch())
    assert not (project / "x.txt").exists() and (project / "fine.txt").exists()


def test_a_file_that_became_a_link_does_not_look_like_an_edit(project: Path) -> None:
    with Sandbox(here=project) as box:
        assert box.run(
            "import os\nos.unlink('data/rows.csv'); os.symlink('more.csv', 'data/rows.csv')\n"
            "os.unlink('link'); open('link', 'w').write('a file now\\n'); os.chmod('src/tool.py', 0o755)"
        ).ok
        patch = box.patch()
    assert "deleted file mode 100644" in patch and "new file mode 120000" in patch and "+more.csv" in patch
    taken(project, patch)
    assert os.readlink(project / "data/rows.csv") == "more.csv"
    assert (project / "link").read_text() == "a file now\n" and not (project / "link").is_symlink()
    assert (project / "src/tool.py").stat().st_mode & 0o777 == 0o755


def test_a_folder_that_became_a_file_is_in_the_patch(project: Path) -> None:
    here = HereFolder(project)
    here.remove("src")
    here.write("src", "a file now\n")
    assert "040755" not in here.patch() and "new file mode 100644" in here.patch()


def test_lines_in_another_order_do_not_keep_the_host_busy(project: Path) -> None:
    lines = [f"{number % 150},x\n" for number in range(19_000)]
    (project / "data/rows.csv").write_text("".join(lines))
    here = HereFolder(project)
    here.write("data/rows.csv", "".join(sorted(lines)))
    patch = here.patch()
    assert "@@ -1,19000 +1,19000 @@" in patch
    taken(project, patch)
    assert (project / "data/rows.csv").read_text() == "".join(sorted(lines))


def test_a_mode_that_git_does_not_carry_is_left_out_of_the_patch(project: Path) -> None:
    with Sandbox(here=project) as box:
        assert box.run("import os; os.chmod('data/more.csv', 0o600); open('data/rows.csv', 'w').write('new\\n')").ok
        assert box.run("open('data/new.csv', 'w').write('new\\n')").ok
        assert "more.csv" not in box.patch() and box.whole_patch().left_out == ("data/more.csv",)
        taken(project, box.patch())
    assert (project / "data/new.csv").read_text() == "new\n"


def test_git_takes_an_empty_file_in_a_folder_whose_name_ends_in_a_blank(project: Path) -> None:
    here = HereFolder(project)
    here.write("my /empty", "")
    taken(project, here.patch())
    assert (project / "my /empty").read_bytes() == b""


def test_a_patch_in_a_file_holds_what_is_not_text(project: Path) -> None:
    binary = bytes(range(256)) * 50
    (project / "old.bin").write_bytes(binary)
    (project / "gone.bin").write_bytes(binary)
    here = HereFolder(project)
    here.write("new.bin", binary[::-1])
    here.write("old.bin", b"\0")
    here.write("form.txt", "one\x0ctwo\n")
    here.write("fine.txt", "fine\n")
    here.remove("gone.bin")
    here.write(".env", "TOKEN=other\n")
    patch = here.whole_patch()
    assert patch.left_out == (".env",) and patch.text.isascii()
    taken(project, patch.text)
    assert (project / "new.bin").read_bytes() == binary[::-1] and (project / "old.bin").read_bytes() == b"\0"
    assert (project / "form.txt").read_text() == "one\x0ctwo\n" and (project / "fine.txt").exists()
    assert not (project / "gone.bin").exists() and (project / ".env").read_text() == "TOKEN=secret\n"


def _apart(count: int) -> tuple[list[str], list[str]]:
    """Return two texts whose equal lines are never neighbours: difflib looks at all that follow for each of them."""
    sides = (f"same {n}\n{side} {n}\n" for side in "ab" for n in range(count))
    lines = "".join(sides).splitlines(keepends=True)
    return lines[: 2 * count], lines[2 * count :]


def test_a_difference_that_takes_difflib_long_is_told_as_a_whole_new_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "MOST_LOOKS", making.MOST_LOOKS // 100)
    effort = making.DiffEffort()
    assert effort.suffices(*_apart(50))
    assert not effort.suffices(*_apart(900))
    assert not effort.suffices(["a\n"], ["b\n"])  # nothing is left for further files of this patch


@pytest.mark.parametrize(("looks", "quick"), [(5, True), (4, False)])
def test_what_difflib_looks_at_is_counted_exactly(monkeypatch: pytest.MonkeyPatch, looks: int, quick: bool) -> None:
    monkeypatch.setattr(making, "MOST_LOOKS", looks)
    # Three lines, of which the second is equal: once all three, then the one before it, and the one after it.
    assert making.DiffEffort().suffices(["a\n", "b\n", "c\n"], ["x\n", "b\n", "y\n"]) is quick


def test_nothing_is_read_beyond_the_end_of_a_patch(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, sides = [], making._sides
    monkeypatch.setattr(making, "MOST_PATCH", 3000)
    monkeypatch.setattr(making, "_sides", lambda *given: read.append(given[2].entry.path) or sides(*given))
    with Sandbox(here=project) as box:
        assert box.run("for n in range(9): open(f'{n}.txt', 'w').write('line\\n' * 200)").ok
        assert "cut here" in box.patch()
    assert 1 < len(read) < 9
