"""A program that cannot have a layer works on a copy of the folder, and the copy has everything that the folder has."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Limits, Sandbox
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.model import NoteKind

LOOK = """
import os
print(os.readlink('link'), os.readlink('nowhere'), os.path.isdir('empty/below'), os.access('run.sh', os.X_OK))
print(open('locked/file').read(), oct(os.stat('locked').st_mode & 0o777))
"""


@pytest.fixture
def box(project: Path) -> Iterator[Sandbox]:
    (project / "empty/below").mkdir(parents=True)
    (project / "nowhere").symlink_to("not/there")
    (project / "locked").mkdir()
    (project / "locked/file").write_text("1")
    (project / "locked").chmod(0o555)
    with Sandbox(here=project) as made:
        made.backend = ProcessBackend(enforcer="landlock", policy=made.policy)
        yield made
    (project / "locked").chmod(0o755)


def kinds(box: Sandbox) -> dict[str, tuple[str, str]]:
    return {change.path: (change.kind, change.type) for change in box.diff()}


def test_a_copy_of_the_folder_has_its_links_and_empty_folders(box: Sandbox) -> None:
    wanted = "run.sh not/there True True\n1 0o555\n"
    result = box.run(LOOK)
    assert (result.stdout, result.here, result.changes) == (wanted, "copy", ()), result.stderr
    with box.session() as session:
        cell = session.run(LOOK)
        assert (cell.stdout, cell.here, cell.changes) == (wanted, "copy", ()), cell.stderr
    assert box.diff() == ()


def test_a_run_in_webassembly_has_links_and_empty_folders_and_keeps_the_modes(box: Sandbox, project: Path) -> None:
    look = "import os; print(os.readlink('link'), os.path.isdir('empty/below'), open('link').read()[:9])"
    result = box.run(f"{look}\nopen('run.sh', 'a').write('#'); os.rmdir('empty/below')", backend="wasm")
    assert (result.stdout, result.here) == ("run.sh True #!/bin/sh\n", "copy"), result.stderr
    assert kinds(box) == {"run.sh": ("modified", "file"), "empty/below": ("deleted", "directory")}
    box.apply()
    assert (project / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (project / "run.sh").read_text().endswith("#") and not (project / "empty/below").exists()


@pytest.mark.timeout(900)  # Zig's first program builds its libraries
def test_a_header_that_is_a_link_is_there_for_a_compiler_of_webassembly(box: Sandbox, project: Path) -> None:
    (project / "five.h").write_text("#define NUMBER 5\n")
    (project / "number.h").symlink_to("five.h")
    program = '#include "number.h"\n#include <stdio.h>\nint main(void) { printf("%d", NUMBER); }'
    assert box.run(program, "c", backend="wasm", timeout=300).stdout == "5"
    (project / "five.h").write_text("#define NUMBER 6\n")
    assert box.run(program, "c", backend="wasm", timeout=300).stdout == "6"


COPY_FILES = """
import os, pathlib, shutil
shutil.copy('run.sh', 'second.sh'); shutil.copy2('data/rows.csv', 'old.csv'); shutil.copytree('src', 'more')
os.chmod('run.sh', 0o700); pathlib.Path('closed').mkdir(); pathlib.Path('closed').chmod(0o711)
print(oct(os.stat('second.sh').st_mode & 0o777), os.stat('old.csv').st_mtime == os.stat('data/rows.csv').st_mtime)
for place in ('/usr', '/usr/bin/env'):
    try: os.chmod(place, 0o777)
    except OSError as error: print(type(error).__name__)
"""


def test_an_ordinary_user_behind_landlock_copies_files_with_their_modes(box: Sandbox, project: Path) -> None:
    wanted = "0o755 True\nPermissionError\nPermissionError\n"
    result = box.run(COPY_FILES)
    assert result.stdout == wanted, result.stderr
    box.discard()
    with box.session() as session:
        cell = session.run(COPY_FILES)
        assert cell.stdout == wanted, cell.stderr
    box.apply(["second.sh", "run.sh", "closed"])
    modes = {name: (project / name).stat().st_mode & 0o777 for name in ("second.sh", "run.sh", "closed")}
    assert modes == {"second.sh": 0o755, "run.sh": 0o700, "closed": 0o711}


def test_links_and_folders_that_a_program_changes_in_a_copy_are_kept(box: Sandbox, project: Path) -> None:
    result = box.run("import os; os.remove('link'); os.symlink('data', 'link'); os.removedirs('empty/below')")
    assert result.ok, result.stderr
    wanted = {
        "link": ("modified", "symlink"),
        "empty": ("deleted", "directory"),
        "empty/below": ("deleted", "directory"),
    }
    assert kinds(box) == wanted
    again = box.run("import os; print(os.readlink('link'), os.path.exists('empty'))")
    assert (again.stdout, again.changes) == ("data False\n", ())
    box.apply()
    assert os.readlink(project / "link") == "run.sh" and not (project / "empty").exists()
    box.apply(["link"])
    assert os.readlink(project / "link") == "data"


def test_a_file_in_the_place_of_a_folder_is_kept(box: Sandbox, project: Path) -> None:
    assert box.run("import shutil; shutil.rmtree('src'); open('src', 'w').write('a file')").ok
    assert kinds(box) == {"src": ("modified", "file"), "src/tool.py": ("deleted", "file")}
    box.apply(["src"])
    assert (project / "src").read_text() == "a file"


def test_a_folder_that_does_not_fit_is_refused(box: Sandbox, project: Path) -> None:
    (project / "large").write_bytes(b"x" * (3 << 20))
    with pytest.raises(InvalidRequest, match=r"do not fit into the work folder.*--disk"):
        box.run("print(1)", limits=Limits(disk_mb=2))
    assert box.run("import os; print(os.path.getsize('large'))").stdout == f"{3 << 20}\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_one_file_that_nobody_may_read_ends_no_run(box: Sandbox, project: Path) -> None:
    (project / "closed").write_text("x")
    (project / "closed").chmod(0)
    result = box.run("print(open('data/rows.csv').read().split())")
    assert result.stdout == "['a,b', '1,2']\n" and kinds(box) == {}
    assert any("closed" in note and note.kind is NoteKind.FILES_NOT_SHARED for note in result.notes)
