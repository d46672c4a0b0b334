"""Checks that a path stays beneath a root, and shows hostile file names safely.

Pure functions on text. A path that they accept is only a *candidate*: ``beneath.py`` handles links, races and mounts.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sandbox_kernel.errors import ExecutionFailed, InvalidRequest, PathTraversal, SandboxError

#: A path as exact names, one for each level. ``walk`` and ``collect`` use it: names may hold any character.
Names = tuple[str, ...]

#: The work folder inside every sandbox. A path that begins with it means the same file on the host and inside.
GUEST_ROOT = "/box"
#: Kernels accept 4095 bytes; the name of a temporary file beside the file must fit too.
MAX_PATH_BYTES = 4000
MAX_NAME_BYTES = 255

_DRIVE = re.compile(r"[A-Za-z]:")
_NO_NAMES = frozenset(("", ".", ".."))
_SEPARATORS = re.compile(r"[/\\]")


def names_beneath(path: str | Names, *, folder: bool = False) -> Names:
    """Return the names that lead from the root to ``path``; ``()`` is the root itself.

    ``path`` is relative with ``/`` between folders, or begins with ``/box`` as inside the sandbox. It may hold ``..``
    as long as no prefix leaves the root; ``..`` is resolved as text, without looking at links. A tuple holds exact
    names. With ``folder=False`` a path that can only name a folder is refused.
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


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a path, the nearest first, without the root."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def plain_path(path: str | os.PathLike[str]) -> str:
    """Return a path object as text; any other value is returned unchanged, and ``names_beneath`` refuses it."""
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
    with suppress(TypeError, UnicodeEncodeError):
        # Most paths are plain: one look at the whole. Each name is looked at for the reason only.
        whole = os.fsencode("/".join(names))
        plain = whole.count(b"/") == len(names) - 1 and b"\0" not in whole and _NO_NAMES.isdisjoint(names)
        if plain and len(whole) < MAX_PATH_BYTES and 4 * max(map(len, names)) <= MAX_NAME_BYTES:
            return
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


#: Characters that Python takes for printable and nobody sees; and what may have to be escaped in a name.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_UNUSUAL = re.compile(r"[^ -\[\]-~]")


def display_name(name: str) -> str:
    r"""Return ``name`` as one line of harmless text, with escapes: for reports, tables and terminals.

    File names come from the sandbox. They may hold terminal sequences, line ends, marks that change the reading
    direction, or bytes that are not text (``\xff``). The caller must still escape it for HTML.
    """
    return _UNUSUAL.sub(lambda found: _displayed(found[0]), name)


def _displayed(character: str) -> str:
    if character.isprintable() and character != "\\" and not _UNSEEN.match(character):
        return character
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else character.encode("unicode_escape").decode()


def shown(path: str | Names) -> str:
    """Return a path in quotes, safe for a message."""
    text = path if isinstance(path, str) else "/".join(map(str, path))
    return f"'{display_name(text)}'"


@contextmanager
def explained(action: str, path: str | Names) -> Iterator[None]:
    """Turn every OSError of the block into a typed error that names the action and the path."""
    try:
        yield
    except OSError as error:
        raise _refusal(action, path, error) from error


def _refusal(action: str, path: str | Names, error: OSError) -> SandboxError:
    name = shown(path)
    match error.errno:
        case errno.ELOOP:
            return PathTraversal(
                f"path traversal blocked: cannot {action} {name}: a link stands in the way, and links made in the "
                "sandbox are not followed; give the path of the file itself"
            )
        case errno.EXDEV:
            return PathTraversal(f"path traversal blocked: cannot {action} {name}: it leads out of the work folder")
        case errno.ENOENT:
            return InvalidRequest(f"cannot {action} {name}: not found in the work folder; list_dir('.') shows what is")
        case errno.ENOTDIR | errno.EISDIR | errno.EEXIST | errno.ENOTEMPTY | errno.EINVAL | errno.ENAMETOOLONG:
            return InvalidRequest(f"cannot {action} {name}: {error.strerror}")
        case errno.ENOSPC | errno.EDQUOT:
            return ExecutionFailed(f"cannot {action} {name}: the work folder is full; remove files or raise disk_mb")
    return ExecutionFailed(f"cannot {action} {name}: {error.strerror}")
