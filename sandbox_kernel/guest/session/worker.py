"""The loop of a session's worker: receives messages from the host, runs cells, makes checkpoints of itself.

An *engine* (Python, shell, QuickJS) runs the code of a cell; this file begins and ends the cell. Between cells signals
are held back (``signals.py``), so that none can break the loop. An interrupt takes effect between the messages
``began`` and ``done`` of a cell.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from .freeze import Freezer, Marks, uses_accelerator
from .held import LAST_LOOK, LOOK
from .observer import Observer
from .signals import SIG_UNBLOCK, Signals, set_mask
from .worker_channel import HostChannel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Tuple


#: The longest prompt of an input request, in characters; the host accepts no longer one.
MAX_PROMPT = 10_000
#: References taken before the first cell, because a cell may replace these functions.
_leave, _now = os._exit, time.monotonic
#: A fork right after a cell takes the processor from the host that delivers its result (two cores: 0.5 ms of 6). So it
#: waits this long, unless cells follow each other faster than a person sends them: they wait for the checkpoint.
_DELIVERY_S, _BACK_TO_BACK_S = 0.004, 0.045


class CellEngine:
    """Runs the cells of one language; subclasses are in ``*_session.py``."""

    #: Expressions of a front end, by name, to be evaluated after the cell; None when no front end runs the cell.
    expressions: Dict[str, str] | None = None

    def begin(self, worker: Worker) -> None:
        """Prepare for the first cell; the worker calls this once, in the process that will run the cells."""

    def run(self, code: str, number: int | None) -> Dict[str, Any]:
        """Run a cell. Returns the fields of the message ``done``: status, exit_code, error, limit, reply."""
        raise NotImplementedError

    def take_comm(self, message: Dict[str, Any]) -> Dict[str, Any]:
        """Hand a message of the page to a widget of this session. Returns the fields of ``done``, as ``run``."""
        raise NotImplementedError

    def interrupted_end(self) -> Dict[str, Any]:
        """Return the fields of ``done`` for a cell that was interrupted before ``run`` could return them."""
        return {"status": "interrupted"}

    def forget_interrupts(self) -> None:
        """Discard interrupts noted before this cell; called before each cell, while signals are held."""

    def ask(self, what: str, code: str, position: int) -> Dict[str, Any]:
        """Answer a question about code: ``what`` is ``complete``, ``inspect`` or ``is_complete``."""
        raise NotImplementedError

    def names(self) -> int:
        """Return the number of variables that the user has defined."""
        return 0

    def names_asleep(self) -> int | None:
        """Return ``names`` in a checkpoint that is not set right yet; None where that would run code of others."""
        return None

    def threads(self) -> int:
        """Return how many threads the user's code has started; those inside of libraries do not count."""
        return 0

    def look(self) -> Callable[[], Iterator[Dict[str, List[str]]]] | None:
        """Return a function that looks at the variables, for a fork that ends afterwards; None where there are none."""
        return None

    def flush(self) -> None:
        """Write everything that the cell has printed to the pipes."""

    def belongs(self) -> int:
        """Return the number of the cell that the calling code belongs to; 0 when that is the running one."""
        return 0

    def go_on(self) -> None:
        """Do what goes on between cells until the host has sent a message; may return earlier."""

    def take_over(self) -> None:
        """Set right what a fork shares; called when a checkpoint has become the worker."""

    def touch(self) -> None:
        """Write to the memory pages that every cell writes to, so that the kernel copies them before the next cell.

        After a fork the first write to a page copies it. The worker calls this between cells when the host has sent
        nothing more. It must leave no trace in the state.
        """


class Worker:
    """Runs the cells of one session, in this process or, after a rollback, in the checkpoint that takes over."""

    def __init__(self, channel: int, engine: CellEngine) -> None:
        self.signals = Signals()
        self.signals.hold()
        self.channel = HostChannel(channel)
        self.engine = engine
        self.freezer = Freezer()
        self.observer = Observer()
        self.pid = os.getpid()
        self.cell = 0
        self.unfinished = False
        #: When the last cell ended, and whether the present one came right after it.
        self.ended, self.hurried = 0.0, False
        #: Whether this checkpoint has already told the host that it takes over.
        self.announced = False
        self.questions = 0
        hide_checkpoints_from_waits(lambda: self.freezer.children)
        self.freezer.threads = engine.threads
        engine.begin(self)
        # The engine may have set handlers of its own.
        self.signals.hold()

    def serve(self) -> None:
        """Receive and carry out the host's messages; never returns."""
        self.channel.send({"op": "ready", "names": self.engine.names()})
        checkpoint: Dict[str, Any] | None = None
        while True:
            op = ""
            try:
                if checkpoint is not None:
                    op, message, checkpoint = "freeze", checkpoint, None
                    if not self.hurried:
                        self.channel.waiting(_DELIVERY_S)
                else:
                    if not self.channel.waiting():
                        self.engine.go_on()
                    self.end_forks()
                    message = self.channel.receive()
                    op = message["op"]
                if op == "run":
                    # It follows without another order, also when our own code fails at the end of the cell.
                    checkpoint = message.get("checkpoint")
                    self.run(message)
                elif op == "freeze":
                    self.freeze(message["cell"], sealed=message["sealed"])
                elif op == "ask":
                    self.ask(message)
            except (Exception, KeyboardInterrupt) as error:
                self.settle(op, message if op else {}, error)

    def settle(self, op: str, message: Dict[str, Any], error: BaseException) -> None:
        """Handle an exception in our own loop: a user's signal handler raised at the end of a cell, or a cell has
        broken a library. Sends the answer that the host waits for, or exits if that is not possible.
        """
        try:
            self.signals.hold()
            if self.unfinished:
                self.finish(self.engine.interrupted_end())
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
        """Run one cell and send ``began`` before and ``done`` after it."""
        self.cell = message["id"]
        self.hurried = _now() - self.ended < _BACK_TO_BACK_S
        self.freezer.reap()
        self.signals.forget_interrupts()
        self.engine.forget_interrupts()
        self.engine.expressions = message.get("expressions")
        self.unfinished = True
        self.channel.send({"op": "began", "id": self.cell})
        self.finish(self.interruptible(message["code"], message.get("number"), message.get("comm")))

    def interruptible(self, code: str, number: int | None, comm: Dict[str, Any] | None = None) -> Dict[str, Any]:
        """Run the cell with signals released; a KeyboardInterrupt that escapes the engine ends it as interrupted."""
        end: Dict[str, Any] | None = None
        while True:
            try:
                if end is None:
                    end = self.engine.interrupted_end()
                    self.signals.release()
                    end = self.engine.run(code, number) if comm is None else self.engine.take_comm(comm)
                self.signals.hold()
                return end
            except KeyboardInterrupt:
                continue

    def finish(self, end: Dict[str, Any]) -> None:
        """Flush the cell's output, then send ``done`` to the host."""
        self.engine.flush()
        self.end_forks()
        if uses_accelerator():
            end = {**end, "accelerator": True}
        sent = self.channel.send({"op": "done", "id": self.cell, **end})
        if not sent and "reply" in end:
            end.pop("reply")
            sent = self.channel.send({"op": "done", "id": self.cell, **end})
        if not sent:
            self.channel.send({"op": "done", "id": self.cell, "status": end["status"]})
        self.unfinished, self.ended = False, _now()

    def end_forks(self) -> None:
        """End this process where code of the user forked it: it has run to the end of that code, and is no worker."""
        if os.getpid() != self.pid:
            _leave(0)

    def ask(self, message: Dict[str, Any]) -> None:
        """Answer a question about code; an empty answer when the engine fails."""
        answer: Dict[str, Any] = {}
        if message["what"] == "looks":
            for cell, found in self.observer.finished([int(cell) for cell in message["code"].split()]):
                self.channel.send({"op": "look", "cell": cell, "found": found})
        try:
            # The engine may set itself an alarm; the host ends a worker that does not answer in time.
            set_mask(SIG_UNBLOCK, [signal.SIGALRM])
            answer = self.engine.ask(message["what"], message["code"], message["pos"])
        except (Exception, KeyboardInterrupt):
            answer = {}
        finally:
            self.signals.hold()
        self.end_forks()
        if not self.channel.send({"op": "answer", "id": message["id"], "answer": answer}):
            self.channel.send({"op": "answer", "id": message["id"], "answer": {}})

    def freeze(self, cell: int, *, sealed: bool) -> None:
        """Fork a checkpoint of this process. The worker sends ``frozen``; the checkpoint, once woken, ``restored``."""
        self.observer.expect(cell)
        with self.channel.lock:
            try:
                pid, marks = self.freezer.freeze(
                    sealed=sealed,
                    look=lambda number: self.look(cell, number),
                    woken=lambda marks: self.tell_early(cell, marks),
                )
            except OSError as error:
                pid, marks = -1, None
                reason = str(error.strerror)
        if marks is None:
            self.channel.send({"op": "frozen", "cell": cell, "pid": 0, "threads": 0, "reason": reason})
        elif pid:
            outside = {"sockets": marks.sockets, "databases": marks.databases, "children": marks.children}
            told = {"cell": cell, "pid": pid, "threads": marks.threads, "outside": outside, "reason": ""}
            self.channel.send({"op": "frozen", **told})
            if not self.channel.waiting():
                self.engine.touch()
        else:
            self.take_over(cell, marks)

    def look(self, cell: int, number: int) -> None:
        """Begin to look at the variables, or note that a look has ended, by a signal: see ``Freezer.freeze``."""
        look = self.engine.look()
        if number == signal.SIGCHLD:
            self.observer.ended(cell)
        elif number in (LOOK, LAST_LOOK) and look is not None:
            self.observer.start(cell, look, last=number == LAST_LOOK)

    def tell_early(self, cell: int, marks: Marks) -> None:
        """Tell the host that this checkpoint takes over, before the process is set right, which takes longer.

        Where the variables cannot be counted without running code of others, ``take_over`` tells it.
        """
        names = self.engine.names_asleep()
        if names is not None:
            # Written by hand: every function that runs here copies pages that the checkpoint shares.
            told = b'{"op": "restored", "cell": %d, "names": %d, "threads": %d}' % (cell, names, marks.threads)
            self.announced = self.channel.tell(told)

    def take_over(self, cell: int, marks: Marks) -> None:
        """Become the worker: the gate has woken this checkpoint. The host is told first, and may go on."""
        self.channel.take_over()
        self.pid = os.getpid()
        if not self.announced:
            self.channel.drain()
            names = self.engine.names()
            self.channel.send({"op": "restored", "cell": cell, "names": names, "threads": marks.threads})
        self.announced = False
        self.freezer.come_back(marks)
        self.engine.take_over()

    def input(self, prompt: str, password: bool) -> str:
        """Ask the user for a line of input; raises ``EOFError`` where the host has no user to ask."""
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

    def show(self, message: Dict[str, Any], waits: bool | None = None) -> bool:
        """Send a display and wait until the host has read it, so that later output is not shown before it.

        Returns False when the display is too large. Threads do not wait, and the value of a cell only if ``waits`` says
        that output follows it. What no page shows (``waits`` is False) need not wait either.
        """
        waits = message.get("kind") != "result" if waits is None else waits
        waits = waits and self.unfinished and os.getpid() == self.pid
        waits = waits and threading.current_thread() is threading.main_thread()
        self.questions += waits
        number = self.questions if waits else 0
        if not self.channel.send({**message, "id": self.engine.belongs() or self.cell, "question": number}):
            return False
        if waits:
            self.answer_to(number)
        return True

    def answer_to(self, number: int) -> Dict[str, Any]:
        """Wait for the host's answer to one question; discards late answers to interrupted ones."""
        while True:
            answer = self.channel.await_answer()
            if answer.get("question") == number:
                return answer


# Replacements for ``os.wait``, ``waitpid``, ``wait3`` and ``wait4`` that hide the worker's checkpoints.
#
# A checkpoint is a child of the worker. A program that waits for *any* child would wait for checkpoints too, and these
# do not end. Waiting for one pid is not changed.

_waitid, _waitpid, _wait4 = os.waitid, os.waitpid, os.wait4


def hide_checkpoints_from_waits(checkpoints: Callable[[], List[int]]) -> None:
    """Replace the functions that wait for any child. ``checkpoints`` returns the pids that they must not return."""

    def only_checkpoints_left() -> bool:
        hidden = set(checkpoints())
        for thread in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{thread}/children") as file:
                    if any(int(pid) not in hidden for pid in file.read().split()):
                        return False
            except OSError:
                continue
        return True

    def next_child(options: int) -> int:
        """Return the pid of a child that has ended; 0 when none has and ``options`` holds ``WNOHANG``."""
        while True:
            if only_checkpoints_left():
                raise ChildProcessError(10, "No child processes")
            found = _waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | (options & os.WNOHANG))
            if found is None:
                return 0
            if found.si_pid not in checkpoints():
                return found.si_pid
            # The host dropped this checkpoint, so reap it here.
            _waitpid(found.si_pid, os.WNOHANG)

    def waitpid(pid: int, options: int, /) -> Tuple[int, int]:
        if pid != -1 or options & ~os.WNOHANG or not checkpoints():
            return _waitpid(pid, options)
        child = next_child(options)
        return _waitpid(child, 0) if child else (0, 0)

    def wait() -> Tuple[int, int]:
        return waitpid(-1, 0)

    def wait4(pid: int, options: int) -> Tuple[int, int, Any]:
        if pid != -1 or options & ~os.WNOHANG or not checkpoints():
            return _wait4(pid, options)
        return _wait4(next_child(options) or -1, os.WNOHANG)

    def wait3(options: int) -> Tuple[int, int, Any]:
        return wait4(-1, options)

    for function in (waitpid, wait, wait4, wait3):
        function.__doc__ = getattr(os, function.__name__).__doc__
        function.__module__ = "posix"
        setattr(os, function.__name__, function)
