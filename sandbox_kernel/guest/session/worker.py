"""The loop of a session's worker: takes messages from the host, runs cells, makes checkpoints of itself.

What a cell *is* belongs to an engine (Python, shell); this file knows only how to begin and end one. Between cells
signals are held (``signals.py``), so nothing can break the loop; an interrupt counts from the moment the host
is told that the cell has begun until it is told that it is done.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from . import children
from .freeze import Freezer, Marks
from .signals import Signals
from .worker_channel import HostChannel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


#: What a question to the user may hold; the host takes no more.
MAX_PROMPT = 10_000
#: Ours, whatever a cell puts in its place.
_leave = os._exit


class CellEngine:
    """What a language must be able to do; subclasses live in ``*_session.py``."""

    def begin(self, worker: Worker) -> None:
        """The worker exists; called once, in the process that will run the cells."""

    def run(self, code: str, number: int | None) -> Dict[str, Any]:
        """Run a cell; returns the fields of ``done``: status, exit_code, error, limit."""
        raise NotImplementedError

    def struck(self) -> Dict[str, Any]:
        """The fields of ``done`` for a cell that was interrupted where ``run`` could not say so itself."""
        return {"status": "interrupted"}

    def forget_interrupts(self) -> None:
        """Whatever was noted before was not meant for the next cell; called before it, while signals are held."""

    def ask(self, what: str, code: str, position: int) -> Dict[str, Any]:
        """Answer ``complete``, ``inspect`` or ``is_complete``."""
        raise NotImplementedError

    def names(self) -> int:
        """How many variables of the user's there are."""
        return 0

    def flush(self) -> None:
        """Everything that the cell printed must be in the pipes now."""

    def touch(self) -> None:
        """Write to the memory that every cell writes to: after a fork the first write to a page takes a copy of it.

        Called between cells when nobody waits, so that the next cell does not pay for it. Nothing may be left of it.
        """


class Worker:
    """Serves one host for as long as it lives, in this process or in a checkpoint that takes over."""

    def __init__(self, channel: int, engine: CellEngine) -> None:
        self.signals = Signals()
        self.signals.hold()
        self.channel = HostChannel(channel)
        self.engine = engine
        self.freezer = Freezer()
        self.pid = os.getpid()
        self.cell = 0
        self.unfinished = False
        self.questions = 0
        children.hide(lambda: self.freezer.children)
        engine.begin(self)
        # The engine may have set handlers of its own.
        self.signals.hold()

    def serve(self) -> None:
        """Never returns."""
        self.channel.send({"op": "ready", "pid": self.pid, "names": self.engine.names()})
        while True:
            op = ""
            try:
                message = self.channel.receive()
                op = message["op"]
                if op == "run":
                    self.run(message)
                elif op == "freeze":
                    self.freeze(message["cell"], sealed=message["sealed"])
                elif op == "ask":
                    self.ask(message)
            except (Exception, KeyboardInterrupt) as error:
                self.settle(op, message if op else {}, error)

    def settle(self, op: str, message: Dict[str, Any], error: BaseException) -> None:
        """Something raised in our own loop: a handler of the user's at the very end of a cell, or a library that a cell
        has broken. The host gets the answer that it waits for; a worker that cannot give it must not go on.
        """
        try:
            self.signals.hold()
            if self.unfinished:
                self.finish(self.engine.struck())
            elif op == "freeze":
                reason = f"{type(error).__name__} between cells"
                self.channel.send({"op": "frozen", "cell": message["cell"], "pid": 0, "threads": 0, "reason": reason})
            elif op == "run" or isinstance(error, MemoryError):
                _leave(125)
            else:
                print(f"between cells: {error!r}", file=sys.stderr)
        except BaseException:
            _leave(125)

    def run(self, message: Dict[str, Any]) -> None:
        """One cell, from ``began`` to ``done``."""
        self.cell = message["id"]
        self.freezer.reap()
        self.signals.forget_interrupts()
        self.engine.forget_interrupts()
        self.unfinished = True
        self.channel.send({"op": "began", "id": self.cell})
        self.finish(self.interruptible(message["code"], message.get("number")))

    def interruptible(self, code: str, number: int | None) -> Dict[str, Any]:
        """The part in which an interrupt may strike, even between the cell and us."""
        end: Dict[str, Any] | None = None
        while True:
            try:
                if end is None:
                    end = self.engine.struck()
                    self.signals.release()
                    end = self.engine.run(code, number)
                self.signals.hold()
                return end
            except KeyboardInterrupt:
                continue

    def finish(self, end: Dict[str, Any]) -> None:
        """Tell the host how the cell ended, once all that it printed is in the pipes."""
        self.leave_if_forked()
        self.engine.flush()
        sent = self.channel.send({"op": "done", "id": self.cell, "names": self.engine.names(), **end})
        if not sent:
            self.channel.send({"op": "done", "id": self.cell, "status": end["status"], "names": self.engine.names()})
        self.unfinished = False

    def ask(self, message: Dict[str, Any]) -> None:
        """A question about code; whatever goes wrong with it, there is an answer."""
        answer: Dict[str, Any] = {}
        try:
            # What answers may set itself an alarm; the host ends a worker that does not answer.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
            answer = self.engine.ask(message["what"], message["code"], message["pos"])
        except (Exception, KeyboardInterrupt):
            answer = {}
        finally:
            self.signals.hold()
        if not self.channel.send({"op": "answer", "id": message["id"], "answer": answer}):
            self.channel.send({"op": "answer", "id": message["id"], "answer": {}})

    def freeze(self, cell: int, *, sealed: bool) -> None:
        """Make a checkpoint and say so; in a checkpoint that was woken, say that instead."""
        with self.channel.lock:
            try:
                pid, marks = self.freezer.freeze(sealed=sealed)
            except OSError as error:
                pid, marks = -1, None
                reason = str(error.strerror)
        if marks is None:
            self.channel.send({"op": "frozen", "cell": cell, "pid": 0, "threads": 0, "reason": reason})
        elif pid:
            self.channel.send({"op": "frozen", "cell": cell, "pid": pid, "threads": marks.threads, "reason": ""})
            if not self.channel.waiting():
                self.engine.touch()
        else:
            self.take_over(cell, marks)

    def take_over(self, cell: int, marks: Marks) -> None:
        """We were a checkpoint and are the worker now."""
        self.channel.drain()
        self.pid = os.getpid()
        names = self.engine.names()
        self.channel.send({"op": "restored", "cell": cell, "pid": self.pid, "names": names, "threads": marks.threads})

    def input(self, prompt: str, password: bool) -> str:
        """Ask the host's user for a line; EOFError where there is nobody to ask."""
        if os.getpid() != self.pid or threading.current_thread() is not threading.main_thread():
            raise EOFError("only the cell itself can ask for input, not its threads or child processes")
        self.engine.flush()
        self.questions += 1
        message = {"op": "input", "id": self.cell, "question": self.questions}
        self.channel.send({**message, "prompt": prompt[:MAX_PROMPT], "password": password})
        answer = self.answer_to(self.questions)
        if answer.get("value") is None:
            raise EOFError("no input is available here")
        return str(answer["value"])

    def show(self, message: Dict[str, Any]) -> bool:
        """Show something, and go on when the host has it: what is printed afterwards must not overtake it.

        False when it is too large. Threads and the end of a cell need not wait.
        """
        waits = self.unfinished and os.getpid() == self.pid and message.get("kind") != "result"
        waits = waits and threading.current_thread() is threading.main_thread()
        self.questions += waits
        number = self.questions if waits else 0
        if not self.channel.send({**message, "id": self.cell, "question": number}):
            return False
        if waits:
            self.answer_to(number)
        return True

    def answer_to(self, number: int) -> Dict[str, Any]:
        """Wait for the host's answer to one question; answers to others were interrupted and are too late."""
        while True:
            answer = self.channel.await_answer()
            if answer.get("question") == number:
                return answer

    def leave_if_forked(self) -> None:
        """A cell may fork and let both processes run to its end; only one of them is the worker."""
        if os.getpid() != self.pid:
            self.engine.flush()
            _leave(0)
