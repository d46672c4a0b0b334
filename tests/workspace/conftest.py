"""A work folder with a place beside it that nothing may touch, and hostile programs' usual tricks as helpers."""

import ctypes
import os
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from sandbox_kernel.workspace.tree import beneath
from sandbox_kernel.workspace.tree.rooted import Rooted

RENAME_EXCHANGE = 2
AT_FDCWD = -100


@pytest.fixture(params=["openat2", "step by step"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the test with the kernel's own walk and with the one for kernels that lack it."""
    if request.param == "openat2" and not beneath.openat2_works():
        pytest.skip("this kernel, or the filter we run under, has no openat2")
    monkeypatch.setattr(beneath, "openat2_works", lambda: request.param == "openat2")
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The work folder as the program inside sees it: tests plant their tricks here."""
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def rooted(folder: Path) -> Iterator[Rooted]:
    with Rooted.at(folder) as root:
        yield root


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the work folder; after the test it must be as it was."""
    path = tmp_path / "outside"
    path.mkdir()
    (path / "secret.txt").write_text("secret")
    before = _state(path)
    yield path
    assert _state(path) == before, "something outside the work folder was touched"


def _state(path: Path) -> list[tuple[str, int, int, int, int, bytes]]:
    found = []
    for item in sorted(path.rglob("*")):
        status = item.lstat()
        content = item.read_bytes() if item.is_file() else b""
        found.append((item.name, status.st_mode, status.st_ino, status.st_mtime_ns, status.st_nlink, content))
    return found


@pytest.fixture
def swapping() -> Callable[[Path, Path], AbstractContextManager[Callable[[], int]]]:
    """A program inside that keeps exchanging two names, as fast as the kernel lets it."""

    @contextmanager
    def run(one: Path, other: Path) -> Iterator[Callable[[], int]]:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        stop, swaps = threading.Event(), 0

        def swap() -> None:
            nonlocal swaps
            while not stop.is_set():
                swaps += renameat2(AT_FDCWD, bytes(one), AT_FDCWD, bytes(other), RENAME_EXCHANGE) == 0

        thread = threading.Thread(target=swap)
        thread.start()
        try:
            yield lambda: swaps
        finally:
            stop.set()
            thread.join()

    return run


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for very many files: in memory where the host has that, for a disk takes a minute for them."""
    if os.access("/dev/shm", os.W_OK):
        path = Path("/dev/shm") / f"sandbox-kernel-test-{secrets.token_hex(6)}"
        path.mkdir()
        yield path
        subprocess.run(["rm", "-rf", path], check=True)  # what a failing test leaves is beyond shutil.rmtree
    else:
        yield tmp_path


@pytest.fixture
def dig() -> Callable[[Path, int], None]:
    """Makes a chain of folders deeper than any path can name."""

    def run(top: Path, levels: int) -> None:
        fd = os.open(top, os.O_RDONLY)
        for _ in range(levels):
            os.mkdir("a", dir_fd=fd)
            following = os.open("a", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = following
        os.close(fd)

    return run
