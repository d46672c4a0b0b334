"""Changes as unified diffs: for the user and for ``git apply``, and between two states of a session.

A patch is in git's form: ``git apply`` makes the same bytes of its text parts, names and links. Text goes in as it is.
A file that is not text, or holds characters with which a terminal can be deceived, is one line with its size, so that a
patch is safe to print and to read; in a whole patch it is a part in git's binary form. The user's version of a file
that is hidden from programs is never in it: agents and programs may read a patch. It is made here and not by git, which
would obey settings of the folder and of the user.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import zlib
from base64 import b85encode
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.changes import FileDiff
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.kept_changes import Kept
from sandbox_kernel.workspace.overlay.layer import LayerView, touched
from sandbox_kernel.workspace.tree.paths import display_name, folders_above
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE, SYMLINK, Entry

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
#: Between two states: the most files, the longest text of which the lines are told, and the most characters of all.
MOST_STATE_FILES = 200
MOST_STATE_TEXT = MIB // 4
MOST_STATE_LINES = 5000
MOST_STATE_PATCHES = MIB

#: Control characters but tab, line feed and the carriage return before one; marks that change the reading direction.
_DECEIVING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)")
_ESCAPES = {0x07: "\\a", 0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0B: "\\v", 0x0C: "\\f", 0x0D: "\\r"} | {
    0x22: '\\"', 0x5C: "\\\\",
}  # fmt: skip
#: The longest line of git's binary form, in bytes before they are encoded.
_BINARY_LINE = 52

#: Two versions of a file or link, each with its content; None for one that is not there.
_Sides = tuple[Entry | None, Entry | None]


class WholePatch(NamedTuple):
    """A patch with everything that git can carry, and the paths of the changes that are not in it."""

    text: str
    left_out: tuple[str, ...]


def make_patch(before: Rooted, after: Rooted, entries: Mapping[str, Kept], *, binary: bool = False) -> WholePatch:
    """Return one patch of all changes, sorted by path, and the paths of those that are not in it.

    What is not text is one line with its size, or with ``binary``, for ``git apply``, a part in git's binary form.
    """
    most_file, most = (MOST_BINARY, MOST_WHOLE) if binary else (MOST_TEXT, MOST_PATCH)
    parts: list[str] = []
    left_out: list[str] = []
    size, effort = 0, DiffEffort()
    filled = {above for path, kept in entries.items() if not kept.is_gone for above in folders_above(path)}
    for path, kept in sorted(entries.items()):
        if left_out and not binary:
            break  # cut here: nothing further is read
        sides = _sides(before, after, kept, most_file)
        part = _parts(path, sides, effort, binary) if size < most else None
        if part is None and not binary:
            # Without a header of git's: it would make an empty file of one.
            why = "your version is hidden from programs" if is_hidden(path) and sides[0] else "not shown as text"
            how = "deleted" if sides[1] is None else "created" if sides[0] is None else "modified"
            part = f"# {display_name(path)}: {how}, {why}, {kept.entry.size} bytes\n"
        if (
            part is None
            or size + len(part) > most
            or (binary and not part and not _is_implied(kept, inside=path in filled))
        ):
            left_out.append(path)
        else:
            parts.append(part)
            size += len(part)
    if left_out and not binary:
        parts.append("# the patch is cut here: it is too large\n")
    return WholePatch("".join(parts), tuple(left_out))


def _is_implied(kept: Kept, *, inside: bool) -> bool:
    """Whether git makes or removes a folder by itself, with the files in it."""
    if kept.is_gone:
        return kept.on_folder
    return kept.entry.is_dir and inside and not kept.on_folder


def _parts(path: str, sides: _Sides, effort: DiffEffort, binary: bool) -> str | None:
    """Return the parts of one change; None for what is not text or, with ``binary``, cannot be read."""
    parts = []
    for was, now in _steps(*sides):
        if all(side is None or _text(side) is not None for side in (was, now)):
            parts.append(_part(path, (was, now), effort))
        elif not binary or any(side is not None and side.data is None for side in (was, now)):
            return None
        else:
            parts.append(_binary_part(_head(path, was, now), was, now))
    return "".join(parts)


def _steps(old: Entry | None, new: Entry | None) -> tuple[_Sides, ...]:
    """Return the parts of one change: a file that became a link is removed and made anew."""
    if old is not None and new is not None and old.type != new.type:
        return (old, None), (None, new)
    return ((old, new),)


def _sides(before: Rooted, after: Rooted, kept: Kept, most: int) -> _Sides:
    """Return the two versions of a change, with their contents up to a size; a hidden one without."""
    old, new, path = kept.base, kept.entry, kept.entry.path
    if old is not None and old.is_dir:
        old = None
    elif old is not None and not is_hidden(path):
        # What the user has there by now, which may be another version.
        old = _with_data(before, before.entry_at(old.names) or old, most)._replace(mode=old.mode)
    return old, None if new.is_gone or new.is_dir else _with_data(after, new, most)


def _with_data(root: Rooted, entry: Entry, most: int) -> Entry:
    """Return an entry with what git has as its content: of a link, where it leads; None where it cannot be read."""
    try:
        target = entry.target
        return entry._replace(data=root.read(entry.names, most) if target is None else os.fsencode(target))
    except SandboxError:
        return entry._replace(data=None)


def _text(side: Entry) -> str | None:
    """Return the content as text; None when it is none, or one that must not be printed."""
    if side.data is None or len(side.data) > MOST_TEXT:
        return None
    try:
        text = side.data.decode()
    except UnicodeDecodeError:
        return None
    if side.type == SYMLINK:
        return text if text.isprintable() else None
    return None if _DECEIVING.search(text) or text.count("\n") > MOST_LINES else text


def _mode(side: Entry) -> str:
    return "120000" if side.type == SYMLINK else "100755" if side.mode & 0o100 else "100644"


def _head(path: str, old: Entry | None, new: Entry | None) -> str:
    head = f"diff --git {_quoted(f'a/{path}')} {_quoted(f'b/{path}')}\n"
    if new is None and old is not None:
        head += f"deleted file mode {_mode(old)}\n"
    elif old is None and new is not None:
        head += f"new file mode {_mode(new)}\n"
    elif old is not None and new is not None and _mode(old) != _mode(new):
        head += f"old mode {_mode(old)}\nnew mode {_mode(new)}\n"
    return head


def _part(path: str, sides: _Sides, effort: DiffEffort) -> str:
    old, new = sides
    if old is new or (old and new and (_mode(old), old.data) == (_mode(new), new.data)):
        # Nothing, or a mode that git does not carry: a header alone has git refuse the whole patch.
        return ""
    names = (
        "/dev/null" if old is None else _quoted(f"a/{path}", in_header=True),
        "/dev/null" if new is None else _quoted(f"b/{path}", in_header=True),
    )
    # For git nothing but a line feed ends a line.
    was, now = (re.findall(r"[^\n]*\n|[^\n]+", _text(side) or "") if side is not None else [] for side in sides)
    lines = difflib.unified_diff(was, now, *names) if effort.suffices(was, now) else _replaced(was, now, names)
    return _head(path, old, new) + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


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


def _quoted(name: str, *, in_header: bool = False) -> str:
    """Return a name as git writes it in a patch: quoted when it holds anything that could be misread."""
    if name.isprintable() and '"' not in name and "\\" not in name and " /" not in name:
        # A tab after the name tells git where a name with a blank ends.
        return f"{name}\t" if in_header and " " in name else name
    signs = (
        _ESCAPES.get(sign) or (chr(sign) if 0x20 <= sign < 0x7F else f"\\{sign:03o}") for sign in os.fsencode(name)
    )
    return f'"{"".join(signs)}"'


def _binary_part(head: str, old: Entry | None, new: Entry | None) -> str:
    """Return a part in git's binary form: the new content, and the hash by which git knows the old one."""
    data = new.data if new is not None and new.data is not None else b""
    packed = zlib.compress(data)
    lines = []
    for at in range(0, len(packed), _BINARY_LINE):
        piece = packed[at : at + _BINARY_LINE]
        length = chr(ord("A") + len(piece) - 1) if len(piece) <= 26 else chr(ord("a") + len(piece) - 27)
        lines.append(f"{length}{b85encode(piece, pad=True).decode()}\n")
    index = f"index {_blob(old)}..{_blob(new)}\n"
    return f"{head}{index}GIT binary patch\nliteral {len(data)}\n{''.join(lines)}\n"


def _blob(side: Entry | None) -> str:
    if side is None or side.data is None:
        return "0" * 40
    return hashlib.sha1(b"blob %d\0" % len(side.data) + side.data, usedforsecurity=False).hexdigest()


# Two states of a session: two copies of its work folder, or of its layer. Nothing of a hidden file is told.


def compare_layers(before: LayerView, after: LayerView) -> tuple[list[FileDiff], str]:
    """Return the files that differ, sorted by path, and an empty text or what was left out."""
    found: list[FileDiff] = []
    room, left, effort = MOST_STATE_PATCHES, 0, DiffEffort()
    for path in sorted(touched(before, after)):
        old, new = _version(before, path), _version(after, path)
        if old == new:
            continue
        if len(found) == MOST_STATE_FILES:
            left += 1
            continue
        kind = "created" if old is None else "deleted" if new is None else "modified"
        patch = _state_lines(old, new, path, effort)
        if len(patch) > room:
            patch = ""
        room -= len(patch)
        there = new or old
        assert there is not None  # they differ
        found.append(FileDiff(path=path, kind=kind, type=there.type, size=there.size, patch=patch))
    return found, f"{left} more files differ" if left else ""


def _version(view: LayerView, path: str) -> Entry | None:
    """Return type, size and content of a file or link; None also for a folder."""
    there = view.at(path)
    if there is None or there.type not in (FILE, SYMLINK):
        return None
    data = there.data if there.target is None else os.fsencode(there.target)
    if data is None and view.project is not None:
        data = _with_data(view.project.root, there, MOST_BINARY).data
    return Entry(path, there.type, there.size if there.is_file else 0, data=data)


def _state_lines(old: Entry | None, new: Entry | None, path: str, effort: DiffEffort) -> str:
    """Return a unified diff of two texts; empty when one is no text, is too long, or was not read."""
    texts = []
    for side in (old, new):
        data = b"" if side is None else side.data
        if data is None or len(data) > MOST_STATE_TEXT or b"\0" in data:
            return ""
        try:
            texts.append(data.decode().splitlines())
        except UnicodeDecodeError:
            return ""
    was, now = texts
    if max(len(was), len(now)) > MOST_STATE_LINES or not effort.suffices(was, now):
        return ""
    return "\n".join(difflib.unified_diff(was, now, path, path, lineterm="", n=1))
