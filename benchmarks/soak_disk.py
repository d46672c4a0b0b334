"""A small disk of the soak's own, and what it is to run programs while it is full.

Root only: a file system in memory is mounted where only this process and its children see it, so that it is gone with
them however they end. Elsewhere there is a plain folder, and no disk to fill.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_kernel import Sandbox
from sandbox_kernel.errors import SandboxError

_SIZE = "512m"
_CLONE_NEWNS = 0x20000
_BALLAST = "ballast"
_PIECE = bytes(1 << 20)


@contextmanager
def own_disk(folder: Path) -> Iterator[Path | None]:
    """A disk at ``folder``; None when it is a plain folder. Call it before any thread is started."""
    folder.mkdir()
    mounts = (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=755", "soak", str(folder)],
    )
    alone = os.geteuid() == 0 and ctypes.CDLL(None).unshare(_CLONE_NEWNS) == 0
    if not alone or any(subprocess.run(mount, capture_output=True, check=False).returncode for mount in mounts):
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def top_up(disk: Path) -> None:
    """Take whatever room there is, to the last byte."""
    with contextlib.suppress(OSError), open(disk / _BALLAST, "ab", buffering=0) as file:
        while file.write(_PIECE) == len(_PIECE):
            pass


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """The disk is full, and what others free can be taken again with ``top_up``."""
    top_up(disk)
    try:
        yield
    finally:
        (disk / _BALLAST).unlink()


def files_through_a_full_disk(disk: Path) -> int:
    """Files of runs and sessions where the host has no room for them; returns how often that was said.

    Results are right and say what was not kept, or there is an error with a type; with room again all is well.
    """
    # Zeros would take no room: they are copied as holes.
    writes = "open('f', 'wb').write(b'1' * (1 << 20)); print('ran')"
    said = 0
    with Sandbox() as box, box.session("python", memory_mb=256) as session:
        with full(disk):
            result = box.run(writes, "python", timeout=60)
            assert (result.ok, result.stdout) == (True, "ran\n"), result
            said += any("not kept" in note for note in result.notes)
            result = session.run(writes, timeout=60)
            assert (result.ok, result.stdout) == (True, "ran\n"), result
            said += any("shared" in note for note in result.notes)
            try:
                box.write_file("g", b"1" * (1 << 20))
            except SandboxError:
                said += 1
        assert said == 3, said
        assert box.run(writes, "python", timeout=60).ok
        assert len(box.read_file("f")) == 1 << 20
        assert session.run("print(len(open('f', 'rb').read()))", timeout=60).stdout == f"{1 << 20}\n"
    return said
