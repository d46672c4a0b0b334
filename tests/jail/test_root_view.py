"""What only root can reach is shown to a sandbox's user by one thread, and nobody else's view changes."""

import os
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel.jail.spawner import SpawnOrder, spawn, viewed_places

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has what others cannot reach")

NOBODY = 65534


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """A folder that anybody may read, below one that nobody may enter."""
    closed = tmp_path / "closed"
    (closed / "shown").mkdir(parents=True)
    (closed / "shown" / "a.txt").write_text("seen")
    closed.chmod(0o700)
    return closed / "shown"


def read_as_nobody(source: Path) -> str:
    view = viewed_places([str(source)])
    assert view is not None
    out, into = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    child = spawn(SpawnOrder(["/bin/cat", f"{view[str(source)]}/a.txt"], (), null, into, into, NOBODY, view))
    os.close(into)
    os.close(null)
    child.wait(10)
    with open(out) as file:
        return file.read()


def test_a_user_reads_what_lies_below_a_closed_folder(hidden: Path) -> None:
    direct = subprocess.run(["/bin/cat", hidden / "a.txt"], user=NOBODY, capture_output=True, text=True, check=False)
    assert "Permission denied" in direct.stderr
    assert read_as_nobody(hidden) == "seen"


def test_no_other_thread_sees_it(hidden: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    assert read_as_nobody(hidden) == "seen"
    assert Path("/proc/thread-self/mountinfo").read_text() == before
    view = viewed_places([str(hidden)])
    assert view is not None and not os.path.exists(f"{view[str(hidden)]}/a.txt")


def test_a_folder_that_was_replaced_is_shown_anew(hidden: Path) -> None:
    assert read_as_nobody(hidden) == "seen"
    hidden.rename(hidden.parent / "old")
    hidden.mkdir()
    (hidden / "a.txt").write_text("new")
    assert read_as_nobody(hidden) == "new"


def test_what_lies_where_the_view_is_built_cannot_be_shown() -> None:
    assert viewed_places(["/usr", "/run/somewhere"]) is None


def test_a_source_that_is_missing_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        viewed_places(["/nowhere/at/all"])
