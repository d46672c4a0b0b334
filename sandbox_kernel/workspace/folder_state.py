"""The content of a work folder as values: files, folders and links, with modes and times.

Taken from one tree when a session is saved, and put into another when it is loaded. A saved file may be hostile:
``check_entries`` refuses what ``take_folder`` would not have made. Links that could lead out of the folder are never
taken and never made. The owner of a file can always read and write it; set-user, set-group and sticky bits are dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.model import check_file_name
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES, PACKED, refuse_partial
from sandbox_kernel.workspace.tree.beneath import as_owner_of, in_folder
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, GONE, NO_TIME, SYMLINK, Entry

_TYPES = (FILE, DIRECTORY, SYMLINK, GONE)
#: The longest target of a link, and the latest time of a file: the year 2242.
_MOST_TARGET, _LATEST_NS = 4000, (1 << 33) * 10**9
#: How many entries that were left out are named.
MOST_LEFT_OUT = 100


@dataclass(frozen=True)
class FolderState:
    """The contents of files by path, what is known of every path, and what was left out, each with the reason."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    entries: Mapping[str, Entry] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Whether these are changes of a folder of the user, and not a whole work folder.
    is_layer: bool = False


def take_folder(root: Rooted) -> FolderState:
    """Return everything beneath a root; raises ``InvalidRequest`` when it is too much."""
    walk = root.walk(PACKED)
    entries = list(walk)
    refuse_partial(walk.unseen, "saved", MAX_PACKED_BYTES, MAX_PACKED_FILES)
    return folder_of(entries, lambda entry: root.read_part(entry.names, 0, entry.size)[0])


def folder_of(entries: Iterable[Entry], read: Callable[[Entry], bytes]) -> FolderState:
    """Return the state of these entries; ``read`` returns the content of a file."""
    files: dict[str, bytes] = {}
    known: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    first: dict[int, str] = {}
    total = 0
    for entry in entries:
        why = _why_not(entry)
        if why:
            left_out[entry.path] = why
            continue
        if entry.is_file:
            total += entry.size
            if total > MAX_PACKED_BYTES:
                refuse_partial({"": "file_bytes"}, "saved", MAX_PACKED_BYTES, MAX_PACKED_FILES)
            try:
                files[entry.path] = read(entry)
            except SandboxError as error:
                left_out[entry.path] = f"it was changed while the session was saved: {error}"
                continue
            one = first.setdefault(entry.inode, entry.path)
            if one != entry.path:
                left_out[entry.path] = f"it and {display_name(one)} were one file, and are two files now"
        known[entry.path] = Entry(
            entry.path, entry.type, mode=_mode(entry), mtime_ns=kept_time(entry.mtime_ns), target=entry.target
        )
    return FolderState(files, known, dict(list(left_out.items())[:MOST_LEFT_OUT]))


def with_gone(state: FolderState, paths: Collection[str]) -> FolderState:
    """Return a state of changes to the user's folder, with the paths that were removed there."""
    unnamed = {path: why for path in paths if (why := _why_no_name(path))}
    gone = {path: Entry(path, GONE) for path in paths if path not in unnamed}
    left_out = dict(list({**state.left_out, **unnamed}.items())[:MOST_LEFT_OUT])
    return replace(state, entries={**state.entries, **gone}, left_out=left_out, is_layer=True)


def _why_no_name(path: str) -> str:
    try:
        check_file_name(path)
    except InvalidRequest:
        return "no sandbox could be given a file of this name"
    return ""


def _why_not(entry: Entry) -> str:
    if why := _why_no_name(entry.path):
        return why
    if entry.type == SYMLINK:
        return "the link leads out of the work folder" if leads_out(entry.path, entry.target or "") else ""
    return "" if entry.type in (FILE, DIRECTORY) else f"a {entry.type} is not saved; only files, folders and links are"


def leads_out(path: str, target: str) -> bool:
    """Whether a link could lead out of the folder, also through other links.

    One that goes up goes up first, from the real folder that it is in, and no further than to the root.
    """
    parts = target.split("/")
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return not target or target[0] == "/" or up > path.count("/") or ".." in parts[up:] or "\0" in target


def _mode(entry: Entry) -> int:
    return entry.bits | (0o700 if entry.is_dir else 0o600)


def kept_time(mtime_ns: int) -> int:
    """Return the time of a file if one can be saved."""
    return mtime_ns if 0 <= mtime_ns < _LATEST_NS else NO_TIME


def put_folder(state: FolderState, root: Rooted) -> dict[str, str]:
    """Make everything of a state beneath a root. Returns the paths that are not as they were, each with the reason."""
    known = {**{path: Entry(path, FILE, mode=0o644) for path in state.files}, **state.entries}
    found: dict[str, str] = {}
    for path, entry in sorted(known.items()):
        root.put(entry._replace(mode=_mode(entry), data=state.files.get(path)))
    # The time of a folder changes with what is put into it.
    for path, entry in sorted(known.items(), reverse=True):
        if entry.mtime_ns != NO_TIME and not entry.is_gone:
            try:
                with in_folder(root.fileno(), entry.names[:-1]) as folder, as_owner_of(folder):
                    times = (entry.mtime_ns, entry.mtime_ns)
                    os.utime(entry.name, ns=times, dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                found[path] = f"its time could not be set: {error.strerror}"
    return dict(list(found.items())[:MOST_LEFT_OUT])


def check_entries(entries: Mapping[str, Entry], files: Iterable[str]) -> None:
    """Raise ``ValueError`` for entries of a saved file that no folder has."""
    named = set(files)
    if {path for path, entry in entries.items() if entry.is_file} - named:
        raise ValueError("a file without content")
    if any(path in entries and not entries[path].is_file for path in named):
        raise ValueError("a content of what is no file")
    for path, entry in entries.items():
        check_file_name(path)
        if entry.type not in _TYPES or not 0 <= entry.mode <= 0o777 or not NO_TIME <= entry.mtime_ns < _LATEST_NS:
            raise ValueError("not an entry of a folder")
        if entry.type == SYMLINK and (len(entry.target or "") > _MOST_TARGET or leads_out(path, entry.target or "")):
            raise ValueError("a link that leads out")
    closed = {path for path in (*entries, *named) if path not in entries or not entries[path].is_dir}
    # What was removed may lie in a folder that was removed too, or has become a file or a link.
    for path in {path for path in entries if not entries[path].is_gone} | named:
        parts = path.split("/")
        if any("/".join(parts[:count]) in closed for count in range(1, len(parts))):
            raise ValueError("a path below a file or a link")
