"""How two copies of a folder differ, bounded: paths, kinds, and the changed lines of small texts.

Runs in the gate, because the content never leaves the jail but for this. Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import difflib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    #: By path: the kind of the entry and its content.
    Contents = Dict[Tuple[str, ...], Tuple[int, bytes]]

#: The most files that are listed, the longest text that is compared line by line, and the room for all patches: the
#: answer has to fit into one message.
MAX_FILES, MAX_TEXT, MAX_PATCHES = 200, 32 << 10, 20_000
_MAX_LINES = 1000


def compare_files(first: Contents, second: Contents) -> Tuple[List[List[str]], str]:
    """Return each file that differs as path, kind and patch, and an empty text or what was left out."""
    found: List[List[str]] = []
    room = MAX_PATCHES
    differing = sorted(path for path in {*first, *second} if first.get(path) != second.get(path))
    for path in differing[:MAX_FILES]:
        before, after = first.get(path), second.get(path)
        kind = "created" if before is None else "deleted" if after is None else "modified"
        shown = "/".join(path).encode("utf-8", "replace").decode()[:300]
        patch = patch_of(before[1] if before else b"", after[1] if after else b"", shown)
        if len(patch) > room:
            patch = ""
        room -= len(patch)
        found.append([shown, kind, patch])
        room -= len(shown)
        if room < 0:
            break
    left = len(differing) - len(found)
    return found, f"{left} more files differ" if left else ""


def patch_of(before: bytes, after: bytes, name: str) -> str:
    """Return a unified diff of two texts; empty when one is no text or too long."""
    if len(before) > MAX_TEXT or len(after) > MAX_TEXT or b"\0" in before + after:
        return ""
    try:
        old, new = before.decode().splitlines(), after.decode().splitlines()
    except UnicodeDecodeError:
        return ""
    if len(old) > _MAX_LINES or len(new) > _MAX_LINES:
        return ""
    return "\n".join(difflib.unified_diff(old, new, name, name, lineterm="", n=1))
