"""``Manifest``: the files, folders and archives that a work folder holds at the start.

A manifest may come from an agent. Every path in it is checked before anything is written, and archives are read only
from the folder that the caller names for them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.workspace.archive import MAX_ARCHIVE_BYTES, MAX_ARCHIVE_FILES, unpack
from sandbox_kernel.workspace.tree.paths import names_beneath
from sandbox_kernel.workspace.tree.rooted import Rooted

_FORMS = (
    '{"type": "file", "path": …, "content": …} (or "base64" instead of "content"), '
    '{"type": "directory", "path": …} or {"type": "archive", "path": …, "into": …}'
)


@dataclass(frozen=True)
class FileEntry:
    """A file to write.

    Args:
        path: Path in the work folder.
        content: Content of the file.

    """

    path: str
    content: bytes

    def __post_init__(self) -> None:
        names_beneath(self.path)
        if not isinstance(self.content, bytes):
            raise InvalidRequest(f"content of {self.path!r} must be bytes, got {type(self.content).__name__}")


@dataclass(frozen=True)
class DirectoryEntry:
    """A folder to make.

    Args:
        path: Path in the work folder.

    """

    path: str

    def __post_init__(self) -> None:
        names_beneath(self.path, folder=True)


@dataclass(frozen=True)
class ArchiveEntry:
    """A tar file to unpack.

    Args:
        path: Path in the folder of archives that the caller gives to ``provision``.
        into: Folder in the work folder that receives the content.

    """

    path: str
    into: str = "."

    def __post_init__(self) -> None:
        names_beneath(self.path)
        names_beneath(self.into, folder=True)


ManifestEntry = FileEntry | DirectoryEntry | ArchiveEntry


@dataclass(frozen=True)
class Manifest:
    """The initial content of a work folder.

    Args:
        entries: Files, folders and archives in the order in which they are written. A later entry may replace a file
            of an earlier one.

    """

    entries: tuple[ManifestEntry, ...] = ()

    @classmethod
    def from_document(cls, document: object) -> Manifest:
        """Parse the JSON form: a list of objects, or an object with that list as ``entries``.

        Args:
            document: The parsed JSON value.

        """
        if isinstance(document, Mapping) and set(document) == {"entries"}:
            document = document["entries"]
        if not isinstance(document, Sequence) or isinstance(document, str | bytes):
            raise InvalidRequest(f"a manifest is a list of entries like {_FORMS}; got {_brief(document)}")
        return cls(tuple(map(_entry, document)))

    def provision(self, rooted: Rooted, archives: Rooted | None = None) -> None:
        """Write all entries beneath a root.

        Args:
            rooted: The work folder.
            archives: The folder of the tar files; None allows no archive entries.

        """
        for entry in self.entries:
            if isinstance(entry, ArchiveEntry) and archives is None:
                raise InvalidRequest(
                    f"the manifest asks for archive {entry.path!r}, and no folder of archives was given"
                )
        for entry in self.entries:
            match entry:
                case FileEntry():
                    rooted.write(entry.path, entry.content)
                case DirectoryEntry():
                    rooted.make_folder(entry.path)
                case ArchiveEntry() if archives is not None:
                    _unpack(entry, rooted, archives)


def _unpack(entry: ArchiveEntry, rooted: Rooted, archives: Rooted) -> None:
    with open(archives.open_file(entry.path), "rb") as file:
        into = names_beneath(entry.into, folder=True)
        unpack(file.fileno(), rooted, into=into, max_bytes=MAX_ARCHIVE_BYTES, max_files=MAX_ARCHIVE_FILES)


def _entry(item: object) -> ManifestEntry:
    if not isinstance(item, Mapping):
        raise InvalidRequest(f"a manifest entry is one of {_FORMS}; got {_brief(item)}")
    keys = set(item)
    match item.get("type"):
        case "file" if keys == {"type", "path", "content"}:
            return FileEntry(_text(item, "path"), _content(item["content"]))
        case "file" if keys == {"type", "path", "base64"}:
            return FileEntry(_text(item, "path"), _decoded(_text(item, "base64")))
        case "directory" if keys == {"type", "path"}:
            return DirectoryEntry(_text(item, "path"))
        case "archive" if keys in ({"type", "path"}, {"type", "path", "into"}):
            return ArchiveEntry(_text(item, "path"), _text(item, "into") if "into" in item else ".")
    raise InvalidRequest(f"a manifest entry is one of {_FORMS}; got {_brief(dict(item))}")


def _text(item: Mapping[object, object], key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise InvalidRequest(f"{key!r} of a manifest entry must be text, got {_brief(value)}")
    return value


def _content(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise InvalidRequest(f"'content' of a manifest entry must be text or bytes, got {_brief(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"'content' of a manifest entry holds a lone surrogate at position {error.start}; give it as 'base64'"
        ) from None


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"'base64' of a manifest entry cannot be decoded: {error}") from None


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"
