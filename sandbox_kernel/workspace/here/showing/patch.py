"""Changes as a unified diff in git's form: ``git apply`` makes the same bytes of its text parts, names and links.

Text goes in as it is. A file that is not text, or holds characters with which a terminal can be deceived, is one line
with its size, so that a patch is safe to print and to read; in a whole patch it is a part in git's binary form. The
user's version of a file that is hidden from programs is never in it: agents and programs may read a patch.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.here.change_log import Kept
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.showing.binary_patch import binary_part
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK

#: A larger file is told by its size.
MOST_TEXT = MIB
#: The most lines of one file, and characters of all: difflib takes quadratic time.
MOST_LINES = 20_000
MOST_PATCH = 16 * MIB
#: The largest file of a whole patch, and the most characters of all.
MOST_BINARY = 64 * MIB
MOST_WHOLE = 256 * MIB
#: The most pairs of equal lines in two versions for which the shortest difference is looked for.
MOST_PAIRS = 200_000
#: The most lines that difflib looks at for all files of one patch, each as often as it does: two seconds.
MOST_LOOKS = 5_000_000

#: Control characters but tab, line feed and the carriage return before one; marks that change the reading direction.
_DECEIVING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)")
_LINK, _PLAIN, _PROGRAM = "120000", "100644", "100755"
_ESCAPES = {0x07: "\\a", 0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0B: "\\v", 0x0C: "\\f", 0x0D: "\\r"} | {
    0x22: '\\"', 0x5C: "\\\\",
}  # fmt: skip


class WholePatch(NamedTuple):
    """A patch with everything that git can carry, and the paths of the changes that are not in it."""

    text: str
    left_out: tuple[str, ...]


class _Side(NamedTuple):
    """One side of a change: git's mode, and the content as text; None when it is not text or is not shown."""

    mode: str
    text: str | None


def make_patch(before: Rooted, after: Rooted, entries: Mapping[str, Kept]) -> str:
    """Return one patch of all changes, sorted by path."""
    parts: list[str] = []
    size, effort = 0, DiffEffort()
    for path, kept in sorted(entries.items()):
        part = one_file(before, after, path, kept, effort)
        size += len(part)
        if size > MOST_PATCH:
            parts.append("# the patch is cut here: it is too large\n")
            break
        parts.append(part)
    return "".join(parts)


def make_whole_patch(before: Rooted, after: Rooted, entries: Mapping[str, Kept]) -> WholePatch:
    """Return one patch of all changes, for ``git apply``: what is not text goes in as git's binary form."""
    parts: list[str] = []
    left_out: list[str] = []
    size, effort = 0, DiffEffort()
    for path, kept in sorted(entries.items()):
        part = _whole(before, after, path, kept, effort) if size < MOST_WHOLE else None
        if part is None or size + len(part) > MOST_WHOLE or (not part and not _is_implied(path, kept, entries)):
            left_out.append(path)
        else:
            parts.append(part)
            size += len(part)
    return WholePatch("".join(parts), tuple(left_out))


def _is_implied(path: str, kept: Kept, entries: Mapping[str, Kept]) -> bool:
    """Whether git makes or removes a folder by itself, with the files in it."""
    if kept.is_gone:
        return kept.base is not None and kept.base.is_folder
    inside = any(other.startswith(f"{path}/") and not each.is_gone for other, each in entries.items())
    return kept.type == DIRECTORY and inside and (kept.base is None or not kept.base.is_folder)


def one_file(before: Rooted, after: Rooted, path: str, kept: Kept, effort: DiffEffort) -> str:
    """Return the patch of one change; empty for a folder. A file that became a link is removed and made anew."""
    old, new = _old(before, path, kept), _new(after, path, kept)
    if any(side is not None and side.text is None for side in (old, new)):
        # Without a header of git's: it would make an empty file of one.
        why = "your version is hidden from programs" if is_hidden(path) and old is not None else "not shown as text"
        how = "deleted" if new is None else "created" if old is None else "modified"
        return f"# {display_name(path)}: {how}, {why}, {kept.size} bytes\n"
    return "".join(_part(path, *sides, effort) for sides in _steps(old, new))


def _whole(before: Rooted, after: Rooted, path: str, kept: Kept, effort: DiffEffort) -> str | None:
    """Return the part of one change in a whole patch; None when git cannot carry it."""
    old, new = _old(before, path, kept), _new(after, path, kept)
    parts = []
    for was, now in _steps(old, new):
        if all(side is None or side.text is not None for side in (was, now)):
            parts.append(_part(path, was, now, effort))
            continue
        if was is not None and is_hidden(path):
            return None
        try:
            contents = [
                None if side is None else _bytes(root, path, side) for root, side in ((before, was), (after, now))
            ]
        except SandboxError:
            return None
        parts.append(binary_part(_head(path, was, now), *contents))
    return "".join(parts)


def _steps(old: _Side | None, new: _Side | None) -> tuple[tuple[_Side | None, _Side | None], ...]:
    if old is not None and new is not None and (old.mode == _LINK) != (new.mode == _LINK):
        return (old, None), (None, new)
    return ((old, new),)


def _head(path: str, old: _Side | None, new: _Side | None) -> str:
    head = f"diff --git {_quoted(f'a/{path}')} {_quoted(f'b/{path}')}\n"
    if new is None and old is not None:
        head += f"deleted file mode {old.mode}\n"
    elif old is None and new is not None:
        head += f"new file mode {new.mode}\n"
    elif old is not None and new is not None and old.mode != new.mode:
        head += f"old mode {old.mode}\nnew mode {new.mode}\n"
    return head


def _part(path: str, old: _Side | None, new: _Side | None, effort: DiffEffort) -> str:
    if old == new:
        # Nothing, or a mode that git does not carry: a header alone has git refuse the whole patch.
        return ""
    names = (
        "/dev/null" if old is None else _quoted(f"a/{path}", in_header=True),
        "/dev/null" if new is None else _quoted(f"b/{path}", in_header=True),
    )
    was, now = (_lines(side.text or "") if side is not None else [] for side in (old, new))
    lines = difflib.unified_diff(was, now, *names) if effort.suffices(was, now) else _replaced(was, now, names)
    return _head(path, old, new) + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _lines(text: str) -> list[str]:
    """Split at line feeds only: for git nothing else ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


class DiffEffort:
    """How much difflib may do for one patch. It looks at each line again for every line that is equal by itself."""

    def __init__(self) -> None:
        self._left = MOST_LOOKS

    def suffices(self, was: list[str], now: list[str]) -> bool:
        """Whether difflib finds the difference with what is left, which is tried and counted."""
        counts, matcher = Counter(was), difflib.SequenceMatcher(None, was, now)
        find = matcher.find_longest_match

        def counted(begin: int, end: int, *of_now: int) -> difflib.Match:
            self._left -= end - begin
            if self._left < 0:
                raise TimeoutError
            return find(begin, end, *of_now)

        matcher.find_longest_match = counted  # type: ignore[method-assign, assignment]
        try:
            return sum(counts[line] for line in now) <= MOST_PAIRS and matcher.get_opcodes() is not None
        except TimeoutError:
            return False


def _replaced(was: list[str], now: list[str], names: tuple[str, str]) -> Iterator[str]:
    """Yield a diff that replaces the whole file: right, and not the shortest."""
    yield f"--- {names[0]}\n"
    yield f"+++ {names[1]}\n"
    yield f"@@ -{1 if was else 0},{len(was)} +{1 if now else 0},{len(now)} @@\n"
    yield from (f"-{line}" for line in was)
    yield from (f"+{line}" for line in now)


def _old(before: Rooted, path: str, kept: Kept) -> _Side | None:
    if kept.base is None or kept.base.is_folder:
        return None
    mode = _PROGRAM if kept.base.mode & 0o100 else _PLAIN
    if is_hidden(path):
        return _Side(mode, None)
    try:
        target = before.stat(tuple(path.split("/"))).target
    except SandboxError:
        return _Side(mode, None)
    return _Side(mode, _text(before, path)) if target is None else _link(target)


def _new(after: Rooted, path: str, kept: Kept) -> _Side | None:
    if kept.is_gone or kept.type == DIRECTORY:
        return None
    if kept.type == SYMLINK:
        return _link(kept.target or "")
    return _Side(_PROGRAM if kept.mode & 0o100 else _PLAIN, _text(after, path) if kept.type == FILE else None)


def _link(target: str) -> _Side:
    return _Side(_LINK, target if target.isprintable() else None)


def _bytes(root: Rooted, path: str, side: _Side) -> bytes:
    """Return what git has as the content of a side: of a link, where it leads."""
    names = tuple(path.split("/"))
    if side.mode == _LINK:
        return os.fsencode(root.stat(names).target or "")
    return root.read(names, max_bytes=MOST_BINARY)


def _text(root: Rooted, path: str) -> str | None:
    """Return a file as text; None when it is none, or one that must not be printed."""
    try:
        text = root.read(tuple(path.split("/")), max_bytes=MOST_TEXT).decode()
    except (SandboxError, UnicodeDecodeError):
        return None
    return None if _DECEIVING.search(text) or text.count("\n") > MOST_LINES else text


def _quoted(name: str, *, in_header: bool = False) -> str:
    """Return a name as git writes it in a patch: quoted when it holds anything that could be misread."""
    if name.isprintable() and '"' not in name and "\\" not in name and " /" not in name:
        # A tab after the name tells git where a name with a blank ends.
        return f"{name}\t" if in_header and " " in name else name
    return '"' + "".join(_byte(byte) for byte in os.fsencode(name)) + '"'


def _byte(byte: int) -> str:
    return _ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}")
