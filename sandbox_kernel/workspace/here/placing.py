"""Puts single files, folders and links into a tree beneath its root; the tree may be the merged folder of a jail."""

from __future__ import annotations

import os
from contextlib import suppress

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.workspace.transfer import copy_sparsely
from sandbox_kernel.workspace.tree.beneath import PASS, open_folder
from sandbox_kernel.workspace.tree.owner import as_owner_of
from sandbox_kernel.workspace.tree.paths import Names
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK, TreeEntry


def place(source: Rooted, entry: TreeEntry, into: Rooted) -> None:
    """Copy one entry of ``source`` to the same path, in place of what is there; special files are left out."""
    there = look(into, entry.names)
    if there is not None and there.type != entry.type:
        take_away(into, entry.names)
    if entry.type == DIRECTORY:
        place_folder(into, entry.names, entry.mode & 0o777)
    elif entry.type == SYMLINK and entry.target is not None:
        place_link(into, entry.names, entry.target)
    elif entry.type == FILE:
        fd = source.open_file(entry.names)
        try:
            with into.replacing(entry.names, entry.mode & 0o777) as target:
                copy_sparsely(chunks(fd, entry.size), target)
        finally:
            os.close(fd)


def place_folder(into: Rooted, names: Names, mode: int) -> None:
    """Make a folder, or give the one that is there this mode."""
    into.make_folder(names, mode)
    fd = open_folder(into.fileno(), names)
    try:
        if os.fstat(fd).st_mode & 0o777 != mode:
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def place_link(into: Rooted, names: Names, target: str) -> None:
    """Make a link in place of the file or link that is there."""
    if len(names) > 1:
        into.make_folder(names[:-1])
    folder = open_folder(into.fileno(), names[:-1], PASS)
    try:
        with suppress(FileNotFoundError):
            os.unlink(names[-1], dir_fd=folder)
        with as_owner_of(folder):
            os.symlink(target, names[-1], dir_fd=folder)
    finally:
        os.close(folder)


def write_in_place(into: Rooted, names: Names, data: bytes, mode: int) -> None:
    """Write a file into the one that is there, so that descriptors that programs hold stay valid, or make it."""
    there = look(into, names)
    if there is None or there.type != FILE:
        into.write(names, data, mode)
        return
    folder = open_folder(into.fileno(), names[:-1], PASS)
    try:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(names[-1], flags, dir_fd=folder)
        except PermissionError:
            into.write(names, data, mode)
            return
    finally:
        os.close(folder)
    try:
        os.ftruncate(fd, 0)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def take_away(into: Rooted, names: Names) -> None:
    """Remove what is at a path, with everything in it; nothing there is as well."""
    if look(into, names) is not None:
        into.remove(names, tree=True)


def look(root: Rooted, names: Names) -> TreeEntry | None:
    """Return the entry at a path; None when nothing is there."""
    try:
        return root.stat(names)
    except SandboxError:
        return None
