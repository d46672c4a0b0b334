"""What a work folder holds at the start: the files and folders of a manifest, and copies of the user's files.

A manifest may come from an agent: every path in it is checked before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.util.wire import BadMessage, check
from sandbox_kernel.workspace.folder_link import MAX_SHARED_BYTES, MAX_SHARED_FILES
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.transfer import usable_mode, why_no_name
from sandbox_kernel.workspace.tree.paths import names_beneath
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, Entry, WalkLimits

_FORMS = (
    '{"type": "file", "path": …, "content": …} (or "base64" instead of "content") or {"type": "directory", "path": …}'
)
_COPIED = WalkLimits(entries=MAX_SHARED_FILES + 1, seconds=5.0)


class _File(Struct, tag_field="type", tag=FILE, forbid_unknown_fields=True):
    path: str
    content: object = None
    base64: bytes | None = None


class _Folder(Struct, tag_field="type", tag=DIRECTORY, forbid_unknown_fields=True):
    path: str


class _Document(Struct, forbid_unknown_fields=True):
    entries: list[_File | _Folder]


@dataclass(frozen=True)
class Manifest:
    """The initial content of a work folder: files with their ``data`` and folders, in the order of writing.

    A later entry may replace a file of an earlier one.
    """

    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        for entry in self.entries:
            names_beneath(entry.path, folder=entry.is_dir)

    @classmethod
    def from_document(cls, document: object) -> Manifest:
        """Parse the JSON form: a list of objects, or an object with that list as ``entries``."""
        try:
            read = check(document if isinstance(document, Mapping) else {"entries": document}, _Document)
        except BadMessage as error:
            raise InvalidRequest(f"a manifest is a list of entries like {_FORMS}; {str(error)[:200]}") from None
        return cls(tuple(map(_entry, read.entries)))

    def provision(self, rooted: Rooted) -> None:
        """Write all entries beneath a root."""
        for entry in self.entries:
            if entry.is_dir:
                rooted.make_folder(entry.path)
            else:
                rooted.write(entry.path, entry.data or b"")


def _entry(read: _File | _Folder) -> Entry:
    if isinstance(read, _Folder):
        return Entry(read.path, DIRECTORY)
    content = read.content if read.base64 is None else read.base64
    if not isinstance(content, str | bytes) or None not in (read.content, read.base64):
        raise InvalidRequest(f"a file of a manifest has a text or bytes as content, or base64: {read.path[:100]!r}")
    return Entry(read.path, FILE, data=encoded(read.path, content))


def copy_from_host(host: Rooted, work: Rooted, path: str, *, again: bool = False) -> tuple[str, ...]:
    """Copy what the user's folder has at a path, and return the paths of the files. Follows no links.

    A folder is copied without the secrets in it; a secret only when it is named itself. Raises ``InvalidRequest``, and
    copies nothing, when the work folder has it already (unless it was copied before: ``again``), for what is neither
    file nor folder, and for more than a work folder shares.
    """
    top = host.stat(path)
    if top.type not in (FILE, DIRECTORY):
        raise InvalidRequest(f"{path!r} is a {top.type}, and only files and folders are copied; name what it leads to")
    if not again and work.look(path) is not None:
        raise InvalidRequest(
            f"the work folder has a {path!r} of its own already, which a copy would replace; rename it"
        )
    below = host.below(path, _COPIED, cross_mounts=True) if top.is_dir else []
    entries = [top, *(entry for entry in below if not is_hidden(entry.path))]
    size = sum(entry.size for entry in entries if entry.is_file)
    if size > MAX_SHARED_BYTES or len(entries) > MAX_SHARED_FILES:
        folder = path if top.is_dir else os.path.dirname(path) or "."
        raise InvalidRequest(
            f"{path!r} is too large to copy: {size // MIB} MB in {len(entries)} files, at most "
            f"{MAX_SHARED_BYTES // MIB} MB in {MAX_SHARED_FILES}; show its folder: %sandbox --mount {folder}:/data"
        )
    copied: list[str] = []
    for entry in [entry for entry in entries if entry.type in (FILE, DIRECTORY)]:
        why = why_no_name(entry.path)
        try:
            there = None if why else work.look(entry.names)
            if there is not None and there.type != entry.type:
                work.remove(entry.names)  # not with what programs have put into a folder
            if not why:
                work.put(entry._replace(mode=usable_mode(entry)), host)
                copied += [entry.path] if entry.is_file else []
        except SandboxError as error:
            why = str(error)
        if why and entry is top:
            raise InvalidRequest(f"{path!r} was not copied: {why}")
    return tuple(copied)
