"""The template of a kind of jails: a gate with its modules imported that runs no order itself but forks gates that do.

bubblewrap builds the root around the template once. For each order the template forks a child into new namespaces, with
its own processes, network, /proc, terminals and empty memory file systems. The child gives up all rights, loads the
syscall filter and becomes a gate (``gate.py``). So a jail costs a fork and a few mounts instead of a start of
bubblewrap and of an interpreter.

Trust: no program ever runs in this process or sees it. A child has none of its descriptors and cannot address it. A
child has a copy of its memory, which holds no secret: modules, and the seed of the hash function. The template must
have one thread, because a fork copies only one; if an import has started more, it reports that and is not used.

An order is the sizes of /box, /tmp and /dev/shm, with five descriptors: control, channel, stdin, stdout, stderr. The
child answers over its control socket: one byte (the kernel adds the sender's pid), a second one with the descriptor of
the layer if the program works on a folder of the host (``namespaces.py``), then the messages of every gate. If a child
cannot build its walls, it writes the reason to its stderr and ends.

Its arguments are ORDERS-FD CHANNEL-FD SPEC-FD [MODULE ...]; ``jail/template.py`` writes the spec.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import marshal
import os
import stat
import struct
import sys

from . import gate, lockdown, namespaces
from .namespaces import MS_NODEV, MS_NOEXEC, MS_NOSUID
from .steps import move_up
from .wire import send, send_descriptors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple


#: The uid inside, and the size of /cell: the same as in ``jail/walls.py`` and ``jail/rules/bubblewrap.py``.
INNER_UID = 1000
CELL_BYTES = 64 << 20
ORDER = struct.Struct(">QQQ")
#: A child's descriptors of its control socket and channel: above the numbers that steps are given.
CONTROL_FD, CHANNEL_FD = 10, 11
#: The most files, and bytes, that imports may leave in the work folder and /tmp; they are copied for each child.
MAX_LEFT, MAX_LEFT_BYTES = 200, 1 << 20

if TYPE_CHECKING:
    #: Path, mode, and content; the content of a folder is None.
    Left = List[Tuple[str, int, bytes | None]]


def main() -> None:
    """Import the modules, report ``ready``, and fork a gate for each order until the host is gone."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    os.close(int(sys.argv[2]))
    with open(int(sys.argv[3]), "rb") as file:
        spec = marshal.load(file)  # noqa: S302 - the host wrote it
    lockdown.load()
    gate.settle_in(sys.argv[4:], rehearse=True)
    # The host ends the children; the template does not wait for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        lockdown.require_single_thread("fork")
        left = [*([] if spec["here"] else left_in("/box", spec["shown"])), *left_in("/tmp", spec["shown"])]
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
    """Build the walls of a child once, as a test; raises ``OSError``, which says which wall failed."""
    problem_read, problem_write = os.pipe()
    if namespaces.fork_into_namespaces() == 0:
        try:
            build_walls((1 << 20,) * 3, spec)
            os.write(problem_write, b"+")
        except BaseException as error:
            os.write(problem_write, str(error).encode("utf-8", "replace")[:1000])
        finally:
            os._exit(0)
    os.close(problem_write)
    answer = os.read(problem_read, 1000)
    os.close(problem_read)
    if answer != b"+":
        raise OSError(answer.decode("utf-8", "replace") or "a child ended before its walls were built")


def be_gate(sizes: Tuple[int, ...], given: List[int], spec: Dict[str, Any], left: Left) -> None:
    """Build the walls and become the gate of one jail; called in a new child, never returns."""
    try:
        try:
            take_descriptors(given)
            control = socket.socket(fileno=CONTROL_FD)
            # Sent first: while we build the walls, the host finds this process and starts its meter.
            control.send(b"!")
            changed = build_walls(sizes, spec)
            send_descriptors(control, changed, b"L")
            for fd in changed:
                os.close(fd)
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
    """Move the given descriptors to their numbers and close all others."""
    control, channel, *streams = [move_up(fd) for fd in given]
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.dup2(control, CONTROL_FD, inheritable=False)
    os.dup2(channel, CHANNEL_FD, inheritable=False)
    namespaces.keep_descriptors((0, 1, 2, CONTROL_FD, CHANNEL_FD))


def build_walls(sizes: Tuple[int, ...], spec: Dict[str, Any]) -> List[int]:
    """Make new namespaces the walls of ``jail/rules/bubblewrap.py``; returns descriptors of the layer, if any."""
    box, tmp, shm = sizes
    changed: List[int] = []
    namespaces.be_user(INNER_UID)
    shown = [(os.open(path, os.O_PATH | os.O_CLOEXEC), path) for path in spec["shown"]]
    inside = [(os.open(path, os.O_PATH | os.O_CLOEXEC), path) for path in spec["inside"]]
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
    if spec["here"]:
        changed = namespaces.mount_layer()
    if spec["own"]:
        namespaces.show_at_own_path(spec["own"], inside)
    # Terminals are named by number: with a shared /dev/pts one jail could open another's.
    namespaces.mount("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    namespaces.mount("proc", "/proc", MS_NOSUID | MS_NOEXEC | MS_NODEV, "")
    lockdown.take_shares()
    namespaces.bring_up_loopback()
    os.setsid()
    os.chdir("/box")
    lockdown.no_new_privs()
    lockdown.drop_capabilities()
    lockdown.load_seccomp(spec["filter"])
    return changed


def left_in(root: str, shown: List[str]) -> Left:
    """Return the files that imports left below ``root``, none of ``shown``; ``OSError`` for too many or odd ones."""
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
                raise OSError(f"an import left something that is neither file nor folder at {path}")
            found.append((path, stat.S_IMODE(mode), data))
            if len(found) > MAX_LEFT or size > MAX_LEFT_BYTES:
                raise OSError(f"imports left more files in {root} than can be copied for each sandbox")
    return found


def put_back(left: Left) -> None:
    """Write the files that imports have left into the new file systems."""
    for path, mode, data in left:
        if data is None:
            os.makedirs(path, exist_ok=True)
        else:
            with open(path, "wb") as file:
                file.write(data)
        os.chmod(path, mode)


def reseed() -> None:
    """Draw new random seeds for modules that drew theirs when imported. (``random`` reseeds itself at every fork.)"""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
