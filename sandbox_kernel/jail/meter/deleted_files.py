"""Room that files take which have no name any more, found at the processes that hold them. For ``FolderWatch``.

A file lives on in a descriptor of any thread, in a mapping, and on its way through a socket. Descriptors are looked at
always; the others only when room vanishes, because there may be many of them, and none matters as long as the file
system as a whole has lost nothing.
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
    """``sizes`` by inode. ``hidden``: some are held where their size cannot be asked for."""

    sizes: dict[int, int] = field(default_factory=dict)
    hidden: bool = False

    @property
    def used(self) -> int:
        """Bytes on the disk."""
        return sum(self.sizes.values())


def deleted_files(pids: Iterable[int], device: int, *, thorough: bool) -> Deleted:
    """Regular files of a device without a name that these processes hold; ``thorough`` looks into every corner."""
    found = Deleted()
    for pid in pids:
        try:
            for table in descriptor_tables(pid):
                _in_descriptors(f"/proc/{table}", device, found, in_flight=thorough)
            if thorough:
                _in_mappings(speaker(pid), device, found)
        except PermissionError:  # it ends just now, or does not let its own user look into it
            found.hidden = found.hidden or has_memory(pid)
        except OSError:
            continue  # who has ended holds nothing
    return found


def _in_descriptors(task: str, device: int, found: Deleted, *, in_flight: bool) -> None:
    try:
        names = os.listdir(f"{task}/fd")
    except FileNotFoundError:
        return  # one thread has ended, others go on
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
    """Whether descriptors that were sent wait in a socket; which ones, nobody tells."""
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
                except PermissionError:  # only root may ask
                    found.hidden = True
                except OSError:
                    continue  # it is mapped no longer
