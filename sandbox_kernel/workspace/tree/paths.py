"""Names: which paths stay beneath a root, and how a hostile name is shown to a person.

Pure functions on text. What they accept is only a *candidate*: links, races and mounts are met by ``beneath``.
"""

from __future__ import annotations

import os
import re

from sandbox_kernel.errors import InvalidRequest, PathTraversal

#: A path as exact names, one a folder level; this is how ``walk`` and ``collect`` speak of names no person would type.
Names = tuple[str, ...]

#: Where the work folder stands inside every sandbox; paths that begin with it mean the same on both sides.
GUEST_ROOT = "/box"
#: Kernels take 4095 bytes; a temporary name beside the file must fit too.
MAX_PATH_BYTES = 4000
MAX_NAME_BYTES = 255

_DRIVE = re.compile(r"[A-Za-z]:")
_SEPARATORS = re.compile(r"[/\\]")


def names_beneath(path: str | Names, *, folder: bool = False) -> Names:
    """The names that lead from the root to ``path``; ``()`` is the root itself.

    ``path`` is relative with ``/`` between folders, or begins with ``/box`` as programs inside write it; ``..`` may
    stand in it as long as no prefix leaves the root. It is resolved here, as text: a link in the way is never followed
    back. A tuple is taken as exact names. With ``folder=False`` a path that can only name a folder is refused.
    """
    if isinstance(path, tuple):
        names = path
    elif isinstance(path, str):
        names = _resolve(path)
        if not folder and path.rpartition("/")[2] in ("", ".", ".."):
            raise InvalidRequest(f"{path[:80]!r} names a folder where a file is meant; give a path like data/a.csv")
    else:
        raise InvalidRequest(f"path must be text, got {path!r}")
    _check_names(path, names)
    if not names and not folder:
        raise InvalidRequest(f"{path!r} is the work folder itself where a file is meant; give a path like data/a.csv")
    return names


def plain_path(path: str | os.PathLike[str]) -> str:
    """A path as text; what is none of both is left for ``names_beneath`` to refuse."""
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def _resolve(path: str) -> Names:
    if not path:
        raise PathTraversal("the path is empty; '.' is the work folder itself")
    if "\0" in path:
        raise InvalidRequest(f"path {path!r} holds a NUL character at position {path.index(chr(0))}; remove it")
    inside = path
    if path == GUEST_ROOT or path.startswith(GUEST_ROOT + "/"):
        inside = "." + path.removeprefix(GUEST_ROOT)
    if inside.startswith("/"):
        raise PathTraversal(
            f"path traversal blocked: {path!r} is absolute; give a path relative to the work folder, "
            f"or beginning with {GUEST_ROOT}/"
        )
    if inside.startswith("\\") or _DRIVE.match(inside):
        raise PathTraversal(
            f"path traversal blocked: {path!r} is absolute on some systems; give a path relative to the work folder "
            f"(a file that is really called so is {'./' + inside!r})"
        )
    depth = 0
    for part in _SEPARATORS.split(inside):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            raise PathTraversal(f"path traversal blocked: {path!r} leaves the work folder; stay beneath it")
    names: list[str] = []
    for part in inside.split("/"):
        if part == "..":
            names.pop()
        elif part not in ("", "."):
            names.append(part)
    return tuple(names)


def _check_names(path: str | Names, names: Names) -> None:
    total = 0
    for name in names:
        if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
            raise PathTraversal(f"path traversal blocked: {name!r} in {path!r} is not the name of a file or folder")
        try:
            length = len(os.fsencode(name))
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"path {path!r} holds a lone surrogate at position {error.start}, as no file name can; remove it"
            ) from None
        total += length + 1
        if length > MAX_NAME_BYTES or total > MAX_PATH_BYTES:
            raise InvalidRequest(f"path {str(path)[:60]!r}… is longer than a file system takes; shorten it")


def display_name(name: str) -> str:
    r"""``name`` as one line of harmless text, reversible by eye: for reports, tables and terminals.

    File names come from the sandbox: they may hold terminal sequences, line ends, marks that turn the reading
    direction, or bytes that are no text at all (``\xff``). HTML still has to be escaped by whoever writes HTML.
    """
    return "".join(map(_displayed, name)) if not (name.isprintable() and "\\" not in name) else name


def _displayed(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )
