"""The gate of a session: carries out the host's orders about the worker and its checkpoints, and so the rollback.

Worker and checkpoints may be hostile. The gate is our own process, and only it exchanges orders with the host. Orphans
become its children: it is the subreaper or the init of the namespace.

The host names a checkpoint by the number of its cell. The worker reports the pid, and may lie: when the checkpoint is
new the gate checks that this process is a child of the worker. From then on the gate holds it by a descriptor
(``held.py``), so a later process with the same pid is never mistaken for it.

Runs inside the jail: standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
import time

from ..gate.alive import descendants as processes
from ..gate.alive import ticks
from .held import LAST_LOOK, LOOK, WAKE, Held, Refused, await_all, await_no_signal, end_others, only_the_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    Order = Dict[str, Any]
    Send = Callable[[Dict[str, Any]], None]

#: How long the gate waits for killed processes to be gone before it gives up.
DEATH_S = 5.0


class CheckpointGate:
    """One session's gate. ``serve`` returns when the host orders ``stop`` or closes the connection."""

    def __init__(self, control: _socket.socket, worker: int, send: Send) -> None:
        self.control = control
        #: The pid of the worker, which is our child; 0 after it has ended and was reaped.
        self.worker = worker
        self.send = send
        #: By cell: the processes (pid and start time) that existed when its checkpoint was made.
        self.known: Dict[int, Dict[int, int]] = {}
        #: By cell: its checkpoint.
        self.held: Dict[int, Held] = {}
        #: The checkpoint that was promoted, until the host orders to wake it.
        self.chosen: Held | None = None
        #: Whether we are the init of a pid namespace; then signals to pid -1 reach only processes of this session.
        self.alone = os.getpid() == 1
        #: The CPU time of the worker's main thread when it was last interrupted, in clock ticks.
        self.interrupted_at = 0

    def serve(self, receive: Callable[[], Order]) -> None:
        """Reap dead processes and carry out the host's orders until it orders ``stop``."""
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
            # The host must not rely on checkpoints that ended without its order.
            if ended := [cell for cell, held in self.held.items() if held.fd in ready]:
                self.lose(ended)
            if self.control.fileno() in ready:
                order = receive()
                if order["op"] == "stop":
                    return
                self.carry_out(order)

    def carry_out(self, order: Order) -> None:
        """Carry out one order and answer it with a message of the same name."""
        op = order["op"]
        answer: Dict[str, Any] = {"op": op}
        if op == "interrupt":
            answer["ok"] = bool(self.worker) and self.interrupt(again=order["again"])
        elif op == "kill":
            answer["ok"] = bool(self.worker) and signal_child(self.worker, signal.SIGKILL)
        elif op == "hold":
            self.hold(order["cell"], order["pid"], order["before"])
            return
        elif op == "snapshot":
            self.known[order["cell"]] = processes(os.getpid())
        elif op == "drop":
            dropped = self.drop(order["cells"])
            if order["wait"]:
                await_all([held.fd for held in dropped], time.monotonic() + DEATH_S)
            for held in dropped:
                held.close()
            if not order["wait"]:
                return
        elif op == "look":
            for cell in order["cells"]:
                if cell in self.held:
                    self.held[cell].send(LAST_LOOK if order["last"] else LOOK)
            return
        elif op == "promote":
            done = self.promote(order["cell"], order["keep"], strict=order["strict"], patient=order["patient"])
            answer.update({"ok": done, "pid": self.worker if done else 0})
        elif op == "wake":
            if self.chosen is not None:
                self.chosen.send(WAKE)
                self.chosen.close()
                self.chosen = None
            return
        self.send(answer)

    def interrupt(self, *, again: bool) -> bool:
        """Send SIGINT to the worker and its process group; ``again`` to the worker alone, if it still sleeps.

        Python notes a signal in C and acts on it before its next instruction. If that instruction is a system call,
        the signal that came just before it wakes nothing and the cell sleeps on: a second one ends the call. A worker
        whose main thread has computed since the first one has noticed it, and may be saving something.
        """
        used = ticks(f"{self.worker}/task/{self.worker}")
        if again:
            return used <= self.interrupted_at + 1 and signal_child(self.worker, signal.SIGINT)
        self.interrupted_at = used
        # The worker leads a group of its own, so that holds only processes that descend from it.
        return signal_child(-self.worker, signal.SIGINT)

    def hold(self, cell: int, pid: int, before: int) -> None:
        """Hold the process ``pid`` as the checkpoint of a cell; report the checkpoint as lost if it cannot be one.

        The pid comes from the worker, which may lie: without namespaces (Landlock) it could be any process of the user,
        and everywhere it could be another checkpoint. The host does not wait for this order, so the next cell may
        already run: a process that started after ``before`` is refused.
        """
        replaced = self.held.pop(cell, None)
        if replaced is not None:
            replaced.send(signal.SIGKILL)
            replaced.close()
        try:
            if any(held.pid == pid and held.alive for held in self.held.values()):
                raise Refused("it is the checkpoint of another cell")
            # If the worker has died meanwhile, its checkpoints have become our children.
            self.held[cell] = Held(pid, parents=(self.worker, os.getpid()), worker=self.worker, before=before)
        except Refused:
            self.lose([cell])

    def lose(self, cells: List[int]) -> None:
        """Drop the checkpoints of these cells and report them to the host as lost."""
        for held in self.drop(cells):
            held.close()
        self.send({"op": "lost", "cells": cells})

    def drop(self, cells: List[int]) -> List[Held]:
        """Kill the checkpoints of these cells and delete what was kept for them; the caller closes what is returned."""
        dropped = []
        for cell in cells:
            self.known.pop(cell, None)
            held = self.held.pop(cell, None)
            if held is not None:
                held.send(signal.SIGKILL)
                dropped.append(held)
        return dropped

    def reap(self) -> None:
        """Reap dead processes. Only the end of the worker is reported to the host."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.worker:
                code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                self.send({"op": "gone", "pid": pid, "code": code, "maxrss": usage.ru_maxrss * 1024})
                # From now on another process may get this pid.
                self.worker = 0

    def promote(self, cell: int, keep: List[int], *, strict: bool, patient: bool) -> bool:
        """Make the checkpoint of ``cell`` the worker. The checkpoints of the cells in ``keep`` stay, all others end.

        Processes that earlier cells left running, and that existed when the checkpoint was made, go on running. With
        ``strict`` they are killed too. With ``patient`` the memory of what was killed is free afterwards. The host
        restores the work folder and then orders ``wake``. Returns whether it was possible.
        """
        chosen = self.held.pop(cell, None)
        if chosen is None:
            return False
        for other in [number for number in self.held if number not in keep]:
            self.held.pop(other).close()
        stay = {held.pid: held.started for held in (chosen, *self.held.values())}
        stay = {**({} if strict else self.known.get(cell, {})), **stay}
        deadline = time.monotonic() + DEATH_S
        ended = True
        if patient or not (self.alone and only_the_worker(self.worker, stay, deadline)):
            if self.alone:
                # A stopped process cannot fork. Killed one by one, a program that keeps forking would outrun us.
                signal_child(-1, signal.SIGSTOP)
            ended = end_others(lambda: self.worker, stay, deadline, self.reap, patient=patient)
        if ended and chosen.alive and await_no_signal(chosen.pid, WAKE, DEATH_S):
            self.chosen, self.worker = chosen, chosen.pid
            return True
        if ended:
            chosen.send(signal.SIGKILL)
        chosen.close()
        return False


def signal_child(pid: int, number: int) -> bool:
    """Send a signal to our child, its process group (-pid) or our whole namespace (-1); False when there is none."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
