"""What a work folder holds at the start: the files, folders and archives of a manifest, and copies of the user's files.

A manifest may come from an agent. Every path in it is checked before anything is written, and archives are read only
from the folder that the caller names for them.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.archive import unpack
from sandbox_kernel.workspace.box_folder import MAX_SHARED_BYTES, MAX_SHARED_FILES
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.transfer import collect
from sandbox_kernel.workspace.tree.paths import names_beneath
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, WalkLimits

_FORMS = (
    '{"type": "file", "path": …, "content": …} (or "base64" instead of "content"), '
    '{"type": "directory", "path": …} or {"type": "archive", "path": …, "into": …}'
)
_COPIED = WalkLimits(entries=MAX_SHARED_FILES + 1, seconds=5.0)


@dataclass(frozen=True)
class ManifestEntry:
    """What a manifest puts at a path: a file with its content, a folder, or what a tar file holds.

    Args:
        type: ``file``, ``directory`` or ``archive``.
        path: Path in the work folder; of an archive, in the folder of archives that the caller gives to ``provision``.
        content: Content of a file.
        into: Folder in the work folder that receives the content of an archive.

    """

    type: str
    path: str
    content: bytes = b""
    into: str = "."

    def __post_init__(self) -> None:
        names_beneath(self.path, folder=self.type == DIRECTORY)
        names_beneath(self.into, folder=True)
        if not isinstance(self.content, bytes):
            raise InvalidRequest(f"content of {self.path!r} must be bytes, got {type(self.content).__name__}")


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
            if entry.type == "archive" and archives is None:
                raise InvalidRequest(
                    f"the manifest asks for archive {entry.path!r}, and no folder of archives was given"
                )
        for entry in self.entries:
            if entry.type == FILE:
                rooted.write(entry.path, entry.content)
            elif entry.type == DIRECTORY:
                rooted.make_folder(entry.path)
            elif archives is not None:
                with archives.reading(entry.path) as fd:
                    unpack(fd, rooted, into=names_beneath(entry.into, folder=True))


def _entry(item: object) -> ManifestEntry:
    if isinstance(item, Mapping):
        keys = set(item)
        match item.get("type"):
            case "file" if keys == {"type", "path", "content"}:
                path, content = _text(item, "path"), item["content"]
                if not isinstance(content, str | bytes):
                    raise InvalidRequest(f"'content' of a manifest entry must be text or bytes, got {_brief(content)}")
                return ManifestEntry(FILE, path, encoded(path, content))
            case "file" if keys == {"type", "path", "base64"}:
                return ManifestEntry(FILE, _text(item, "path"), _decoded(_text(item, "base64")))
            case "directory" if keys == {"type", "path"}:
                return ManifestEntry(DIRECTORY, _text(item, "path"))
            case "archive" if keys in ({"type", "path"}, {"type", "path", "into"}):
                into = _text(item, "into") if "into" in item else "."
                return ManifestEntry("archive", _text(item, "path"), into=into)
    raise InvalidRequest(f"a manifest entry is one of {_FORMS}; got {_brief(item)}")


def _text(item: Mapping[object, object], key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise InvalidRequest(f"{key!r} of a manifest entry must be text, got {_brief(value)}")
    return value


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"'base64' of a manifest entry cannot be decoded: {error}") from None


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def copy_from_host(host: Rooted, work: Rooted, path: str, *, again: bool = False) -> tuple[str, ...]:
    """Copy what the user's folder has at a path, and return the paths of the files. Follows no links.

    A folder is copied without the secrets in it; a secret only when it is named itself. Raises ``InvalidRequest``, and
    copies nothing, when the work folder has it already (unless it was copied before: ``again``), for what is neither
    file nor folder, and for more than a work folder shares.
    """
    top = host.stat(path)
    if top.type not in (FILE, DIRECTORY):
        raise InvalidRequest(f"{path!r} is a {top.type}, and only files and folders are copied; name what it leads to")
    if not again and work.has(path):
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
    changes = [FsChange(path=entry.path, kind="created", type=entry.type) for entry in entries]
    skipped = collect(host, work, changes, MAX_SHARED_BYTES, MAX_SHARED_FILES, delete=True, reusable=True)
    left = {one.path for one in skipped}
    if top.path in left:
        raise InvalidRequest(f"{path!r} was not copied: {skipped[0].reason}")
    return tuple(entry.path for entry in entries if entry.is_file and entry.path not in left)
