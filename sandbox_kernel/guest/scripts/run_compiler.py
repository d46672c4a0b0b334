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
    from typing import Callable, List


#: The longest messages that are kept, in bytes; programs with longer ones are compiled each time.
MAX_MESSAGES = 128 << 10
#: The margin of a source excerpt: a line number, if it is a line of the source, and a bar (or a sign in a diff).
_GUTTER = r" *(?:(\d+) +[|+~-]|\|)(?: |$)"
_PLACE = r"( *(?:-->|:::) [^ ]+):1:(\d+)$"


class Printer:
    """Writes to stderr and keeps a copy while it is short."""

    def __init__(self) -> None:
        self.copy = b""
        self.total = 0

    def write(self, data: bytes) -> None:
        """Write all of the data."""
        self.total += len(data)
        if self.total <= MAX_MESSAGES:
            self.copy += data
        while data:
            data = data[os.write(2, data) :]


def run(command: List[str], line_filter: Callable[[bytes], bytes] | None, printer: Printer) -> int:
    """Run the compiler to its end and return its exit code, or minus its signal."""
    read, write = os.pipe()
    both = [(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_DUP2, write, 2)]
    try:
        child = os.posix_spawn(command[0], command, os.environ, file_actions=both)
    except OSError as error:
        printer.write(f"{command[0]}: {error.strerror}\n".encode())
        return 127
    os.close(write)
    rest = b""
    while True:
        data = os.read(read, 1 << 16)
        if line_filter is None:
            printer.write(data)
        else:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines if data else [*lines, rest]:
                printer.write(line_filter(line))
        if not data:
            break
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


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
    printer = Printer()
    if "SANDBOX_PREPARED" in os.environ:
        lay_over(os.environ.pop("SANDBOX_PREPARED"), os.environ["ZIG_GLOBAL_CACHE_DIR"])
    columns = int(style.split(":")[1]) if style.startswith("rustc:") else 0
    line_filter = (lambda line: rendered(line, columns)) if style.startswith("rustc:") else None
    code = run(command, line_filter, printer)
    if code == 0 and printer.total <= MAX_MESSAGES:
        with open(messages, "wb") as file:
            file.write(printer.copy)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    return code
