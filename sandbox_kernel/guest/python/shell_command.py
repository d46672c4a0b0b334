"""Runs ``!command`` on a terminal of its own, as ipykernel does: programs show columns, and each line at once.

Only their output goes through the terminal. Input stays that of the session, which is empty: nothing waits for a line
that nobody can type.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import struct
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Rows and columns, as ipykernel's terminal has them.
_SIZE = (24, 80)
_PIECE = 1 << 16
#: How long after the shell's end a process that it left behind may hold the terminal unnoticed.
_LOOK_S = 0.05
#: Programs that see a terminal must not wait for a key; ipykernel sets the same.
_PLAIN_PAGES = {"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "TERM": "xterm-color"}


def run_command(command: str) -> int:
    """Run a command in the shell and return its exit code, negative for a signal."""
    sys.stdout.flush()
    how: Any = {"shell": True, "executable": os.environ.get("SHELL")}
    # What a command leaves running writes to the cell's pipe: its terminal would be gone.
    terminal = None if command.rstrip().endswith("&") else _open_terminal()
    if terminal is None:
        return subprocess.call(command, **how)
    master, slave = terminal
    with os.fdopen(master, "rb", 0) as output:
        try:
            child = subprocess.Popen(command, stdout=slave, stderr=slave, env={**_PLAIN_PAGES, **os.environ}, **how)
        finally:
            os.close(slave)
        with child:
            try:
                _copy(output.fileno(), child)
            except BaseException:
                child.kill()
                raise
        return child.returncode


def _copy(fd: int, child: subprocess.Popen[bytes]) -> None:
    """Print what a command writes, until it and all that hold its terminal have ended, or it left some behind."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        ended = child.poll() is not None
        data = b""
        if select.select([fd], [], [], 0 if ended else _LOOK_S)[0]:
            with contextlib.suppress(OSError):  # EIO: nobody holds the other end
                data = os.read(fd, _PIECE)
            if not data:
                return
        elif ended:
            return
        print(decoder.decode(data), end="", flush=True)


def _open_terminal() -> tuple[int, int] | None:
    """Return both ends of a new terminal; None behind walls that have none (Landlock)."""
    try:
        import fcntl
        import termios

        master, slave = os.openpty()
    except (ImportError, OSError):
        return None
    # A line ends with one character, as everywhere else in a notebook.
    settings = termios.tcgetattr(slave)
    settings[1] &= ~termios.ONLCR
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *_SIZE, 0, 0))
    return master, slave
