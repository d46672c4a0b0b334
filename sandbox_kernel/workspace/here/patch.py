"""Changes as a unified diff: text as lines, everything else as one line with its size. Safe to print."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.here.change_log import Kept
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE

#: A larger file is told by its size.
MOST_TEXT = MIB
#: The most lines of one file, and characters of all: difflib takes quadratic time.
MOST_LINES = 20_000
MOST_PATCH = 16 * MIB


def make_patch(before: Rooted, after: Rooted, entries: Mapping[str, Kept]) -> str:
    """Return one patch of all changes, sorted by path, in git's form, so that ``git apply`` takes its text parts."""
    parts: list[str] = []
    size = 0
    for path, kept in sorted(entries.items()):
        part = one_file(before, after, path, kept)
        size += len(part)
        if size > MOST_PATCH:
            parts.append("# the patch is cut here: it is too large\n")
            break
        parts.append(part)
    return "".join(parts)


def one_file(before: Rooted, after: Rooted, path: str, kept: Kept) -> str:
    """Return the patch of one change; empty for a folder."""
    name = display_name(path)
    head = f"diff --git a/{name} b/{name}\n"
    was_folder = kept.base is not None and kept.base.is_folder
    if kept.type == DIRECTORY or (kept.is_gone and was_folder):
        return ""
    old_mode = 0 if kept.base is None else kept.base.mode
    if kept.is_gone:
        head += f"deleted file mode {old_mode:06o}\n"
    elif kept.base is None:
        head += f"new file mode {_git_mode(kept)}\n"
    elif old_mode & 0o777 != kept.mode & 0o777 and kept.type == FILE:
        head += f"old mode {old_mode:06o}\nnew mode {_git_mode(kept)}\n"
    old = _text(before, path) if kept.base is not None and not was_folder else ""
    new = "" if kept.is_gone else (kept.target or "") if kept.type != FILE else _text(after, path)
    if old is None or new is None:
        return f"{head}# {name}: not shown as text, {kept.size} bytes\n"
    names = ("/dev/null" if kept.base is None else f"a/{name}", "/dev/null" if kept.is_gone else f"b/{name}")
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), *names)
    return head + "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _git_mode(kept: Kept) -> str:
    if kept.type != FILE:
        return "120000"
    return "100755" if kept.mode & 0o100 else "100644"


def _text(root: Rooted, path: str) -> str | None:
    """Return a file as text; None when it is none. Control characters are shown, not sent."""
    try:
        entry = root.stat(tuple(path.split("/")))
        if entry.target is not None:
            return entry.target
        data = root.read(tuple(path.split("/")), max_bytes=MOST_TEXT)
        text = data.decode()
    except (SandboxError, UnicodeDecodeError):
        return None
    if "\0" in text or text.count("\n") > MOST_LINES:
        return None
    if all(char.isprintable() or char in "\t\n" for char in text):
        return text
    return "".join(char if char.isprintable() or char in "\t\n" else f"\\x{ord(char):02x}" for char in text)
