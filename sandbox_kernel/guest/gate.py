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
import errno
import fcntl
import gc
import marshal
import mmap
import os
import resource
import struct
import sys

TYPE_CHECKING = False  # importing typing would cost more than all the rest
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from sandbox_kernel.guest import lockdown, python_once
else:
    import lockdown
    import python_once

#: Largest order that is taken; the host sends files in it.
MAX_FRAME = 1 << 30
#: Where a step that reports finds the channel to the host.
REPORT_FD = 3
#: Largest file that is handed over to the host.
MAX_KEPT = 32 << 20
F_ADD_SEALS, ALL_SEALS = 1033, 0xF


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly this many bytes, or EOFError when the host is gone."""
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def receive_order(sock: socket.socket) -> Tuple[Dict[str, Any], List[bytes]]:
    """One order: a header and the blobs that it counts. It comes from the host, which is trusted here."""
    (size,) = struct.unpack(">I", receive(sock, 4))
    if size > MAX_FRAME:
        raise EOFError
    order = marshal.loads(receive(sock, size))  # noqa: S302
    return order, [receive(sock, length) for length in order["blobs"]]


def send(sock: socket.socket, message: Dict[str, Any]) -> None:
    """One message to the host; it reads as if we were hostile, so keep it small and plain."""
    data = plain_json(message).encode()
    sock.sendall(struct.pack(">I", len(data)) + data)


def plain_json(value: object) -> str:
    """JSON without ``json``: nearly all that we say is numbers and our own words."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}": {plain_json(item)}' for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(plain_json, value)) + "]"
    if isinstance(value, str):
        if not value.replace("-", "_").replace(" ", "_").replace("_", "a").isalnum():
            import json

            return json.dumps(value)
        return '"' + value + '"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


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


def volunteer(score: int) -> None:
    """Let the kernel end this process rather than the host's when memory runs out; less gladly needs a privilege."""
    fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    try:
        if int(os.read(fd, 16)) < score:
            os.pwrite(fd, str(score).encode(), 0)
    finally:
        os.close(fd)


def prepare(step: Dict[str, Any]) -> None:
    """What a step needs of somebody outside of its walls; nothing, where we are inside too."""


def put_up_walls() -> None:
    """Walls that each child puts up around itself: none here, where bubblewrap has. ``open_gate.py`` has its own."""


def leave_the_gate() -> None:
    """What every fresh child does first: its own session and signals, and what a gate has for itself given up."""
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


def stand_alone(step: Dict[str, Any], blobs: List[bytes]) -> None:
    """What a child does before it is anybody's program: its limits and its filter."""
    volunteer(step.get("oom_score_adj", 500))
    lockdown.set_rlimits(step["rlimits"])
    put_up_walls()
    if step.get("filter") is not None:
        lockdown.load_seccomp(blobs[step["filter"]])


class Waiting:
    """A program that was started before its order came, and now reads a socket that only we hold.

    It is executed (Node.js), or it is one of our own modules, forked from this interpreter (the wasm runner), which
    has the channel to report on.
    """

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
                    wait_as_guest(order["argv"][0], theirs.detach(), channel)
                os.close(channel)
                os.set_inheritable(theirs.fileno(), True)
                os.execve(order["argv"][0], [*order["argv"], str(theirs.fileno())], {"LANG": "C.UTF-8"})
            except OSError as error:
                sys.stderr.write(f"sandbox: {error}\n")
            finally:
                os._exit(126)
        theirs.close()
        # While nobody waits: it takes longer than all else that is done when the order comes.
        import json

        self._encode = json.dumps

    #: Processor time that it took to become ready, which is not the program's.
    spent = 0.0

    def begin(self, step: Dict[str, Any]) -> int:
        """Hand over the order; what became of the program is for the caller to wait for."""
        self.spent = cpu_seconds(self.pid)
        order = self._encode({"argv": step["argv"], "cwd": step["cwd"], "env": step["env"]}).encode()
        try:
            self.socket.sendall(struct.pack(">I", len(order)) + order)
        except OSError:
            pass  # it died while it waited: its exit code says so
        self.socket.close()
        return self.pid

    def dismiss(self) -> None:
        """The order is for somebody else."""
        self.socket.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Ahead:
    """The process of the first step, forked before its order came, which waits for it on a socket that only we hold.

    Forking, and touching the memory that every program touches, is then done before anybody waits.
    """

    def __init__(self, flags: mmap.mmap, control: socket.socket, channel: int) -> None:
        self.socket, theirs = socket.socketpair()
        self.heard, tell = os.pipe()
        tell = move_up(tell)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.heard)
            control.close()
            self.socket.close()
            try:
                leave_the_gate()
                python_once.rehearse()
                (size,) = struct.unpack(">I", receive(theirs, 4))
                step, blobs = marshal.loads(receive(theirs, size))  # noqa: S302 - the gate wrote it
                theirs.close()
            except EOFError:
                os._exit(0)  # the order was for somebody else
            be_step(step, flags, blobs, channel, tell)
        theirs.close()
        os.close(tell)

    def begin(self, step: Dict[str, Any], blobs: List[bytes]) -> int:
        """Hand over the step; the pid of its process."""
        needed = [blob if number in (step["source"], step["filter"]) else b"" for number, blob in enumerate(blobs)]
        data = marshal.dumps((step, needed))
        try:
            self.socket.sendall(struct.pack(">I", len(data)) + data)
        except OSError:
            pass  # it died while it waited: its exit code says so
        self.socket.close()
        return self.pid

    def dismiss(self) -> None:
        """The order is for somebody else."""
        self.socket.close()
        os.close(self.heard)
        os.waitpid(self.pid, 0)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def wait_as_guest(module: str, order: int, channel: int) -> None:
    """Let one of our own modules wait for its order; never returns."""
    import importlib

    if order == REPORT_FD:
        order = os.dup(order)
    os.dup2(channel, REPORT_FD, inheritable=False)
    if channel != REPORT_FD:
        os.close(channel)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        importlib.import_module(module).wait(order)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(125)


def become(step: Dict[str, Any], flags: mmap.mmap, blobs: List[bytes], channel: int) -> None:
    """Turn this child, which stands alone, into the program of one step."""
    if step["kind"] != "exec":
        # As a starting interpreter does; a program that is executed sets its own.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    environment = step["env"]
    if step.get("stdout_to_stderr"):
        os.dup2(2, 1)
    if step.get("no_stdin"):
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    if step["kind"] == "exec":
        try:
            os.execve(step["argv"][0], step["argv"], environment)
        except OSError as error:
            sys.stderr.write("{}: {}\n".format(step["argv"][0], error.strerror))
            os._exit(127 if error.errno == errno.ENOENT else 126)
    os.environ.clear()
    os.environ.update(environment)
    if step["kind"] == "session":
        run_session(step["argv"], channel)
    python_once.run(blobs[step["source"]], step["argv"], flags)


def be_step(step: Dict[str, Any], flags: mmap.mmap, blobs: List[bytes], channel: int, tell: int) -> None:
    """In a child that has left the gate: be the program of this step; never returns."""
    if step.get("reports"):
        os.dup2(channel, REPORT_FD, inheritable=step["kind"] == "exec")
    if step["kind"] != "session" and not (step.get("reports") and channel == REPORT_FD):
        os.close(channel)
    try:
        stand_alone(step, blobs)
        os.chdir(step["cwd"])
    except OSError as error:
        sys.stderr.write(f"sandbox: {error}\n")
        os.write(tell, str(error).encode("utf-8", "replace")[:1000])
        os._exit(126)
    # The program must not be able to say that its walls did not stand.
    os.close(tell)
    become(step, flags, blobs, channel)
    raise SystemExit(0)


def run_step(
    step: Dict[str, Any],
    flags: mmap.mmap,
    blobs: List[bytes],
    control: socket.socket,
    channel: int,
    waiting: Waiting | None,
    ahead: Ahead | None,
) -> int:
    """Fork the step, wait for it, and say how it ended; other children that end meanwhile are reaped."""
    if step["kind"] == "session":
        from sandbox_guest import session_gate  # type: ignore[import-not-found]
    prepare(step)
    if ahead is not None:
        heard, child = ahead.heard, ahead.begin(step, blobs)
    else:
        heard, tell = os.pipe()
        # Out of the way of descriptors that a step is given by number.
        tell = move_up(tell)
        child = waiting.begin(step) if waiting is not None and step["kind"] == "warm" else os.fork()
        if child == 0:
            os.close(heard)
            control.close()
            if waiting is not None:
                waiting.socket.close()
            leave_the_gate()
            be_step(step, flags, blobs, channel, tell)
        os.close(tell)
    problem = b"" if step["kind"] == "warm" else os.read(heard, 4096)
    os.close(heard)
    if problem:
        send(control, {"op": "broken", "message": problem.decode("utf-8", "replace")})
    send(control, {"op": "started", "pid": child})
    if step["kind"] == "session":
        os.close(channel)
        gate = session_gate.Gate(control, child, lambda message: send(control, message))
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


def move_up(fd: int) -> int:
    """The same descriptor under a high number."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(fd)
    return moved


def hand_over(paths: List[str], control: socket.socket) -> None:
    """Give the host copies of files as they are now, sealed; all of them, or none when one cannot be had."""
    copies: List[int] = []
    try:
        for path in paths:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > MAX_KEPT:
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


def run_session(argv: List[str], channel: int) -> None:
    """Give the channel to the guest module of a session, which stays; never returns."""
    import importlib

    try:
        importlib.import_module(argv[0]).main(channel, argv[1:])
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(125)


def main() -> None:
    """Settle in, then serve: the kernel ends everything else in the jail when we end."""
    number, channel = (low_number(int(given)) for given in sys.argv[1:3])
    control = socket.socket(fileno=number)
    settle_in(sys.argv[3:])
    serve(control, channel)


def settle_in(preload: List[str]) -> None:
    """Make this process a gate, and its interpreter what programs expect. A template does it once for all its forks."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTSTP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    # Our own folder was only for us: programs must not find our modules by their names.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    lockdown.set_dumpable(False)
    if preload:
        warm(preload)
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
    if waiting is not None and not any(step["kind"] == "warm" for step in order["steps"]):
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
        if run_step(step, flags, blobs, control, channel, waiting, ahead) != 0:
            break
        ahead = None
    # The host ends the jail when it has read the end; if it is gone, its death ends us.
    try:
        control.recv(1)
    except OSError:
        pass


def warm(names: List[str]) -> None:
    """Make the interpreter what the user's programs expect, then import what they will ask for first.

    Our own programs can be imported ahead too: this folder is the package ``sandbox_guest``.
    """
    import site

    site.main()
    guest = type(sys)("sandbox_guest")
    guest.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules[guest.__name__] = guest
    for name in names:
        if name != "site":
            try:
                __import__(name)
            except ImportError:
                pass
