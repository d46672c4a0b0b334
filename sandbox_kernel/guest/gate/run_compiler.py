"""Runs a compiler inside a jail and passes on what it says; a step of the gate imports this and calls ``main``.

``compile.py STYLE MESSAGES COMMAND [ARG ...]``. What the compiler prints goes to stderr at once, and, when it
succeeds, into the file MESSAGES too, so that a program that is taken from the cache later comes with its warnings.
STYLE is ``plain``, or ``rustc:N``: JSON diagnostics, for a source whose first line begins with N columns that are not
the cell's.

Stdlib only, Python 3.8 or later.
"""

from __future__ import annotations

# ``signal`` would import ``enum``, which takes longer than all the rest.
import _signal as signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False  # importing typing would cost more than all the rest
if TYPE_CHECKING:
    from typing import Callable, List

#: Programs with longer messages are compiled each time.
MAX_MESSAGES = 128 << 10
#: The margin of a picture: the number of the line, if it is one of the source's, and a bar (or its sign in a diff).
_GUTTER = r" *(?:(\d+) +[|+~-]|\|)(?: |$)"
_PLACE = r"( *(?:-->|:::) [^ ]+):1:(\d+)$"


class Printer:
    """Stderr, and a copy of it while it is short."""

    def __init__(self) -> None:
        self.copy = b""
        self.total = 0

    def write(self, data: bytes) -> None:
        """All of it, in order."""
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
    """A writable Zig cache whose built parts are those of a read-only one; manifests are locked, so they are copied.

    Folders are made and only files are links: where Zig does not trust a manifest (its sources were installed anew,
    say) it builds that part again and renames it over the old one, which must not lead out of this file system.
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
    """One line of ``rustc --error-format=json`` as rustc would have shown it for the cell as it was written."""
    import json  # here, because a user waits for every other compiler without it

    if not line.strip():
        return b""
    try:
        text = json.loads(line)["rendered"]
    except (ValueError, KeyError, TypeError):
        return line + b"\n"
    return without_prefix(str(text), columns).encode() if text else b""


def without_prefix(text: str, columns: int) -> str:
    """Take the columns that are not the cell's out of every picture of the first line."""
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
    """See the module's docstring. Nothing of ours is left to be flushed or torn down when it returns."""
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
