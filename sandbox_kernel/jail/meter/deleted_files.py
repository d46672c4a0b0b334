"""Finds deleted files that still take space, through the processes that hold them. For ``FolderWatch``.

A deleted file lives on in a descriptor of any thread, in a mapping, and in a message of a socket. Descriptors are
always checked. The others are checked only while the file system loses space, because there may be many of them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from sandbox_kernel.jail.meter.process_tree import has_memory
from sandbox_kernel.jail.meter.process_view import descriptor_tables, speaker

_BLOCK = 512
_DELETED = b" (deleted)\n"


@dataclass
class Deleted:
    """``sizes`` by inode. ``hidden``: some files are held where their size cannot be read."""

    sizes: dict[int, int] = field(default_factory=dict)
    hidden: bool = False

    @property
    def used(self) -> int:
        """Return the bytes on disk."""
        return sum(self.sizes.values())


def deleted_files(pids: Iterable[int], device: int, *, thorough: bool) -> Deleted:
    """Find deleted files of a device that these processes hold; ``thorough`` also checks threads and mappings."""
    found = Deleted()
    for pid in pids:
        try:
            for table in descriptor_tables(pid):
                _in_descriptors(f"/proc/{table}", device, found, in_flight=thorough)
            if thorough:
                _in_mappings(speaker(pid), device, found)
        except PermissionError:  # the process is ending, or its own user may not look into it
            found.hidden = found.hidden or has_memory(pid)
        except OSError:
            continue  # a process that has ended holds nothing
    return found


def _in_descriptors(task: str, device: int, found: Deleted, *, in_flight: bool) -> None:
    try:
        names = os.listdir(f"{task}/fd")
    except FileNotFoundError:
        return  # one thread has ended, others may still run
    for name in names:
        with contextlib.suppress(OSError):
            info = os.stat(f"{task}/fd/{name}")
            if in_flight and stat.S_ISSOCK(info.st_mode):
                found.hidden = found.hidden or _carries_files(f"{task}/fdinfo/{name}")
            _note(info, device, found)


def _note(info: os.stat_result, device: int, found: Deleted) -> None:
    if info.st_nlink == 0 and stat.S_ISREG(info.st_mode) and info.st_dev == device:
        found.sizes[info.st_ino] = info.st_blocks * _BLOCK


def _carries_files(path: str) -> bool:
    """Whether a socket contains descriptors in messages. The kernel does not say which ones."""
    with open(path, "rb") as file:
        return any(line.startswith(b"scm_fds:") and int(line.split()[1]) > 0 for line in file)


def _in_mappings(task: str, device: int, found: Deleted) -> None:
    number = task.rpartition("/")[2]
    place = f"{os.major(device):02x}:{os.minor(device):02x}".encode()
    with open(f"/proc/{task}/maps", "rb") as file:
        for line in file:
            if not line.endswith(_DELETED):
                continue
            addresses, _, _, where, inode = line.split(maxsplit=5)[:5]
            if where == place and int(inode) not in found.sizes:
                try:
                    _note(os.stat(f"/proc/{number}/map_files/{addresses.decode()}"), device, found)
                except PermissionError:  # only root may read it
                    found.hidden = True
                except OSError:
                    continue  # no longer mapped
