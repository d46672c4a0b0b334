"""Copies a file or folder of the user into a work folder, to the same relative path; follows no links, is bounded."""

from __future__ import annotations

import os

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.shared_folder import MAX_SHARED_BYTES, MAX_SHARED_FILES
from sandbox_kernel.workspace.transfer import collect
from sandbox_kernel.workspace.tree.beneath import open_folder
from sandbox_kernel.workspace.tree.paths import names_beneath
from sandbox_kernel.workspace.tree.refusals import explained
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, TreeEntry, WalkLimits

_LIMITS = WalkLimits(entries=MAX_SHARED_FILES + 1, seconds=5.0)


def copy_from_host(host: Rooted, work: Rooted, path: str, *, again: bool = False) -> tuple[str, ...]:
    """Copy a file, or a folder without the secrets in it, and return the paths of the files.

    Args:
        host: The user's folder.
        work: The work folder.
        path: What to copy, relative to both. A secret is copied only when it is named itself.
        again: Whether it was copied before and may be replaced.

    Raises:
        InvalidRequest: The work folder has it already, or it is a link, neither file nor folder, or more than a work
            folder shares. Nothing was copied.

    """
    top = host.stat(path)
    if top.type not in (FILE, DIRECTORY):
        raise InvalidRequest(f"{path!r} is a {top.type}, and only files and folders are copied; name what it leads to")
    if not again and _exists(work, path):
        raise InvalidRequest(
            f"the work folder has a {path!r} of its own already, which a copy would replace; rename it"
        )
    entries = [top] if top.type == FILE else [top, *_below(host, path)]
    size = sum(entry.size for entry in entries if entry.type == FILE)
    if size > MAX_SHARED_BYTES or len(entries) > MAX_SHARED_FILES:
        folder = path if top.type == DIRECTORY else os.path.dirname(path) or "."
        raise InvalidRequest(
            f"{path!r} is too large to copy: {size // MIB} MB in {len(entries)} files, at most "
            f"{MAX_SHARED_BYTES // MIB} MB in {MAX_SHARED_FILES}; show its folder: %sandbox --mount {folder}:/data"
        )
    changes = [FsChange(path=entry.path, kind="created", type=entry.type) for entry in entries]
    skipped = collect(host, work, changes, MAX_SHARED_BYTES, MAX_SHARED_FILES, delete=True, reusable=True)
    if any(one.path == top.path for one in skipped):
        raise InvalidRequest(f"{path!r} was not copied: {skipped[0].reason}")
    left = {one.path for one in skipped}
    return tuple(entry.path for entry in entries if entry.type == FILE and entry.path not in left)


def _exists(work: Rooted, path: str) -> bool:
    try:
        work.stat(path)
    except InvalidRequest:
        return False
    return True


def _below(host: Rooted, path: str) -> list[TreeEntry]:
    with explained("look into", path):
        fd = open_folder(host.fileno(), names_beneath(path, folder=True))
    try:
        with Rooted(fd) as folder:
            found = [entry._replace(path=f"{path}/{entry.path}") for entry in folder.walk(_LIMITS)]
    finally:
        os.close(fd)
    return [entry for entry in found if not is_hidden(entry.path)]
