"""Runs a compiler inside a jail and forwards its messages; a step of the gate imports this and calls ``main``.

``run_compiler.py STYLE MESSAGES COMMAND [ARG ...]``. The compiler's output goes to stderr at once. If it succeeds, the
output is also written to the file MESSAGES, so that a program from the cache comes with its warnings. STYLE is
``plain``, or ``rustc:N`` for JSON diagnostics of a source whose first line begins with N columns that are not part of
the cell.

Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Tuple


#: The longest messages that are kept, in bytes; programs with longer ones are compiled each time.
MAX_MESSAGES = 128 << 10
#: The margin of a source excerpt: a line number, if it is a line of the source, and a bar (or a sign in a diff).
_GUTTER = r" *(?:(\d+) +[|+~-]|\|)(?: |$)"
_PLACE = r"( *(?:-->|:::) [^ ]+):1:(\d+)$"


def run(command: List[str], line_filter: Callable[[bytes], bytes] | None) -> Tuple[int, bytes | None]:
    """Run the compiler to its end. Returns its exit code, or minus its signal, and what it said; None if too much."""
    read, write = os.pipe()
    both = [(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_DUP2, write, 2)]
    try:
        child = os.posix_spawn(command[0], command, os.environ, file_actions=both)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        return 127, None
    os.close(write)
    said: bytes | None = b""
    data, rest = b" ", b""
    while data:
        data = shown = os.read(read, 1 << 16)
        if line_filter is not None:
            *lines, rest = (rest + data).split(b"\n")
            shown = b"".join(line_filter(line) for line in (lines if data else [*lines, rest]))
        said = said + shown if said is not None and len(said) + len(shown) <= MAX_MESSAGES else None
        while shown:
            shown = shown[os.write(2, shown) :]
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status), said


def lay_over(base: str, top: str) -> None:
    """Make a writable Zig cache at ``top`` whose files link to the read-only cache ``base``.

    Manifests are copied, because Zig locks them. Folders are created and only files are links: if Zig does not trust a
    manifest (its sources were installed again) it builds that part again and renames it over the old one, which must be
    on this file system.
    """
    for name in ("h", "o", "tmp"):
        os.makedirs(f"{top}/{name}")
    for name in os.listdir(base):
        if name not in ("h", "o"):
            os.symlink(f"{base}/{name}", f"{top}/{name}")
    for folder in os.listdir(base + "/o"):
        os.mkdir(f"{top}/o/{folder}")
        for name in os.listdir(f"{base}/o/{folder}"):
            os.symlink(f"{base}/o/{folder}/{name}", f"{top}/o/{folder}/{name}")
    for name in os.listdir(base + "/h"):
        with open(f"{base}/h/{name}", "rb") as old, open(f"{top}/h/{name}", "wb") as new:
            new.write(old.read())


def rendered(line: bytes, columns: int) -> bytes:
    """Return one line of ``rustc --error-format=json`` as rustc would print it for the cell as the user wrote it."""
    import json  # here, because other compilers do not need it and the import takes time

    if not line.strip():
        return b""
    try:
        text = json.loads(line)["rendered"]
    except (ValueError, KeyError, TypeError):
        return line + b"\n"
    return without_prefix(str(text), columns).encode() if text else b""


def without_prefix(text: str, columns: int) -> str:
    """Remove the columns that are not part of the cell from every excerpt of the first line."""
    if not columns:
        return text
    import re

    lines = []
    shown = 0  # the line of the source that the gutter named last
    for line in text.split("\n"):
        place = re.match(_PLACE, line)
        gutter = re.match(_GUTTER, line)
        if place:
            lines.append(f"{place.group(1)}:1:{max(1, int(place.group(2)) - columns)}")
            continue
        if gutter:
            shown = int(gutter.group(1) or shown)
            if shown == 1:
                line = (line[: gutter.end()] + line[gutter.end() + columns :]).rstrip()
        lines.append(line)
    return "\n".join(lines)


def main(argv: List[str]) -> int:
    """Run the compiler as the module's docstring says. Leaves nothing to flush or close when it returns."""
    style, messages, command = argv[1], argv[2], argv[3:]
    if "SANDBOX_PREPARED" in os.environ:
        lay_over(os.environ.pop("SANDBOX_PREPARED"), os.environ["ZIG_GLOBAL_CACHE_DIR"])
    columns = int(style.split(":")[1]) if style.startswith("rustc:") else 0
    line_filter = (lambda line: rendered(line, columns)) if style.startswith("rustc:") else None
    code, said = run(command, line_filter)
    if code == 0 and said is not None:
        with open(messages, "wb") as file:
            file.write(said)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    return code
