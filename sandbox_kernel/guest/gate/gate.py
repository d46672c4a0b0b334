"""The first program inside every jail: waits for one order, runs it, and reports how it ended.

The host starts it behind finished walls (bubblewrap), before a run needs it: so a run waits for neither the walls nor
the interpreter. The gate carries out exactly one order, which is a list of steps. Each step is a child process; the
gate reports its end with the real signal and resource usage (bubblewrap's exit code 137 could also be `exit 137`).

Trust: until the first step starts, only our code has run here. From then on the program has our uid but not our
descriptors: every child closes the control socket, and the gate is not dumpable. The gate is the init of the namespace:
no signal from inside reaches it, orphans become its children, and when it ends the kernel ends everything in the jail.
"""

from __future__ import annotations

# The C modules ``_signal`` and ``_socket`` are enough. ``signal``, ``socket`` and ``json`` import much of the standard
# library, which took longer than building the walls.
import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import fcntl
import gc
import mmap
import os
import resource
import stat
import sys

from . import lockdown, python_once, steps
from .steps import Ahead, Waiting
from .wire import framed, receive_order, send, send_descriptors

TYPE_CHECKING = False  # importing typing would cost more than all the rest
if TYPE_CHECKING:
    from typing import Any, Dict, List


#: The largest file that is passed to the host, in bytes.
MAX_KEPT = 32 << 20
#: The kinds of steps that a ``Waiting`` program can run.
WAITED_FOR = ("warm", "session")
F_ADD_SEALS, ALL_SEALS, MFD_CLOEXEC, MFD_ALLOW_SEALING = 1033, 0xF, 1, 2


def run_step(
    step: Dict[str, Any],
    flags: mmap.mmap,
    blobs: List[bytes],
    control: socket.socket,
    channel: int,
    waiting: Waiting | None,
    ahead: Ahead | None,
    descriptors: List[int],
    call_socket: int,
) -> int:
    """Start one step, wait for it and report how it ended; reaps other children meanwhile. Returns its exit code."""
    if step["kind"] == "session":
        from ..session import checkpoint_gate
    steps.prepare(step)
    if ahead is not None:
        problem_read, child = ahead.problem_read, ahead.begin(step, blobs, call_socket)
    else:
        problem_read, problem_write = os.pipe()
        # A high number: low ones are given to steps by number.
        problem_write = steps.move_up(problem_write)
        waits = waiting is not None and step["kind"] in WAITED_FOR
        child = waiting.begin(step, descriptors, call_socket) if waits and waiting is not None else os.fork()
        if child == 0:
            os.close(problem_read)
            control.close()
            if waiting is not None:
                waiting.socket.close()
            steps.leave_the_gate()
            steps.be_step(step, flags, blobs, channel, problem_write, call_socket)
        os.close(problem_write)
    for fd in descriptors:
        os.close(fd)
    problem = b"" if step["kind"] == "warm" else os.read(problem_read, 4096)
    os.close(problem_read)
    if problem:
        send(control, {"op": "broken", "message": problem.decode("utf-8", "replace")})
    send(control, {"op": "started", "pid": child})
    if step["kind"] == "session":
        os.close(channel)
        gate = checkpoint_gate.CheckpointGate(control, child, lambda message: send(control, message))
        try:
            gate.serve(lambda: receive_order(control)[0])
        except (EOFError, OSError):
            pass
        return 0
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == child:
            break
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    total = resource.getrusage(resource.RUSAGE_CHILDREN)
    send(
        control,
        {
            "op": "exit",
            "code": code,
            "cpu": max(0.0, total.ru_utime + total.ru_stime - (waiting.spent if waiting is not None else 0.0)),
            "maxrss": max(usage.ru_maxrss, total.ru_maxrss) * 1024,
            "flags": [name for name, bit in python_once.FLAGS.items() if flags[0] & bit],
            "tried": python_once.names(flags),
            "alone": is_alone(),
        },
    )
    if code == 0 and step.get("keeps"):
        hand_over(step["keeps"], control)
    return code


def is_alone() -> bool:
    """Whether no other process is left in the jail. Only the init of a namespace knows: every orphan is its child."""
    if os.getpid() != 1:
        return False
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def hand_over(paths: List[str], control: socket.socket) -> None:
    """Send the host sealed copies of files; sends all of them, or none if one cannot be copied."""
    copies: List[int] = []
    try:
        for path in paths:
            # A program made these files: O_NONBLOCK keeps a pipe from blocking us.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                info = os.fstat(file.fileno())
                size = info.st_size
                if size > MAX_KEPT or not stat.S_ISREG(info.st_mode):
                    return
                copies.append(lockdown.memfd_create("kept", MFD_CLOEXEC | MFD_ALLOW_SEALING))
                while size:
                    size -= os.sendfile(copies[-1], file.fileno(), None, size) or size
            fcntl.fcntl(copies[-1], F_ADD_SEALS, ALL_SEALS)
        send_descriptors(control, copies, framed({"op": "kept"}))
    except OSError:
        pass  # the program is compiled again next time
    finally:
        for fd in copies:
            os.close(fd)


def main() -> None:
    """Set up this process as a gate, then serve. When it ends, the kernel ends everything else in the jail."""
    if os.getpid() == 1:
        # We are the init of new namespaces, started by bubblewrap. Do this before anything is imported or started.
        lockdown.take_shares()
        lockdown.give_up_rights()
    # A host with a thousand open files passes numbers that are too high for ``select`` and for limits on open files.
    low = []
    for given in map(int, sys.argv[1:3]):
        low.append(os.dup(given))
        os.close(given)
    settle_in(sys.argv[3:])
    serve(socket.socket(fileno=low[0]), low[1])


def settle_in(preload: List[str], *, rehearse: bool = False) -> None:
    """Ignore signals, become non-dumpable and import modules in advance. A template does this once for all its forks.

    Modules that are missing are skipped; our own programs can be imported too, as ``sandbox_guest.…``. With
    ``rehearse``, also run the ``rehearse`` functions of our modules; only templates do, because no run waits for them.
    The first ``compile`` of a process makes the types of syntax trees (2 ms), which all forks share then.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTSTP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    lockdown.set_dumpable(False)
    if preload:
        import site

        site.main()
    for name in preload:
        try:
            __import__(name)
        except ImportError:
            continue
        module = sys.modules[name]
        if rehearse and name.startswith("sandbox_guest.") and hasattr(module, "rehearse"):
            module.rehearse()
    if rehearse:
        python_once.rehearse()
    gc.collect()
    gc.freeze()


def serve(control: socket.socket, channel: int) -> None:
    """Wait for the order, write its files and run its steps until one fails."""
    lockdown.set_subreaper()
    flags = mmap.mmap(-1, mmap.PAGESIZE)
    send(control, {"op": "ready"})
    waiting, ahead = None, None
    try:
        order, blobs = receive_order(control)
        if order.get("op") == "warm":
            waiting = Waiting(order, blobs, control.fileno(), channel)
        elif order.get("op") == "ahead":
            ahead = Ahead(flags, control, channel)
        if "steps" not in order:
            order, blobs = receive_order(control)
    except EOFError:
        return
    if waiting is not None and not any(step["kind"] in WAITED_FOR for step in order["steps"]):
        waiting.dismiss()
    # No program has run here yet, so no link leads out of these folders.
    for given in order["files"]:
        path = os.path.join(given["root"], given["name"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(blobs[given["blob"]])
        os.chmod(path, given["mode"])
    if order["listener"]:
        # In this network namespace; the host's proxy accepts its connections.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        send_descriptors(control, [listener.fileno()])
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.close()
        for step in order["steps"]:
            for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
                step["env"].setdefault(name, proxy)
    # Steps that call no host functions, such as compilers, never get the call socket.
    call_socket = order["descriptors"].pop() if order["calls"] else -1
    for step in order["steps"]:
        calls = call_socket if step.get("functions") is not None else -1
        if run_step(step, flags, blobs, control, channel, waiting, ahead, order["descriptors"], calls) != 0:
            break
        ahead, order["descriptors"] = None, []
    # Wait: the host ends the jail when it has read the report. If the host is gone, the kernel ends us.
    try:
        control.recv(1)
    except OSError:
        pass
