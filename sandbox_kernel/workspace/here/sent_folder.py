"""The user's folder as plain values, for a program that runs on another machine, and what the program changed there.

The other machine makes a private copy of it and works on that as on any folder of a user; what comes back becomes
changes like those of a program on this machine. Used by ``backends/dask``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sandbox_kernel.model import Note, notes
from sandbox_kernel.workspace.here.change_log import GONE
from sandbox_kernel.workspace.here.here_folder import HereFolder
from sandbox_kernel.workspace.here.layer_look import LayerChanges, Now
from sandbox_kernel.workspace.here.placing import place_folder, place_link
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK, TreeEntry


@dataclass(frozen=True)
class SentEntry:
    """A file, folder or link; or that there is nothing any more at a path (``type`` is ``gone``)."""

    path: str
    type: str
    mode: int = 0
    target: str | None = None
    data: bytes = b""


def pack_folder(here: HereFolder) -> list[SentEntry]:
    """Return the folder with its changes, without what is hidden. Raises ``InvalidRequest`` when it is too large."""
    with here.lock:
        found = {entry.path: _packed(here.project.root, entry) for entry in here.project.copied()}
        for path, kept in here.kept.entries.items():
            found.pop(path, None)
            if not kept.is_gone:
                entry = here.kept.root.stat(tuple(path.split("/")))
                found[path] = _packed(here.kept.root, entry._replace(mode=kept.mode))
    return [entry for _, entry in sorted(found.items()) if entry.type in (FILE, DIRECTORY, SYMLINK)]


def unpack(entries: Iterable[SentEntry], into: Rooted) -> None:
    """Make the entries in an empty folder; a folder gets its mode when everything is in it."""
    made = sorted(entries, key=lambda entry: entry.path)
    for entry in made:
        names = tuple(entry.path.split("/"))
        if entry.type == DIRECTORY:
            place_folder(into, names, entry.mode | 0o700)
        elif entry.type == SYMLINK:
            place_link(into, names, entry.target or "")
        elif entry.type == FILE:
            into.write(names, entry.data, entry.mode)
    for entry in reversed(made):
        if entry.type == DIRECTORY and entry.mode & 0o700 != 0o700:
            place_folder(into, tuple(entry.path.split("/")), entry.mode)


def pack_changes(here: HereFolder, most: int) -> tuple[list[SentEntry], list[Note]]:
    """Return the changes of a folder, up to ``most`` bytes of files together, and a note on what did not fit."""
    sent: list[SentEntry] = []
    with here.lock:
        for path, kept in sorted(here.kept.entries.items()):
            if kept.is_gone:
                sent.append(SentEntry(path, GONE))
                continue
            if kept.type == FILE and kept.size > most:
                return sent, [notes.files_stayed_on_worker(display_name(path))]
            entry = here.kept.root.stat(tuple(path.split("/")))
            sent.append(_packed(here.kept.root, entry._replace(mode=kept.mode)))
            most -= len(sent[-1].data)
    return sent, []


def take_changes(here: HereFolder, sent: Iterable[SentEntry], place: Rooted, began_ns: int) -> list[Note]:
    """Keep changes that were made elsewhere since ``began_ns``; ``place`` is an empty folder for their contents.

    Returns notes on what could not be kept.
    """
    entries = list(sent)
    unpack(entries, place)
    now = {entry.path: Now.GONE if entry.type == GONE else Now.CHANGED for entry in entries}
    return here.take(place, LayerChanges((), now, False), began_ns)


def _packed(root: Rooted, entry: TreeEntry) -> SentEntry:
    data = root.read(entry.names) if entry.type == FILE else b""
    return SentEntry(entry.path, entry.type, entry.mode & 0o777, entry.target, data)
