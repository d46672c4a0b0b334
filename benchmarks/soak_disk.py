"""Makes a small disk for the soak, and runs programs while it is full.

Only as root: mounts a memory file system that only this process and its children see, so that it disappears with them.
Other users get a plain folder, and no disk is filled.
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
    """Mount a disk at ``folder``; None if it stays a plain folder. Call it before any thread starts."""
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
    """Fill the disk to the last byte."""
    with contextlib.suppress(OSError), open(disk / _BALLAST, "ab", buffering=0) as file:
        while file.write(_PIECE) == len(_PIECE):
            pass


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Keep the disk full. ``top_up`` fills space that others have freed."""
    top_up(disk)
    try:
        yield
    finally:
        (disk / _BALLAST).unlink()


def files_through_a_full_disk(disk: Path) -> int:
    """Run programs and sessions that write files while the disk is full; return how often that was reported.

    Checks that each result is correct and lists what was not kept, or that the error has one of our types; and that
    everything works once there is space again.
    """
    # Not zeros: these are copied as holes and take no space.
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
