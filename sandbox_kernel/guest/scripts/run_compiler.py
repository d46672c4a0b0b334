"""Runs a compiler inside a jail and forwards its messages; a step of the gate imports this and calls ``main``.

``run_compiler.py MESSAGES COMMAND [ARG ...]``. The compiler's output goes to stderr at once. If it succeeds, the output
is also written to the file MESSAGES, so that a program from the cache comes with its warnings.

Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple


#: The longest messages that are kept, in bytes; programs with longer ones are compiled each time.
MAX_MESSAGES = 128 << 10


def run(command: List[str]) -> Tuple[int, bytes | None]:
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
    while shown := os.read(read, 1 << 16):
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


def main(argv: List[str]) -> int:
    """Run the compiler as the module's docstring says. Leaves nothing to flush or close when it returns."""
    messages, command = argv[1], argv[2:]
    if "SANDBOX_PREPARED" in os.environ:
        lay_over(os.environ.pop("SANDBOX_PREPARED"), os.environ["ZIG_GLOBAL_CACHE_DIR"])
    code, said = run(command)
    if code == 0 and said is not None:
        with open(messages, "wb") as file:
            file.write(said)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    return code
