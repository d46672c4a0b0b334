"""Copies of the user's files in a work folder, for programs that do not work on the user's folder itself."""

from __future__ import annotations

import os

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.folder_link import MAX_SHARED_BYTES, MAX_SHARED_FILES
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.kept_changes import Room
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, WalkLimits

_COPIED = WalkLimits(entries=MAX_SHARED_FILES + 1, seconds=5.0)


def copy_from_host(host: Rooted, folder: BoxFolder, path: str, *, again: bool = False) -> tuple[str, ...]:
    """Copy what the user's folder has at a path, and return the paths of the files. Follows no links.

    A folder is copied without the secrets in it; a secret only when it is named itself. Raises ``InvalidRequest``, and
    copies nothing, when the work folder has it already (unless it was copied before: ``again``), for what is neither
    file nor folder, and for more than a work folder shares.
    """
    top = host.stat(path)
    if top.type not in (FILE, DIRECTORY):
        raise InvalidRequest(f"{path!r} is a {top.type}, and only files and folders are copied; name what it leads to")
    if not again and top.path in folder.kept.entries:
        raise InvalidRequest(
            f"the work folder has a {path!r} of its own already, which a copy would replace; rename it"
        )
    below = host.below(path, _COPIED, cross_mounts=True) if top.is_dir else []
    entries = [top, *(entry for entry in below if not is_hidden(entry.path))]
    size = sum(entry.size for entry in entries if entry.is_file)
    if size > MAX_SHARED_BYTES or len(entries) > MAX_SHARED_FILES:
        whole = path if top.is_dir else os.path.dirname(path) or "."
        raise InvalidRequest(
            f"{path!r} is too large to copy: {size // MIB} MB in {len(entries)} files, at most "
            f"{MAX_SHARED_BYTES // MIB} MB in {MAX_SHARED_FILES}; show its folder: %sandbox --mount {whole}:/data"
        )
    skipped = folder.take(host, {entry.path: entry for entry in entries}, Room(MAX_PACKED_BYTES, MAX_PACKED_FILES))
    left = {each.path: each.reason for each in skipped}
    if top.path in left:
        raise InvalidRequest(f"{path!r} was not copied: {left[top.path]}")
    return tuple(entry.path for entry in entries if entry.is_file and entry.path not in left)
