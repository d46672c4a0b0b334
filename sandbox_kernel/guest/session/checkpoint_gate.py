"""The gate beside a session: it outlives every process of the session and hands the word from one to the next.

A session is one *runner*, which runs the user's cells, and frozen copies of it, its *checkpoints*. The runner and its
checkpoints share our uid and are hostile; only we talk to the host here. We reap (orphans come to us, the subreaper),
signal, keep copies of the work folder, and carry out a *handover*: end everything that the chosen checkpoint does not
know of, put the folder back, and wake it.

The host names a checkpoint by the number of its cell. Its pid is what the runner claims, and is looked at once, when
the checkpoint is new: it must be a child of the runner. From then on we hold it by a descriptor (``session_held.py``),
so that nothing that gets its number later is taken for it.

Runs inside, standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
import time

from ..gate.alive import descendants as processes
from .folder_copies import WorkFolder
from .held import Held, Refused, await_ends, calm, signal_same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List


#: What a checkpoint waits for. Only we may send it: a checkpoint looks at who did. No real-time signal: of these the
#: kernel forgets who sent them while too many signals of one user wait anywhere.
WAKE = signal.SIGUSR2
#: How long killed processes may take to be gone before the handover is given up.
DEATH_S = 5.0

if TYPE_CHECKING:
    Order = Dict[str, Any]
    Send = Callable[[Dict[str, Any]], None]


class CheckpointGate:
    """One session's gate. ``serve`` returns when the host says so or is gone."""

    def __init__(self, control: _socket.socket, runner: int, send: Send) -> None:
        self.control = control
        #: The pid of our child that runs the cells; 0 when it has ended and was collected.
        self.runner = runner
        self.send = send
        self.folder = WorkFolder(os.getcwd())
        self.known: Dict[int, Dict[int, int]] = {}
        self.held: Dict[int, Held] = {}
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
            checkpoints = [held.fd for held in self.held.values()]
            ready, _, _ = select.select([self.control.fileno(), wake_read, *checkpoints], [], [])
            if wake_read in ready:
                os.read(wake_read, 4096)
                self.reap()
            self.tell_lost()
            if self.control.fileno() in ready:
                order = receive()
                if order["op"] == "stop":
                    return
                self.obey(order)

    def obey(self, order: Order) -> None:
        """Carry out one order and answer it with a message of the same name."""
        op = order["op"]
        answer: Dict[str, Any] = {"op": op}
        if op == "interrupt":
            # The runner leads a session of its own, and with it a process group that nothing else can join.
            answer["ok"] = bool(self.runner) and tell(-self.runner, signal.SIGINT)
        elif op == "kill":
            answer["ok"] = bool(self.runner) and tell(self.runner, signal.SIGKILL)
        elif op == "hold":
            self.hold(order["cell"], order["pid"], order["before"])
            return
        elif op == "lives":
            answer["ok"] = order["cell"] in self.held and self.held[order["cell"]].alive
        elif op == "snapshot":
            self.known[order["cell"]] = processes(os.getpid())
            answer.update(self.folder.take(order["cell"]))
        elif op == "drop":
            dropped = self.drop(order["cells"])
            if order["wait"]:
                await_ends(dropped, DEATH_S)
            for held in dropped:
                held.close()
            if not order["wait"]:
                return
        elif op == "handover":
            answer.update(self.handover(order))
        self.send(answer)

    def hold(self, cell: int, pid: int, before: int) -> None:
        """Take a process for the checkpoint of a cell; one that cannot be it is lost.

        The pid is a claim of the runner: behind Landlock it could be any process of the user, and everywhere another
        checkpoint. The host does not wait for us, so that the next cell may run already: what has started since is
        not what was claimed.
        """
        replaced = self.held.pop(cell, None)
        if replaced is not None:
            replaced.end()
            replaced.close()
        try:
            if any(held.pid == pid and held.alive for held in self.held.values()):
                raise Refused("it is the checkpoint of another cell")
            # A runner that died meanwhile has left its checkpoints to us.
            self.held[cell] = Held(pid, parents=(self.runner, os.getpid()), runner=self.runner, before=before)
        except Refused:
            self.lose([cell])

    def tell_lost(self) -> None:
        """Say which checkpoints have ended without our doing, before somebody relies on them."""
        ended = select.select([held.fd for held in self.held.values()], [], [], 0)[0]
        if ended:
            self.lose([cell for cell, held in self.held.items() if held.fd in ended])

    def lose(self, cells: List[int]) -> None:
        """These cells have no checkpoint any more."""
        for held in self.drop(cells):
            held.close()
        self.send({"op": "lost", "cells": cells})

    def drop(self, cells: List[int]) -> List[Held]:
        """End checkpoints that nobody goes back to, and forget what was kept for them; returns those to be closed."""
        dropped = []
        for cell in cells:
            self.known.pop(cell, None)
            self.folder.forget(cell)
            held = self.held.pop(cell, None)
            if held is not None:
                held.end()
                dropped.append(held)
        return dropped

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
                # The number may mean another process from now on.
                self.runner = 0

    def handover(self, order: Order) -> Dict[str, Any]:
        """Let the checkpoint of ``cell`` take over; those of the cells ``keep`` stay frozen, all others end.

        Processes that earlier cells left running, and that lived when the checkpoint was made, live on, unless
        ``strict`` says that nothing but checkpoints may.
        """
        cell = order["cell"]
        chosen = self.held.pop(cell, None)
        if chosen is None:
            return {"ok": False, "pid": 0, "reason": "the checkpoint is gone", "folder": ""}
        try:
            return self.let_take_over(chosen, cell, order["keep"], strict=order["strict"])
        finally:
            chosen.close()

    def let_take_over(self, chosen: Held, cell: int, keep: List[int], *, strict: bool) -> Dict[str, Any]:
        """See ``handover``."""
        for other in [number for number in self.held if number not in keep]:
            self.held.pop(other).close()
        stay = {held.pid: held.started for held in (chosen, *self.held.values())}
        known = {} if strict else self.known.get(cell, {})
        if self.alone:
            # Nobody forks while everybody is stopped; one by one, a program that keeps forking would be missed.
            tell(-1, signal.SIGSTOP)
        deadline = time.monotonic() + DEATH_S
        while True:
            alive = processes(os.getpid())
            victims = {
                pid: started
                for pid, started in alive.items()
                if pid == self.runner or started not in (stay.get(pid), known.get(pid))
            }
            for pid, started in victims.items():
                signal_same(pid, started, signal.SIGKILL)
            self.reap()
            if not victims:
                break
            if time.monotonic() > deadline:
                reason = "the processes of the cell would not die"
                return {"ok": False, "pid": 0, "reason": reason, "folder": ""}
            time.sleep(0.0005)
        for pid, started in alive.items():
            signal_same(pid, started, signal.SIGCONT)
        if not chosen.alive or not calm(chosen.pid, DEATH_S):
            chosen.end()
            return {"ok": False, "pid": 0, "reason": "the checkpoint is gone", "folder": ""}
        problem = self.folder.restore(cell)
        self.runner = chosen.pid
        chosen.send(WAKE)
        return {"ok": True, "pid": chosen.pid, "reason": "", "folder": problem}


def tell(pid: int, number: int) -> bool:
    """Send a signal to our own child, its group, or all of our namespace; False when nobody is there to get it."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
