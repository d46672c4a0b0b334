"""Input prompts of one run. Shows one prompt at a time and pauses the run's deadline until it is answered."""

from __future__ import annotations

import fcntl
import inspect
import os
import selectors
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from sandbox_kernel.jail.accounting.processes import runs, tasks, tree
from sandbox_kernel.jail.rules.syscalls import ARCHES, number
from sandbox_kernel.jail.streams import Feeder, ListenerFailed
from sandbox_kernel.model import OnInput
from sandbox_kernel.util.linux_calls import closed_after
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import encodable

#: The longest line that ``input()`` returns.
MAX_INPUT = 32 << 10


def takes_prompt_alone(ask: Callable[..., object]) -> bool:
    """Whether a function takes only the prompt, as the builtin ``input`` does."""
    try:
        signature = inspect.signature(ask)
        signature.bind("prompt")
    except (TypeError, ValueError):
        return False
    try:
        signature.bind("prompt", False)
    except TypeError:
        return True
    return False


class InputPrompt:
    """One prompt, shown on a thread of its own, because the loop must go on while the user types."""

    def __init__(self, prompt: str, password: bool, ask: OnInput) -> None:
        self.began = time.monotonic()
        self.value: object = ""
        self.failure: BaseException | None = None
        self._answered, self._tell = os.pipe2(os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._open = True
        arguments = (prompt,) if takes_prompt_alone(ask) else (prompt, password)

        def target() -> None:
            try:
                self.value = ask(*arguments)
            except BaseException as error:
                self.failure = error
            with self._lock:
                if self._open:
                    os.write(self._tell, b"x")

        threading.Thread(target=target, name="sandbox-input", daemon=True).start()

    def fileno(self) -> int:
        """Return a descriptor for ``selectors`` that becomes readable with the answer."""
        return self._answered

    @property
    def text(self) -> str | None:
        """The answer in a form that a program can read; None for the end of input."""
        if self.failure is not None or self.value is None:
            return None
        return encodable(str(self.value)[:MAX_INPUT])

    def close(self) -> None:
        """Drop the prompt: the answer is no longer needed. May be called twice."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._answered)
                os.close(self._tell)


#: Called with the answer; None is the end of input.
Answered = Callable[[str | None], None]


@dataclass
class InputPrompts:
    """The prompts of one run, watched by its loop with ``selector``.

    ``before`` is called before the user is asked, so that earlier output is shown first; ``interrupted`` when the user
    interrupts instead of answering. For another exception of ``on_input`` the loop raises ``ListenerFailed``.
    """

    selector: selectors.BaseSelector
    on_input: OnInput
    before: Callable[[], None]
    interrupted: Callable[[], None]
    #: The prompt that is open now.
    open: InputPrompt | None = None
    #: How long answered prompts were open, in seconds, all together.
    asked_s: float = 0.0

    def ask(self, prompt: str, answered: Answered, *, password: bool = False) -> None:
        """Show a prompt and return. The loop calls ``answered`` later."""
        self.before()
        self.open = InputPrompt(prompt, password, self.on_input)
        self.selector.register(self.open, selectors.EVENT_READ, partial(self._on_readable, answered))

    def _on_readable(self, answered: Answered, fd: int) -> None:
        asking, self.open = self.open, None
        assert asking is not None
        self.selector.unregister(fd)
        asking.close()
        self.asked_s += time.monotonic() - asking.began
        if isinstance(asking.failure, KeyboardInterrupt):
            self.interrupted()
            return
        if asking.failure is not None and not isinstance(asking.failure, EOFError):
            raise ListenerFailed(asking.failure)
        answered(asking.text)

    def close(self) -> None:
        """Drop an open prompt. May be called twice."""
        if self.open is not None:
            self.open.close()


# Asks the user for a line when a program waits for input. Called at each tick of the loop that watches the program.

#: Seconds between two checks; short enough for a person not to notice.
CHECK_S = 0.04
#: After this many checks in a row without a result, checking is given up.
_LOOKS = 5


class InputWatch:
    """The standard input of a run whose user can be asked; it ends at once where it cannot be told that one waits."""

    def __init__(self, feeder: Feeder, selector: selectors.BaseSelector, questions: InputPrompts) -> None:
        self._feeder, self._selector, self._questions = feeder, selector, questions
        self._next_check = 0.0
        self._seen_waiting = False
        self._in_vain = 0

    def check(self, init_pid: int) -> None:
        """Ask the user if the program waits and no prompt is open."""
        now = time.monotonic()
        if now < self._next_check or self._questions.open is not None or not self._feeder.idle:
            return
        self._next_check = now + CHECK_S
        try:
            waits = waits_for_input(init_pid, self._feeder.fd)
        except CannotTell:
            self._in_vain += 1
            if self._in_vain == _LOOKS:
                self._feeder.close()
            return
        self._in_vain = 0
        # Must be seen twice: event loops check all their descriptors once more before they end.
        asks, self._seen_waiting = waits and self._seen_waiting, waits
        if asks:
            self._seen_waiting = False
            self._questions.ask("", self._answered)

    def _answered(self, text: str | None) -> None:
        if text is None:
            self._feeder.close()
        else:
            self._feeder.add(f"{text}\n".encode())
            self._feeder.attend(self._selector)


# Detects that a program waits for input: one of its threads sleeps in a call that reads from an empty pipe.
#
# This works for every language, because the program need not cooperate. The kernel tells a process that may trace
# another in which call its threads sleep, and with which arguments. Where that is refused (some containers, programs of
# another user), a program that waits cannot be told from one that works.

_IN = 1  # POLLIN and EPOLLIN
_POLLFD = struct.Struct("ihh")
#: Longer lists of descriptors are not read; a program that waits for input has short ones.
_MAX_WATCHED = 1024


def _numbers(*names: str) -> frozenset[int]:
    arch = os.uname().machine
    found = (number(name, arch) for name in names) if arch in ARCHES else ()
    return frozenset(one for one in found if one is not None)


_READS = _numbers("read", "readv", "splice")
_POLLS = _numbers("poll", "ppoll")
_SELECTS = _numbers("select", "pselect6")
_EPOLLS = _numbers("epoll_wait", "epoll_pwait", "epoll_pwait2")


class CannotTell(Exception):
    """The kernel does not say what these processes do."""


def waits_for_input(init_pid: int, pipe_fd: int) -> bool:
    """Whether a process below ``init_pid`` sleeps until something is written to this pipe, and the pipe is empty.

    Raises ``CannotTell`` if the kernel refuses. It may also refuse for a moment while a process starts or ends.
    """
    name = f"pipe:[{os.fstat(pipe_fd).st_ino}]"
    looks = [_reads(task, name) for pid in tree(init_pid) if pid != init_pid for task in tasks(pid) or [str(pid)]]
    if None in looks and True not in looks:
        raise CannotTell
    # Check the pipe last: only we write to it, so a thread that slept there still sleeps.
    (waiting_bytes,) = struct.unpack("i", fcntl.ioctl(pipe_fd, termios.FIONREAD, b"\0\0\0\0"))
    return True in looks and not waiting_bytes


def _reads(task: str, pipe: str) -> bool | None:
    """Whether a thread (a folder below /proc) waits for this pipe; None when it may not be examined."""
    try:
        return any(_is(task, fd, pipe) for fd in _read_by(task))
    except PermissionError:
        # The files of a thread that has ended belong to root; it reads nothing.
        return None if runs(task) else False
    except (OSError, ValueError):  # it ended meanwhile, or its arguments cannot be read
        return False


def _read_by(task: str) -> Iterator[int]:
    """Yield the descriptors that a thread waits for."""
    with open(f"/proc/{task}/syscall") as file:
        words = file.read().split()
    if len(words) < 4:  # it runs, or sleeps outside of a call
        return
    call, first, second = int(words[0]), int(words[1], 16), int(words[2], 16)
    if call in _READS:
        yield first
    elif call in _POLLS and first:
        data = _memory(task, first, min(second, _MAX_WATCHED) * _POLLFD.size)
        whole = len(data) - len(data) % _POLLFD.size
        yield from (fd for fd, events, _ in _POLLFD.iter_unpack(data[:whole]) if events & _IN)
    elif call in _SELECTS and second:
        count = min(first, _MAX_WATCHED)
        data = _memory(task, second, (count + 7) // 8)
        yield from (fd for fd in range(min(count, len(data) * 8)) if data[fd // 8] >> fd % 8 & 1)
    elif call in _EPOLLS:
        # Lines like ``tfd:        0 events:       19 data: ...``, one for each watched descriptor.
        with open(f"/proc/{task}/fdinfo/{first}") as file:
            lines = [line.split() for line in file.read(1 << 20).splitlines() if line.startswith("tfd:")]
        yield from (int(words[1]) for words in lines[:_MAX_WATCHED] if int(words[3], 16) & _IN)


def _is(task: str, fd: int, pipe: str) -> bool:
    """Whether a descriptor of a thread is this pipe. The link is read, never followed."""
    try:
        return os.readlink(f"/proc/{task}/fd/{fd}") == pipe
    except FileNotFoundError:
        return False


def _memory(task: str, address: int, size: int) -> bytes:
    if not size:
        return b""
    with closed_after(os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)) as fd:
        return os.pread(fd, size, address)
