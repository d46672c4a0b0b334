"""Magics and ``!command`` of a Python session: those of ipykernel, ``%pip``, ``%history`` and the like."""

from __future__ import annotations

import codecs
import contextlib
import fnmatch
import functools
import importlib
import os
import re
import select
import shlex
import struct
import subprocess
import sys

from IPython.core import page
from IPython.core.error import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple

    Entry = Tuple[int, int, Any]


# ``%pip``, ``%conda`` and the like inside a session: runs pip where there is network, else says what to allow.
#
# The environment belongs to the host and is read-only, so packages go into a folder of the session, which becomes the
# first entry of ``sys.path``. They are part of the work folder, so a rollback removes them too.

TOOLS = ("pip", "conda", "mamba", "micromamba", "uv")
FOLDER = "packages"

_NO_NETWORK = (
    "this session has no network. In a notebook: %sandbox install {what}. Elsewhere begin a session with an "
    "environment that has it (python=, --python), or that may reach the package index"
)
#: Where ``%sandbox install`` shows what it installed, a folder for each time (``notebook/packages.py``).
_INSTALLED = "/opt/sandbox-packages"
_NOT_PIP = "%{tool} cannot install here: the environment is read-only; %pip install puts packages into the work folder"
#: Options of pip that choose where packages go, or that install none.
_PLACES = ("-t", "--target", "--user", "--prefix", "--root", "--dry-run", "-h", "--help")


def add_installers(shell: Any) -> None:
    """Give a shell the magics that install packages, or say why that is not possible."""

    def pip(words: str) -> None:
        shell.system(f"{shlex.quote(sys.executable)} -m pip {words}")

    def install(tool: str, line: str) -> None:
        words = line.split()
        if tool == "pip" and words[:1] != ["install"]:
            pip(line)
            return
        if "https_proxy" not in os.environ:
            names = words[words.index("install") + 1 :] if "install" in words else words
            if names and all(map(_is_there, names)):
                print(f"already there: {' '.join(names)}")
                return
            raise UsageError(_NO_NETWORK.format(what=" ".join(names) or "PACKAGE"))
        if tool != "pip":
            raise UsageError(_NOT_PIP.format(tool=tool))
        folder = os.path.join(os.environ.get("HOME", os.getcwd()), FOLDER)
        chosen = any(word.split("=")[0] in _PLACES for word in words[1:])
        where = "" if chosen else f" --target {shlex.quote(folder)}"
        # No warnings about a newer pip, which cannot be installed here, or about scripts outside of PATH.
        quiet = "--disable-pip-version-check --no-warn-script-location"
        pip(f"install {quiet}{where}{line.partition('install')[2]}")
        if not chosen and folder not in sys.path:
            sys.path.insert(0, folder)
        importlib.invalidate_caches()

    for tool in TOOLS:
        shell.register_magic_function(functools.partial(install, tool), "line", tool)
    shell.events.register("pre_run_cell", lambda _info: _find_installed())


def _find_installed() -> None:
    """Put what was installed since the last cell on the path, before the environment."""
    try:
        new = [path for name in os.listdir(_INSTALLED) if (path := f"{_INSTALLED}/{name}") not in sys.path]
    except OSError:
        return
    if new:
        sys.path[:0] = new
        importlib.invalidate_caches()


def _is_there(name: str) -> bool:
    """Whether a distribution of this name, and of this version where exactly one is named, is installed."""
    from importlib import metadata

    bare, _, version = name.partition("==")
    try:
        found = metadata.version(re.split(r"[\[<>=!~]", bare)[0])
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return version in ("", found)


# Magics that ipykernel adds to IPython. What they would do outside the sandbox is said in a sentence instead.

_SAID = {
    "autosave": "%autosave changes nothing here: your front end saves the notebook as its own settings say",
    "connect_info": "%connect_info has nothing to show: the kernel's connection stays outside of the sandbox",
    "edit": "%edit opens no editor: files of the sandbox are not on your computer. %load FILE puts one into the cell, "
    "and %%writefile FILE writes the cell to it",
    "qtconsole": "%qtconsole opens no window: there is no screen inside the sandbox",
    "subshell": "%subshell has nothing to list: a session runs one cell at a time",
}


def add_magics(shell: Any) -> None:
    """Give a shell the magics of ipykernel that IPython's own shell lacks or does otherwise."""

    def less(name: str) -> None:
        """Show a file in the pager; Python with its colours."""
        if not name:
            raise UsageError("Missing filename.")
        with open(os.path.expanduser(name), encoding="utf-8", errors="replace") as file:
            text = file.read()
        page.page(shell.pycolorize(text) if name.endswith(".py") else text)

    def man(name: str) -> None:
        """Show the manual page of a command in the pager."""
        page.page(shell.getoutput(f"man {name} | col -b", split=False))

    def clear(line: str) -> None:
        """Clear a terminal; pages show nothing of it."""
        shell.system("clear")

    magics = {"less": less, "more": less, "man": man, "clear": clear}
    for name, sentence in {**_SAID, "ed": _SAID["edit"]}.items():
        magics[name] = lambda line, sentence=sentence: print(sentence)  # type: ignore[misc]
    for name, function in magics.items():
        shell.register_magic_function(function, "line", name)


# A session's cells for ``%history -g``, ``%rerun`` and ``%recall``: IPython asks its database, which is off here.


def keep_own_history(shell: Any) -> None:
    """Let the history magics of a shell find the cells of its session."""
    manager = shell.history_manager

    def cells(raw: bool, output: bool) -> List[Entry]:
        """The cells of this session; numbers that other sessions of the notebook took are left out."""
        found = manager.get_range(0, 1, None, raw=raw, output=output)
        return [cell for cell in found if (cell[2][0] if output else cell[2])]

    def get_tail(
        n: int | None = 10, raw: bool = True, output: bool = False, include_latest: bool = False
    ) -> List[Entry]:
        found = cells(raw, output)
        return (found if include_latest else found[:-1])[-(10 if n is None else n) :] if n != 0 else []

    def search(
        pattern: str = "*", raw: bool = True, search_raw: bool = True, output: bool = False, n: int | None = None,
        unique: bool = False,
    ) -> List[Entry]:  # fmt: skip
        texts = {number: text for _, number, text in cells(search_raw, output=False)}
        found = [cell for cell in cells(raw, output) if fnmatch.fnmatchcase(texts[cell[1]], pattern)]
        if unique:
            found = sorted({texts[cell[1]]: cell for cell in found}.values(), key=lambda cell: cell[1])
        return found if n is None else found[len(found) - min(n, len(found)) :]

    manager.get_tail, manager.search = get_tail, search


# Runs ``!command`` on a terminal of its own, as ipykernel does: programs show columns, and each line at once.
#
# Only their output goes through the terminal. Input stays that of the session, which is empty: nothing waits for a line
# that nobody can type.

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
