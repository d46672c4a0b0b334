"""The template of a kind of jails: a gate with everything imported, which never serves, and forks gates that do.

bubblewrap has built the root around us once. For each order we fork a child into namespaces of its own, where it is
somebody without rights, with its own processes, network, /proc, terminals and empty memory file systems; it then takes
every right from itself, loads the filter and is a gate like any other (``gate.py``). So a jail costs a fork and a few
mounts, and no start of bubblewrap and of an interpreter.

Trust: no program ever runs in this process or sees it. A child has none of its descriptors and cannot name it. It has a
copy of its memory, which holds no secret: modules, and the seed of the hash function. It has one thread, because only
one is forked; it says so when something that was imported started more, and is then not used.

An order is the sizes of /box, /tmp and /dev/shm, with five descriptors: control, channel, stdin, stdout, stderr. The
answer comes from the child, over its control socket: one byte (the kernel adds who sent it), then what every gate says.
A child that cannot stand its walls says why on its stderr and ends.

Its arguments are ORDERS-FD CHANNEL-FD SPEC-FD [MODULE ...]; ``jail/kinds/template.py`` writes the spec.
Stdlib only, Python 3.8 or later.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import marshal
import os
import stat
import struct
import sys

from . import gate, lockdown, namespaces, quotas
from .namespaces import MS_NODEV, MS_NOEXEC, MS_NOSUID
from .steps import move_up
from .wire import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple


#: The user inside, and the size of /cell; ``jail/core/walls.py`` and ``jail/rules/bubblewrap.py`` say the same.
INNER_UID = 1000
CELL_BYTES = 64 << 20
ORDER = struct.Struct(">QQQ")
#: Where a child has its control socket and its channel: out of the way of those that steps are given by number.
CONTROL_FD, CHANNEL_FD = 10, 11
#: What imports leave in the work folder and in /tmp is copied for each child, up to here.
MAX_LEFT, MAX_LEFT_BYTES = 200, 1 << 20

if TYPE_CHECKING:
    #: A folder (None), or a file and what is in it; its mode.
    Left = List[Tuple[str, int, bytes | None]]


def main() -> None:
    """Import, say that we are ready, and fork until the host is gone."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    os.close(int(sys.argv[2]))
    with open(int(sys.argv[3]), "rb") as file:
        spec = marshal.load(file)  # noqa: S302 - the host wrote it
    lockdown.load()
    gate.settle_in(sys.argv[4:], rehearse=True)
    # Its children end when the host ends them; nobody here waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        lockdown.require_single_thread("fork")
        left = [*left_in("/box", spec["shown"]), *left_in("/tmp", spec["shown"])]
        try_once(spec)
    except OSError as error:
        sys.stderr.write(f"template: {error}\n")
        sys.exit(1)
    send(orders, {"op": "ready"})
    while True:
        data, ancillary, _, _ = orders.recvmsg(ORDER.size, socket.CMSG_SPACE(5 * 4))
        if not data:
            return
        given = [
            fd for _, kind, raw in ancillary if kind == socket.SCM_RIGHTS for (fd,) in struct.iter_unpack("i", raw)
        ]
        try:
            if len(given) == 5 and len(data) == ORDER.size and namespaces.fork_into_namespaces() == 0:
                be_gate(ORDER.unpack(data), given, spec, left)
        except OSError as error:
            os.write(given[4], str(error).encode("utf-8", "replace"))
        for fd in given:
            os.close(fd)


def try_once(spec: Dict[str, Any]) -> None:
    """See that the walls of a child stand here; OSError says which one does not."""
    heard, tell = os.pipe()
    if namespaces.fork_into_namespaces() == 0:
        try:
            wall_in((1 << 20,) * 3, spec)
            os.write(tell, b"+")
        except BaseException as error:
            os.write(tell, str(error).encode("utf-8", "replace")[:1000])
        finally:
            os._exit(0)
    os.close(tell)
    answer = os.read(heard, 1000)
    os.close(heard)
    if answer != b"+":
        raise OSError(answer.decode("utf-8", "replace") or "a child ended before its walls stood")


def be_gate(sizes: Tuple[int, ...], given: List[int], spec: Dict[str, Any], left: Left) -> None:
    """In a fresh child: wall ourselves in and be the gate of one jail; never returns."""
    try:
        try:
            take_descriptors(given)
            control = socket.socket(fileno=CONTROL_FD)
            # First of all: while we build, the host finds us and begins to count what we use.
            control.send(b"!")
            wall_in(sizes, spec)
            put_back(left)
            reseed()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        except BaseException as error:
            os.write(2, str(error).encode("utf-8", "replace"))
            os._exit(1)
        gate.serve(control, CHANNEL_FD)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(1)
    os._exit(0)


def take_descriptors(given: List[int]) -> None:
    """Have what we were given, at its place, and nothing else."""
    control, channel, *streams = [move_up(fd) for fd in given]
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.dup2(control, CONTROL_FD, inheritable=False)
    os.dup2(channel, CHANNEL_FD, inheritable=False)
    namespaces.keep_descriptors((0, 1, 2, CONTROL_FD, CHANNEL_FD))


def wall_in(sizes: Tuple[int, ...], spec: Dict[str, Any]) -> None:
    """Turn fresh namespaces into the walls that ``jail/rules/bubblewrap.py`` describes."""
    box, tmp, shm = sizes
    namespaces.be_user(INNER_UID)
    shown = [(os.open(path, os.O_PATH | os.O_CLOEXEC), path) for path in spec["shown"]]
    for target, mode, size in (
        ("/dev/shm", 1777, shm),
        ("/tmp", 1777, tmp),
        ("/box", 755, box),
        ("/cell", 755, CELL_BYTES),
    ):
        namespaces.mount("tmpfs", target, MS_NOSUID | MS_NODEV, f"mode={mode:04},size={size}")
    for fd, path in shown:
        namespaces.show_again(fd, path)
        os.close(fd)
    # Terminals are named by number: in a shared list, one jail could open another's.
    namespaces.mount("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    namespaces.mount("proc", "/proc", MS_NOSUID | MS_NOEXEC | MS_NODEV, "")
    quotas.take_shares()
    namespaces.bring_up_loopback()
    os.setsid()
    os.chdir("/box")
    lockdown.no_new_privs()
    lockdown.drop_capabilities()
    lockdown.load_seccomp(spec["filter"])


def left_in(root: str, shown: List[str]) -> Left:
    """What imports have written here, without what the host shows there; OSError when it is too much."""
    found: Left = []
    size = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in shown]
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if path in shown:
                continue
            mode = os.lstat(path).st_mode
            data = None
            if stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    data = file.read(MAX_LEFT_BYTES + 1)
                size += len(data)
            elif not stat.S_ISDIR(mode):
                raise OSError(f"an import left something that is no file at {path}")
            found.append((path, stat.S_IMODE(mode), data))
            if len(found) > MAX_LEFT or size > MAX_LEFT_BYTES:
                raise OSError(f"imports left more files in {root} than can be copied for each sandbox")
    return found


def put_back(left: Left) -> None:
    """What imports have written, in file systems of our own."""
    for path, mode, data in left:
        if data is None:
            os.makedirs(path, exist_ok=True)
        else:
            with open(path, "wb") as file:
                file.write(data)
        os.chmod(path, mode)


def reseed() -> None:
    """What was drawn by chance when a module was imported is drawn anew. (``random`` does so at every fork.)"""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
