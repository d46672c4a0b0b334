"""The work folder as one tar file on the host, and back.

A tar may be hostile, and Python's ``tarfile`` reads it at a cost that nothing bounds. So the host only writes one; it
is read by ``UNPACK``, a program of ours in a jail, whose files are then brought in like those of any run.
"""

from __future__ import annotations

import io
import os
import tarfile

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.policy.written_folders import host_file
from sandbox_kernel.util.own_folder import whole_file
from sandbox_kernel.workspace.transfer import Skipped, take_folder
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE, SYMLINK, Entry

#: Reads a tar on standard input into an empty work folder. It leaves the folder empty when a member is none of ours;
#: ``LEADS_OUT`` is its exit code for one that is not below the work folder.
LEADS_OUT = 3
UNPACK = f"""
import os, shutil, sys, tarfile
def refuse(why, code=1):
    for name in os.listdir():
        shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
    print(why[:300], file=sys.stderr)
    sys.exit(code)
try:
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as tar:
        for member in tar:
            parts = member.name.split("/")
            if member.name.startswith("/") or ".." in parts:
                refuse(ascii(member.name)[:200] + " leads out of the work folder", {LEADS_OUT})
            if not (member.isfile() or member.isdir()) or member.issparse():
                refuse(ascii(member.name)[:200] + " is neither a file nor a folder")
            member.mode = member.mode & 0o777 | (0o700 if member.isdir() else 0o600)
            tar.extract(member, ".", set_attrs=not member.isdir())
except Exception as error:
    refuse(type(error).__name__ + ": " + str(error))
"""


def save(rooted: Rooted, path: str | os.PathLike[str]) -> tuple[Skipped, ...]:
    """Write what is beneath a root to a tar of the host, all or nothing. Returns what a tar cannot hold."""
    state = take_folder(rooted)
    held = [entry for entry in state.entries.values() if entry.is_file or entry.is_dir]
    skipped = [Skipped(path=path, type=FILE, reason=why) for path, why in state.left_out.items()]
    links = [entry.path for entry in state.entries.values() if entry.type == SYMLINK]
    skipped += [Skipped(path=path, type=SYMLINK, reason="a tar file of ours holds files and folders") for path in links]
    try:
        with whole_file(host_file(path)) as out, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for entry in held:
                tar.addfile(_info(entry), io.BytesIO(entry.data or b""))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"the work folder cannot be saved to {str(path)!r}: {error}; check the path") from error
    return tuple(skipped)


def _info(entry: Entry) -> tarfile.TarInfo:
    info = tarfile.TarInfo(entry.path)
    info.type, info.size = (tarfile.DIRTYPE, 0) if entry.is_dir else (tarfile.REGTYPE, entry.size)
    info.mode, info.mtime = entry.bits, max(0, entry.mtime_ns) // 10**9
    return info
