"""The worker of a command session: each cell is a new bash that begins with the state of the last one.

The state (variables, functions, options, aliases, folder) is text that bash itself writes when it exits. So a cell
that ends by ``exit``, by ``set -e`` or by an interrupt saves it too, and a cell that is killed cannot damage it. The
worker keeps the state in its memory, so a checkpoint of the worker is a checkpoint of the session.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from ..session.worker import CellEngine, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


BASH = next((path for path in ("/usr/bin/bash", "/bin/bash") if os.path.exists(path)), "bash")
_HERE = os.path.dirname(os.path.abspath(__file__))
_PARTS = ("shopt", "names", "set")
_WHOLE = b"# whole\n"
_MAX_STATE = 16 << 20
_DECLARED = re.compile(rb"^declare -[-a-zA-Z]+ ([A-Za-z_][A-Za-z0-9_]*)", re.MULTILINE)
#: Variables that every bash has; all others are the user's.
_USUAL = {
    "COLUMNS", "HOME", "HOSTNAME", "HOSTTYPE", "IFS", "LANG", "LINES", "MACHTYPE", "OLDPWD", "OPTERR", "OPTIND",
    "OSTYPE", "PATH", "PS1", "PS2", "PS4", "SHELL", "TERM", "TMPDIR",
}  # fmt: skip
#: Seconds after which an interrupt is sent again.
_REPEAT_S = 0.5
#: How long a question about code may take, in seconds.
_PATIENCE_S = 2.0
_WORD = re.compile(r"[^\s;|&()<>`\"'=]*\Z")


class ShellCells(CellEngine):
    """Runs each cell as a bash script."""

    def __init__(self, cell_folder: str) -> None:
        self.cell = os.path.join(cell_folder, "cell.sh")
        #: Where the state is written for bash: the first that has room. A cell may fill the temporary folder.
        self.places = (tempfile.gettempdir(), cell_folder)
        self.state: Dict[str, bytes] = {}
        self.usual = _USUAL | set(os.environ)
        self.interrupted = False
        self.woken = os.pipe()
        #: The call socket for host functions, which cells inherit; empty when there are none.
        self.call_socket = tuple(int(fd) for fd in [os.environ.get("HOST_CALL_SOCKET", "")] if fd)

    def begin(self, worker: Worker) -> None:
        """See ``CellEngine``. On an interrupt bash ends the cell; this process only notes it and waits for bash."""
        os.set_blocking(self.woken[1], False)
        signal.set_wakeup_fd(self.woken[1], warn_on_full_buffer=False)

        def note_interrupt(*_: object) -> None:
            # It must not raise: an exception as ``waitpid`` returns would lose the exit status.
            self.interrupted = True

        signal.signal(signal.SIGINT, note_interrupt)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def forget_interrupts(self) -> None:
        """See ``CellEngine``."""
        self.interrupted = False

    def interrupted_end(self) -> Dict[str, Any]:
        """See ``CellEngine``."""
        return {"status": "interrupted", "exit_code": 128 + signal.SIGINT}

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for a cell. Sends an interrupt again if the shell missed it, for example while it was forking."""
        while True:
            status = child.poll()
            if status is not None:
                return status
            signalled, _, _ = select.select([self.woken[0]], [], [], _REPEAT_S if self.interrupted else None)
            if signalled:
                os.read(self.woken[0], 4096)
            else:
                os.killpg(0, signal.SIGINT)

    def run(self, code: str, number: int | None) -> Dict[str, Any]:
        """See ``CellEngine``."""
        before_bash = self.interrupted
        if before_bash:
            return self.interrupted_end()
        try:
            with open(self.cell, "w") as file:
                file.write(code)
            folder = self.folder_with_state()
        except OSError as error:
            places = " and ".join(self.places)
            print(
                f"the cell did not run: {places} have no room for it: {error.strerror}; restart the session",
                file=sys.stderr,
            )
            return {"status": "error", "exit_code": 1}
        try:
            status = self.wait(self.bash(folder, self.cell))
            if status < 0 and not self.interrupted:
                # The shell itself was killed: end in the same way, so that the host rolls the cell back.
                os.kill(os.getpid(), -status)
            saved = self.take(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        exit_code = status if status >= 0 else 128 - status
        if self.interrupted and exit_code == 128 + signal.SIGINT:
            return {"status": "interrupted", "exit_code": exit_code, "unsaved": not saved}
        return {"status": "error" if exit_code else "ok", "exit_code": exit_code, "unsaved": not saved}

    def folder_with_state(self) -> str:
        """A new folder that holds the state for bash, in the first place with room for it; raises ``OSError``."""
        failure = OSError()
        for place in self.places:
            folder = ""
            try:
                folder = tempfile.mkdtemp(prefix=".shell-", dir=place)
                for part, text in self.state.items():
                    with open(f"{folder}/before.{part}", "wb") as file:
                        file.write(text)
                return folder
            except OSError as error:
                failure = error
                shutil.rmtree(folder, ignore_errors=True)
        raise failure

    def bash(self, folder: str, cell: str, **streams: Any) -> subprocess.Popen[bytes]:
        """Start a bash that loads the state in the folder, runs a script and writes its new state there."""
        script = os.path.join(_HERE, "shell_cell.sh")
        return subprocess.Popen(
            [BASH, "--norc", "--noprofile", script, f"{folder}/before", f"{folder}/after", cell],
            pass_fds=self.call_socket,
            **streams,
        )

    def take(self, folder: str) -> bool:
        """Read the state that a cell has written; returns False, and keeps the old state, when there is none."""
        found: Dict[str, bytes] = {}
        for part in _PARTS:
            try:
                with open(f"{folder}/after.{part}", "rb") as file:
                    found[part] = file.read(_MAX_STATE + 1)
            except OSError:
                return False
        if not found["set"].endswith(_WHOLE) or sum(map(len, found.values())) > _MAX_STATE:
            return False
        self.state = found
        return True

    def names(self) -> int:
        """See ``CellEngine``."""
        return len({name.decode() for name in _DECLARED.findall(self.state.get("names", b""))} - self.usual)

    def ask(self, what: str, code: str, position: int) -> Dict[str, Any]:
        """See ``CellEngine``."""
        if what == "is_complete":
            return self.is_complete(code)
        word = _WORD.search(code[:position])
        text = word.group() if word is not None else ""
        if what == "inspect":
            tail = re.match(r"[^\s;|&()<>`\"'=]*", code[position:])
            name = text + (tail.group() if tail is not None else "")
            shown = self.say(f"type -- {shlex.quote(name)} && help -m {shlex.quote(name)} 2>/dev/null") if name else ""
            return {"data": {"text/plain": shown}} if shown else {}
        first = not code[: position - len(text)].strip() or code[: position - len(text)].rstrip()[-1] in ";|&("
        if text.startswith("$"):
            found = self.say(f"compgen -P '$' -v -- {shlex.quote(text[1:])}")
        elif first and "/" not in text:
            found = self.say(f"compgen -c -- {shlex.quote(text)}")
        else:
            found = self.say(f"compgen -f -- {shlex.quote(text)}")
        matches = sorted({line for line in found.splitlines() if "__sandbox_" not in line})[:1000]
        return {"matches": matches, "cursor_start": position - len(text), "cursor_end": position, "metadata": {}}

    def say(self, script: str) -> str:
        """Return what a script prints in a shell with this session's state; the state does not change."""
        folder = self.folder_with_state()
        try:
            path = f"{folder}/question.sh"
            with open(path, "w") as file:
                file.write(script)
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
            child = self.bash(folder, path, start_new_session=True, **pipes)
            try:
                return child.communicate(timeout=_PATIENCE_S)[0].decode("utf-8", "replace")[: 1 << 20]
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
                return ""
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def is_complete(self, code: str) -> Dict[str, Any]:
        """Ask bash's own parser whether code is complete; runs nothing."""
        try:
            found = subprocess.run(
                [BASH, "--norc", "--noprofile", "-n", "-c", code], capture_output=True, timeout=_PATIENCE_S, check=False
            )
        except (subprocess.TimeoutExpired, OSError):
            return {"status": "unknown", "indent": ""}
        said = found.stderr.decode("utf-8", "replace")
        if found.returncode == 0 and not said:
            open_line = code.endswith("\\")
            return {"status": "incomplete" if open_line else "complete", "indent": ""}
        unended = "unexpected end of file" in said or "unexpected EOF" in said or "here-document" in said
        return {"status": "incomplete" if unended else "invalid", "indent": "  " if unended else ""}


def main(channel: int, arguments: List[str]) -> None:
    """Become the worker of a session; never returns. The argument is the folder for the cell's source."""
    Worker(channel, ShellCells(arguments[0])).serve()
