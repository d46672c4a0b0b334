"""One step of an order: how a child of the gate sets its limits and walls and becomes the step's program.

Everything here except ``move_up`` and ``prepare`` runs in the child.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import errno
import fcntl
import marshal
import mmap
import os
import resource
import sys

from . import alive, lockdown, python_once
from .wire import receive_descriptors, receive_frame, send_descriptors, send_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


#: How readily the kernel ends a program when the machine runs out of memory.
OOM_SCORE = 500
#: The descriptor of the channel to the host, in steps that report.
REPORT_FD = 3
#: The lowest descriptor of the call socket for host functions; the lowest limit on open files is 16.
CALL_SOCKET_FD = 14
#: The variable that tells programs the descriptor of the call socket.
CALL_SOCKET_VARIABLE = "HOST_CALL_SOCKET"
#: The variable that asks for a connection, and gets its descriptor.
LINE_VARIABLE = "HOST_LINE"


def prepare(step: Dict[str, Any]) -> None:
    """Prepare a step from outside its walls; does nothing here: this gate is inside. ``open_gate.py`` replaces it."""


def put_up_walls() -> None:
    """Build walls around this child; does nothing here: bubblewrap has built them. ``open_gate.py`` replaces it."""


def leave_the_gate() -> None:
    """Undo the gate's own settings in a new child: new process session, default signals, dumpable, usual umask."""
    os.setsid()
    for number in range(1, signal.NSIG):
        try:
            if signal.getsignal(number) != signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    lockdown.set_dumpable(True)
    os.umask(0o022)


def stand_alone(step: Dict[str, Any], blobs: List[bytes]) -> int:
    """Set limits, walls and filter of a step in a child; returns the listener of one that asks to fork, or -1."""
    # The kernel kills this process before the host when memory runs out.
    fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    try:
        if int(os.read(fd, 16)) < OOM_SCORE:
            os.pwrite(fd, str(OOM_SCORE).encode(), 0)
    finally:
        os.close(fd)
    lockdown.set_rlimits(step["rlimits"])
    put_up_walls()
    if step.get("seccomp") is not None:
        return lockdown.load_seccomp(blobs[step["seccomp"]], listener=step.get("asks_to_fork", False))
    return -1


def hand_over(listener: int, channel: int) -> None:
    """Send the filter's listener to the host, as the first byte of the channel; the byte comes without one too."""
    sock = socket.socket(fileno=channel)
    try:
        if listener >= 0:
            send_descriptors(sock, [listener], b"F")
            os.close(listener)
        else:
            sock.send(b"F")
    finally:
        sock.detach()


def wait_as_guest(argv: List[str], order: int, channel: int) -> None:
    """Call the ``wait`` function of one of our modules with the order's descriptor and its arguments; never returns."""
    if order == REPORT_FD:
        order = os.dup(order)
    os.dup2(channel, REPORT_FD, inheritable=False)
    if channel != REPORT_FD:
        os.close(channel)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    run_guest(argv, "wait", order)


def become(step: Dict[str, Any], flags: mmap.mmap, blobs: List[bytes], channel: int, call_socket: int) -> None:
    """Turn this child into the program of one step, after ``stand_alone``."""
    if step["kind"] != "exec":
        # As an interpreter does at its start; an executed program sets its own.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    environment = step["env"]
    if step.get("no_stdin"):
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    if call_socket >= 0:
        call_socket = keep_call_socket(call_socket, environment, inherits=step["kind"] == "exec")
    if step["kind"] == "exec":
        try:
            os.execve(step["argv"][0], step["argv"], environment)
        except OSError as error:
            sys.stderr.write("{}: {}\n".format(step["argv"][0], error.strerror))
            os._exit(127 if error.errno == errno.ENOENT else 126)
    os.environ.clear()
    os.environ.update(environment)
    if call_socket >= 0:
        from ..functions.caller import install

        install(call_socket, step["functions"])
    if step["kind"] == "session":
        run_guest(step["argv"], "main", channel)
    python_once.run(blobs[step["source"]], step["argv"], flags)


def be_step(
    step: Dict[str, Any], flags: mmap.mmap, blobs: List[bytes], channel: int, problem_write: int, call_socket: int
) -> None:
    """Become the program of this step, in a child after ``leave_the_gate``; a failure goes to ``problem_write``."""
    if step.get("reports"):
        os.dup2(channel, REPORT_FD, inheritable=step["kind"] == "exec")
    if step["kind"] != "session" and not (step.get("reports") and channel == REPORT_FD):
        os.close(channel)
    try:
        listener = stand_alone(step, blobs)
        os.chdir(step["cwd"])
        if step.get("asks_to_fork"):
            hand_over(listener, channel)
    except OSError as error:
        sys.stderr.write(f"sandbox: {error}\n")
        os.write(problem_write, str(error).encode("utf-8", "replace")[:1000])
        os._exit(126)
    # The program must not be able to report that its walls failed.
    os.close(problem_write)
    become(step, flags, blobs, channel, call_socket)
    raise SystemExit(0)


def keep_call_socket(call_socket: int, environment: Dict[str, str], *, inherits: bool) -> int:
    """Move the call socket to a number that programs rarely use, and tell it in the environment."""
    kept = fcntl.fcntl(call_socket, fcntl.F_DUPFD if inherits else fcntl.F_DUPFD_CLOEXEC, CALL_SOCKET_FD)
    os.close(call_socket)
    environment[CALL_SOCKET_VARIABLE] = str(kept)
    if LINE_VARIABLE in environment:
        environment[LINE_VARIABLE] = str(open_line(kept))
    return kept


def open_line(call_socket: int) -> int:
    """Open a connection for calls and return its descriptor, for a program that cannot send descriptors itself."""
    ours, theirs = socket.socketpair()
    knock = socket.socket(fileno=os.dup(call_socket))
    send_descriptors(knock, [theirs.fileno()])
    knock.close()
    theirs.close()
    line = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD, CALL_SOCKET_FD)
    ours.close()
    return line


def run_guest(argv: List[str], function: str, fd: int) -> None:
    """Call a function of one of our modules with a descriptor and its arguments; never returns."""
    import importlib

    try:
        getattr(importlib.import_module(argv[0]), function)(fd, argv[1:])
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(125)


def move_up(fd: int) -> int:
    """Return a duplicate of a descriptor with a high number (64, or lower if few may be open); close the original."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64 if most < 0 or most > 80 else most // 2)
    os.close(fd)
    return moved


# Processes that a gate starts before its order comes, so that the run starts faster.


class Waiting:
    """A program (Node.js, or a module of ours in a fork) that starts before its order and reads it from the gate."""

    def __init__(self, order: Dict[str, Any], blobs: List[bytes], control: int, channel: int) -> None:
        self.socket, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(control)
            self.socket.close()
            try:
                leave_the_gate()
                stand_alone(order, blobs)
                if order["argv"][0].startswith("sandbox_guest."):
                    wait_as_guest(order["argv"], theirs.detach(), channel)
                os.close(channel)
                os.set_inheritable(theirs.fileno(), True)
                os.execve(order["argv"][0], [*order["argv"], str(theirs.fileno())], {"LANG": "C.UTF-8"})
            except OSError as error:
                sys.stderr.write(f"sandbox: {error}\n")
            finally:
                os._exit(126)
        theirs.close()
        # Import json now: after the order has come, the import would be the slowest part.
        import json

        self._encode = json.dumps

    #: CPU time that it took to become ready; it does not count as the program's.
    spent = 0.0

    def begin(self, step: Dict[str, Any], descriptors: List[int], call_socket: int) -> int:
        """Send the order, and the call socket if it is not -1, to the waiting program and return its pid."""
        descriptors = descriptors if call_socket < 0 else [*descriptors, call_socket]
        if step["kind"] == "warm":  # a session does not need this: the CPU time of each cell is measured by itself
            self.spent = alive.ticks(self.pid) / os.sysconf("SC_CLK_TCK")
        order = {"argv": step["argv"], "cwd": step["cwd"], "env": step["env"], "descriptors": len(descriptors)}
        order["calls"] = call_socket >= 0
        order["functions"] = step.get("functions") or []
        send_frame(self.socket, self._encode(order).encode(), descriptors)
        return self.pid

    def dismiss(self) -> None:
        """End the waiting program: the order is for another kind of step."""
        self.socket.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Ahead:
    """The process of the first step, forked before its order comes: the fork and its copies of pages are done."""

    def __init__(self, flags: mmap.mmap, control: socket.socket, channel: int) -> None:
        self.socket, theirs = socket.socketpair()
        self.problem_read, problem_write = os.pipe()
        problem_write = move_up(problem_write)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.problem_read)
            control.close()
            self.socket.close()
            try:
                leave_the_gate()
                python_once.rehearse()
                step, blobs, call_sockets = marshal.loads(receive_frame(theirs))  # noqa: S302 - the gate wrote it
                call_socket = receive_descriptors(theirs, call_sockets)
                theirs.close()
            except EOFError:
                os._exit(0)  # dismissed: the order is for another kind of step
            be_step(step, flags, blobs, channel, problem_write, call_socket[0] if call_socket else -1)
        theirs.close()
        os.close(problem_write)

    def begin(self, step: Dict[str, Any], blobs: List[bytes], call_socket: int) -> int:
        """Send the step, and the call socket if it may call host functions, to the process and return its pid."""
        needed = [blob if number in (step["source"], step["seccomp"]) else b"" for number, blob in enumerate(blobs)]
        call_sockets = [call_socket] if call_socket >= 0 else []
        send_frame(self.socket, marshal.dumps((step, needed, len(call_sockets))), call_sockets)
        return self.pid
