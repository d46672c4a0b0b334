"""What a work folder holds at the start: files and folders, listed by a program or an agent.

All paths of a manifest are checked before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import BadMessage, check
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.tree.paths import names_beneath
from sandbox_kernel.workspace.tree.rooted import encoded
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, Entry

_FORMS = (
    '{"type": "file", "path": …, "content": …} (or "base64" instead of "content") or {"type": "directory", "path": …}'
)


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
    """Files with their ``data``, and folders, in the order of writing; a later entry may replace an earlier file."""

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

    def provision(self, folder: BoxFolder) -> None:
        """Write all entries."""
        for entry in self.entries:
            folder.make_folder(entry.path) if entry.is_dir else folder.write(entry.path, entry.data or b"")


def _entry(read: _File | _Folder) -> Entry:
    if isinstance(read, _Folder):
        return Entry(read.path, DIRECTORY)
    content = read.content if read.base64 is None else read.base64
    if not isinstance(content, str | bytes) or None not in (read.content, read.base64):
        raise InvalidRequest(f"a file of a manifest has a text or bytes as content, or base64: {read.path[:100]!r}")
    return Entry(read.path, FILE, data=encoded(read.path, content))
