"""The first program inside every jail: it waits for one order, runs it, and says how it ended.

The host starts it with the walls already up (bubblewrap), so that walls and interpreter are paid for before anybody
waits. It then carries out exactly one order, a list of steps, each a child process of its own, and reports each end
with the real signal and resource usage, which bubblewrap's own exit code cannot tell apart (137 is `exit 137` too).

Trust: until the first step starts only our code has run here. From then on the program shares our uid but not our
descriptors: the control socket is closed in every child and we are not dumpable. We are the init of the namespace:
no signal from inside reaches us, orphans come to us, and our end is the end of everything in the jail.

Stdlib only, Python 3.8 or later: this file is run by whichever interpreter the user chose.
"""

from __future__ import annotations

# The modules beneath ``signal`` and ``socket`` do all that is needed; the ones above them import half the library, and
# together with ``json`` they took longer than the walls.
import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import fcntl
import gc
import mmap
import os
import resource
import stat
import struct
import sys

from . import lockdown, python_once, quotas, steps
from .ahead import Ahead, Waiting
from .wire import plain_json, receive_order, send

TYPE_CHECKING = False  # importing typing would cost more than all the rest
if TYPE_CHECKING:
    from typing import Any, Dict, List


#: Largest file that is handed over to the host.
MAX_KEPT = 32 << 20
#: Steps that a program can wait for.
WAITED_FOR = ("warm", "session")
F_ADD_SEALS, ALL_SEALS = 1033, 0xF


def put_file(root: str, name: str, data: bytes, mode: int) -> None:
    """Write one file of the order beneath a folder of this jail, which nobody else has touched yet."""
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)


def open_listener() -> socket.socket:
    """A listening socket in this network namespace, to be accepted from by the host's proxy."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


def run_step(
    step: Dict[str, Any],
    flags: mmap.mmap,
    blobs: List[bytes],
    control: socket.socket,
    channel: int,
    waiting: Waiting | None,
    ahead: Ahead | None,
    descriptors: List[int],
) -> int:
    """Fork the step, wait for it, and say how it ended; other children that end meanwhile are reaped."""
    if step["kind"] == "session":
        from ..session import checkpoint_gate
    steps.prepare(step)
    if ahead is not None:
        heard, child = ahead.heard, ahead.begin(step, blobs)
    else:
        heard, tell = os.pipe()
        # Out of the way of descriptors that a step is given by number.
        tell = steps.move_up(tell)
        waits = waiting is not None and step["kind"] in WAITED_FOR
        child = waiting.begin(step, descriptors) if waits and waiting is not None else os.fork()
        if child == 0:
            os.close(heard)
            control.close()
            if waiting is not None:
                waiting.socket.close()
            steps.leave_the_gate()
            steps.be_step(step, flags, blobs, channel, tell)
        os.close(tell)
    for fd in descriptors:
        os.close(fd)
    problem = b"" if step["kind"] == "warm" else os.read(heard, 4096)
    os.close(heard)
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
        },
    )
    if code == 0 and step.get("keeps"):
        hand_over(step["keeps"], control)
    return code


def hand_over(paths: List[str], control: socket.socket) -> None:
    """Give the host copies of files as they are now, sealed; all of them, or none when one cannot be had."""
    copies: List[int] = []
    try:
        for path in paths:
            # What stands there was made by a program: a pipe must not be waited for.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                info = os.fstat(file.fileno())
                size = info.st_size
                if size > MAX_KEPT or not stat.S_ISREG(info.st_mode):
                    return
                copies.append(os.memfd_create("kept", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
                while size:
                    size -= os.sendfile(copies[-1], file.fileno(), None, size) or size
            fcntl.fcntl(copies[-1], F_ADD_SEALS, ALL_SEALS)
        message = plain_json({"op": "kept"}).encode()
        handed = struct.pack(f"{len(copies)}i", *copies)
        frame = struct.pack(">I", len(message)) + message
        control.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed)])
    except OSError:
        pass  # it is compiled again next time
    finally:
        for fd in copies:
            os.close(fd)


def low_number(fd: int) -> int:
    """The same open file under the lowest free number: a host with a thousand open files gave it one that ``select``,
    and a program's limit on open files, do not know.
    """
    low = os.dup(fd)
    os.close(fd)
    return low


def main() -> None:
    """Settle in, then serve: the kernel ends everything else in the jail when we end."""
    if os.getpid() == 1:
        # The init of namespaces of its own, as bubblewrap starts it; before anything else is imported or started.
        quotas.take_shares()
        quotas.give_up_rights()
    number, channel = (low_number(int(given)) for given in sys.argv[1:3])
    control = socket.socket(fileno=number)
    settle_in(sys.argv[3:])
    serve(control, channel)


def settle_in(preload: List[str], *, rehearse: bool = False) -> None:
    """Make this process a gate, and its interpreter what programs expect. A template does it once for all its forks.

    To ``rehearse`` is for those whom nobody waits for.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTSTP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    lockdown.set_dumpable(False)
    if preload:
        warm(preload, rehearse)
    gc.collect()
    gc.freeze()


def serve(control: socket.socket, channel: int) -> None:
    """Wait for the order and carry it out."""
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
    for file in order["files"]:
        put_file(file["root"], file["name"], blobs[file["blob"]], file["mode"])
    if order["listener"]:
        listener = open_listener()
        handed = struct.pack("i", listener.fileno())
        control.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed)])
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.close()
        for step in order["steps"]:
            for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
                step["env"].setdefault(name, proxy)
    for step in order["steps"]:
        if run_step(step, flags, blobs, control, channel, waiting, ahead, order["descriptors"]) != 0:
            break
        ahead, order["descriptors"] = None, []
    # The host ends the jail when it has read the end; if it is gone, its death ends us.
    try:
        control.recv(1)
    except OSError:
        pass


def warm(names: List[str], rehearse: bool) -> None:
    """Make the interpreter what the user's programs expect, then import what they will ask for first.

    Our own programs can be imported ahead too, as ``sandbox_guest.…``. One that has a ``rehearse`` can do more than be
    imported.
    """
    import site

    site.main()
    for name in names:
        if name != "site":
            try:
                __import__(name)
            except ImportError:
                continue
            rehearsal = getattr(sys.modules[name], "rehearse", None) if name.startswith("sandbox_guest.") else None
            if rehearse and rehearsal is not None:
                rehearsal()
