"""The gate beside a session: it outlives every process of the session and hands the word from one to the next.

A session is one *runner*, which runs the user's cells, and frozen copies of it, its *checkpoints*. The runner and its
checkpoints share our uid and are hostile; only we talk to the host here. We reap (orphans come to us, the subreaper),
signal, keep copies of the work folder, and carry out a *handover*: end everything that the chosen checkpoint does not
know of, put the folder back, and wake it.

Runs inside, standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
import time

from .folder_copies import Folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Set, Tuple


#: What a checkpoint waits for. Only we may send it: a checkpoint looks at who did.
WAKE = signal.SIGRTMIN + 3
#: How long killed processes may take to be gone before the handover is given up.
DEATH_S = 5.0

if TYPE_CHECKING:
    Order = Dict[str, Any]
    Send = Callable[[Dict[str, Any]], None]


def processes(root: int) -> Dict[int, int]:
    """Every living descendant of a process, with its start time: a pid alone may be used again."""
    parents: Dict[int, Tuple[int, int]] = {}
    dead: Set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name stands in brackets and may hold anything; the numbers begin after the last bracket.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        parents[int(name)] = (int(fields[1]), int(fields[19]))
        if fields[0] in (b"Z", b"X"):
            # It may still be somebody's parent: a process with threads is dead before its last thread is.
            dead.add(int(name))
    found: Dict[int, int] = {}
    grown = True
    while grown:
        grown = False
        for pid, (parent, started) in parents.items():
            if pid not in found and (parent == root or parent in found):
                found[pid] = started
                grown = True
    return {pid: started for pid, started in found.items() if pid not in dead}


class Gate:
    """One session's gate. ``serve`` returns when the host says so or is gone."""

    def __init__(self, control: _socket.socket, runner: int, send: Send) -> None:
        self.control = control
        self.runner = runner
        self.send = send
        self.folder = Folder(os.getcwd())
        self.known: Dict[int, Dict[int, int]] = {}
        #: The init of a namespace sees no process but its own.
        self.alone = os.getpid() == 1

    def serve(self, receive: Callable[[], Order]) -> None:
        """Reap what dies and answer the host, until it has no more orders."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.reap()
        while True:
            ready, _, _ = select.select([self.control.fileno(), wake_read], [], [])
            if wake_read in ready:
                os.read(wake_read, 4096)
                self.reap()
            if self.control.fileno() in ready:
                order = receive()
                if order["op"] == "stop":
                    return
                self.obey(order)

    def obey(self, order: Order) -> None:
        """Carry out one order and answer it with a message of the same name."""
        op = order["op"]
        answer: Dict[str, Any] = {"op": op}
        if op == "signal":
            answer["ok"] = tell(order["pid"], order["signal"])
        elif op == "lives":
            answer["ok"] = order["pid"] in processes(os.getpid())
        elif op == "snapshot":
            self.known[order["cell"]] = processes(os.getpid())
            answer.update(self.folder.take(order["cell"]))
        elif op == "drop":
            self.drop(order["pids"], order["cells"])
            if not order["wait"]:
                return
            self.await_end(order["pids"])
        elif op == "handover":
            answer.update(self.handover(order))
        self.send(answer)

    def drop(self, pids: List[int], cells: List[int]) -> None:
        """Checkpoints that nobody goes back to, and what was kept for them."""
        for pid in pids:
            tell(pid, signal.SIGKILL)
        for cell in cells:
            self.known.pop(cell, None)
            self.folder.forget(cell)

    def await_end(self, pids: List[int]) -> None:
        """Return when these are gone and their memory is free."""
        deadline = time.monotonic() + DEATH_S
        while time.monotonic() < deadline and any(pid in processes(os.getpid()) for pid in pids):
            time.sleep(0.001)

    def reap(self) -> None:
        """Collect the dead; the host wants to know of the runner only."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.runner:
                code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                self.send({"op": "gone", "pid": pid, "code": code, "maxrss": usage.ru_maxrss * 1024})

    def handover(self, order: Order) -> Dict[str, Any]:
        """Let the checkpoint ``pid`` of ``cell`` take over; ``keep`` are the checkpoints that stay frozen.

        Processes that earlier cells left running, and that lived when the checkpoint was made, live on, unless
        ``strict`` says that nothing but checkpoints may.
        """
        cell, chosen = order["cell"], order["pid"]
        stay: Set[int] = {chosen, *order["keep"]}
        known = {} if order["strict"] else self.known.get(cell, {})
        if self.alone:
            # Nobody forks while everybody is stopped; one by one, a program that keeps forking would be missed.
            tell(-1, signal.SIGSTOP)
        deadline = time.monotonic() + DEATH_S
        while True:
            alive = processes(os.getpid())
            victims = [
                pid
                for pid, started in alive.items()
                if pid == self.runner or (pid not in stay and known.get(pid) != started)
            ]
            for pid in victims:
                tell(pid, signal.SIGKILL)
            self.reap()
            if not victims:
                break
            if time.monotonic() > deadline:
                return {"ok": False, "reason": "the processes of the cell would not die", "folder": ""}
            time.sleep(0.0005)
        for pid in alive:
            tell(pid, signal.SIGCONT)
        if chosen not in alive:
            return {"ok": False, "reason": "the checkpoint is gone", "folder": ""}
        problem = self.folder.restore(cell)
        self.runner = chosen
        tell(chosen, WAKE)
        return {"ok": True, "reason": "", "folder": problem}


def tell(pid: int, number: int) -> bool:
    """Send a signal; False when nobody is there to get it."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
