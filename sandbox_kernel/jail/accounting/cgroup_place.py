"""The place of one host process: the group that contains the leaves of its sandboxes, made once for each process.

A place is locked as long as its host lives; the kernel releases the lock when the host dies. A place without a lock is
therefore a leftover, and the next host that makes a place beside it removes it. Processes in a leftover leaf belong to
a sandbox without a host and are killed. Other processes there (a program of a moved host) are left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from sandbox_kernel.util.linux_calls import closed_after, pidfd_open, pidfd_send_signal
from sandbox_kernel.util.values import dataclass

#: The group, inside the place, of a host that had to move.
_HOST = "host"
#: How long a sweep waits for killed processes.
_DEATH_S = 0.2


class Place:
    """A group in ``plan.parent`` that only its owner can enter. Raises ``OSError`` if the plan does not work."""

    def __init__(self, plan: PlacePlan) -> None:
        self._plan = plan
        self._pid = os.getpid()
        self._moved = False
        self.folder, self._lock = _locked_folder(plan.parent)
        try:
            if plan.move:
                os.mkdir(f"{self.folder}/{_HOST}")
                write(f"{self.folder}/{_HOST}/cgroup.procs", str(self._pid))
                self._moved = True
            if plan.enable:
                write(f"{plan.parent}/cgroup.subtree_control", _words("+", plan))
            for name, value in plan.limits.items():
                write(f"{self.folder}/{name}", value)
            if plan.controllers:
                write(f"{self.folder}/cgroup.subtree_control", _words("+", plan))
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        """Undo what was made if it is empty; a moved host moves back. Does nothing in a forked child."""
        if os.getpid() != self._pid or self._lock < 0:
            return
        for leaf in _leaves(self.folder):
            _removed(leaf)
        if self._plan.controllers:
            with contextlib.suppress(OSError):
                write(f"{self.folder}/cgroup.subtree_control", _words("-", self._plan))
        if self._moved:
            with contextlib.suppress(OSError):
                # The kernel refuses this while another place below the same group needs them. Then this process stays.
                write(f"{self._plan.parent}/cgroup.subtree_control", _words("-", self._plan))
                write(f"{self._plan.parent}/cgroup.procs", str(self._pid))
                self._moved = False
        _removed(f"{self.folder}/{_HOST}")
        _removed(self.folder)
        self.forget()

    def forget(self) -> None:
        """Close the lock and do nothing else: in a forked child the place belongs to the parent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(parent: str) -> None:
    """Remove the places of dead hosts in a group, and kill the processes in their leaves."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(PLACE_PREFIX):
                with contextlib.suppress(OSError):
                    _sweep_place(f"{parent}/{name}")


def _sweep_place(folder: str) -> None:
    with closed_after(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as fd:
        if os.fstat(fd).st_uid != os.geteuid():
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its host lives
        deadline = time.monotonic() + _DEATH_S
        for leaf in _leaves(folder):
            _kill(leaf)
            while not _removed(leaf) and time.monotonic() < deadline:
                time.sleep(0.001)
        _removed(f"{folder}/{_HOST}")
        _removed(folder)


def _locked_folder(parent: str) -> tuple[str, int]:
    """Make a folder and return it with the descriptor that locks it. Tries again if a sweep removed it before that."""
    while True:
        folder = f"{parent}/{PLACE_PREFIX}{os.urandom(4).hex()}"
        os.mkdir(folder, 0o700)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.stat(folder).st_ino == os.fstat(fd).st_ino:
                    return folder, fd
            except OSError:
                os.close(fd)
                raise
            os.close(fd)


def _leaves(folder: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        return [entry.path for entry in entries if entry.is_dir() and entry.name.startswith(GROUP_PREFIX)]
    return []


def _kill(leaf: str) -> None:
    if os.path.exists(f"{leaf}/cgroup.kill"):
        write(f"{leaf}/cgroup.kill", "1")
        return
    for pid in map(int, read(f"{leaf}/cgroup.procs").split()):
        with contextlib.suppress(OSError), closed_after(pidfd_open(pid)) as fd:
            # The pid may belong to another process by now; the descriptor cannot.
            if str(pid) in read(f"{leaf}/cgroup.procs").split():
                pidfd_send_signal(fd, signal.SIGKILL)


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _words(sign: str, plan: PlacePlan) -> str:
    return " ".join(f"{sign}{name}" for name in plan.controllers)


# Decides where to make the groups of sandboxes in version 2: a pure function that returns plans to try.
#
# The kernel passes controllers on only below a group without processes of its own (the root group is the exception).
# Processes of others are never moved, so these plans remain, the best first:
#
# 1. our own group, if it passes controllers on already, or if this process is alone in it and can move below it;
# 2. the nearest group above that passes them on already;
# 3. the nearest group without processes that could.
#
# With the last two, a sandbox is outside of our own group and of its limits, so the same limits are set on the place
# that is made there. Groups that sandbox-kernel made are skipped: the child of a host that has moved makes its place
# beside its parent's, not below it.

#: The prefix of all our groups, and the longer prefix of the place of a host process.
GROUP_PREFIX = "sandbox-kernel-"
PLACE_PREFIX = f"{GROUP_PREFIX}host-"

#: The controllers for leaves, the best first. Memory alone is still better than a watchdog.
_WISHES = (("memory", "pids"), ("memory",))


@dataclass(frozen=True)
class PlacePlan:
    """One way to make a place for leaves."""

    #: The group in which the place is made.
    parent: str
    #: The controllers for the leaves; empty in version 1, where each hierarchy has its own.
    controllers: tuple[str, ...] = ()
    #: Whether the parent must be set to pass them on.
    enable: bool = False
    #: Whether this process must first move from the parent into its place.
    move: bool = False
    #: The limits of the groups that contain this process but not its sandboxes.
    limits: Mapping[str, str] = field(default_factory=dict)


def plans(chain: Sequence[Group], pid: int) -> tuple[PlacePlan, ...]:
    """Return the plans to try, the best first. ``chain`` is our own group and those above it, ``pid`` this process."""
    return tuple(plan for wish in _WISHES for plan in _plans(chain, pid, wish))


def why_none(chain: Sequence[Group], pid: int) -> str:
    """Return why ``plans`` found nothing, as part of a sentence."""
    outer = chain[_depth_of_our_places(chain) :]
    if not any("memory" in group.controllers for group in outer):
        return "no control group that this process can see has the memory controller"
    own = outer[0]
    if not own.writable:
        return f"this process may not make control groups in its own, {own.folder}"
    if "memory" not in own.controllers:
        return f"its control group {own.folder} has no memory controller, and those above it may not be written"
    if own.processes != (pid,):
        return f"other processes live in its control group {own.folder}, and the kernel limits only below an empty one"
    return f"its control group {own.folder} is of the kind {own.kind!r}, which limits no memory"


def _plans(chain: Sequence[Group], pid: int, wish: tuple[str, ...]) -> Iterator[PlacePlan]:
    start, wanted = _depth_of_our_places(chain), set(wish)
    usable = [
        (index, group)
        for index, group in enumerate(chain)
        if index >= start and group.writable and group.kind in ("", "domain")
    ]
    for index, group in usable:
        alone = group.processes == (pid,) and group.kind
        if index == 0 and alone and wanted <= group.controllers and not wanted <= group.enabled:
            yield PlacePlan(group.folder, wish, enable=True, move=True)
    for index, group in usable:
        if wanted <= group.enabled:
            yield PlacePlan(group.folder, wish, limits=tightest(chain[:index]))
    for index, group in usable:
        empty = group.processes == () or not group.kind
        if empty and wanted <= group.controllers and not wanted <= group.enabled:
            yield PlacePlan(group.folder, wish, enable=True, limits=tightest(chain[:index]))


def _depth_of_our_places(chain: Sequence[Group]) -> int:
    """Return how many groups at the start of the chain are places of sandbox-kernel, or below one."""
    ours = [index for index, group in enumerate(chain) if os.path.basename(group.folder).startswith(PLACE_PREFIX)]
    return max(ours, default=-1) + 1


def tightest(left: Sequence[Group]) -> dict[str, str]:
    """Combine the limits of nested groups into the limits of one group. The innermost group comes first."""
    found: dict[str, str] = {}
    for group in left:
        for name, value in group.limits.items():
            # The nearest set of processors already lies within those above it.
            narrower = not name.startswith("cpuset.") and name in found and _share(value) < _share(found[name])
            if name not in found or narrower:
                found[name] = value
    return found


def _share(value: str) -> float:
    """Return a number; for ``cpu.max``, which has two, their quotient."""
    first, *rest = value.split()
    return int(first) / int(rest[0]) if rest else int(first)


# Reads which control groups this process is in and what it may do with them, from /proc and /sys. Changes nothing.

#: Limits of a version 2 group that would not apply to a sandbox outside of it.
LIMITS = (
    "memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max", "cpuset.cpus", "cpuset.mems",
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """One version 2 group as this process sees it."""

    folder: str
    #: The controllers that the group may pass on to its children, and those that it does pass on.
    controllers: frozenset[str] = frozenset()
    enabled: frozenset[str] = frozenset()
    #: The processes directly in it. 0 stands for one that this process cannot see; None: the list cannot be read.
    processes: tuple[int, ...] | None = ()
    #: Whether this process may make groups in it, pass controllers on and move processes.
    writable: bool = True
    #: ``cgroup.type``: ``domain`` for an ordinary group, empty for the root of the machine.
    kind: str = "domain"
    #: The limits that are set on it, by the names of their files.
    limits: Mapping[str, str] = field(default_factory=dict)


def own_groups() -> dict[str, str]:
    """Return our own group in each hierarchy: controller name (``""`` for version 2) to path."""
    groups: dict[str, str] = {}
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            groups[name] = path
    return groups


def mounts() -> dict[str, tuple[str, str]]:
    """Return the mounted hierarchies: controller name (``""`` for version 2) to mount point and mounted group."""
    found: dict[str, tuple[str, str]] = {}
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind == "cgroup2":
            found.setdefault("", (fields[4], fields[3]))
        elif kind == "cgroup":
            for option in options.split(","):
                found.setdefault(option, (fields[4], fields[3]))
    return found


def own_folder(name: str, groups: Mapping[str, str], mounted: Mapping[str, tuple[str, str]]) -> str | None:
    """Return the folder of our own group in one hierarchy; None if it is not mounted or not visible."""
    if name not in groups or name not in mounted:
        return None
    point, root = mounted[name]
    path = groups[name]
    relative = path[len(root) :] if root != "/" and (path + "/").startswith(root + "/") else path
    folder = os.path.normpath(point + "/" + relative)
    # A control group namespace shows a group above its root as "/..".
    return folder if ".." not in path.split("/") and os.path.isdir(folder) else None


def own_chain(groups: Mapping[str, str], mounted: Mapping[str, tuple[str, str]]) -> tuple[Group, ...]:
    """Return our own version 2 group and all mounted groups above it, the nearest first; empty if there is none."""
    folder = own_folder("", groups, mounted)
    if folder is None:
        return ()
    top = os.path.normpath(mounted[""][0])
    found = [read_group(folder)]
    while folder != top:
        folder = os.path.dirname(folder)
        found.append(read_group(folder))
    return tuple(found)


def read_group(folder: str) -> Group:
    """Read one version 2 group."""
    processes = _text(f"{folder}/cgroup.procs")
    kind = _text(f"{folder}/cgroup.type")
    values = {name: (_text(f"{folder}/{name}") or "").strip() for name in LIMITS}
    return Group(
        folder=folder,
        controllers=frozenset((_text(f"{folder}/cgroup.controllers") or "").split()),
        enabled=frozenset((_text(f"{folder}/cgroup.subtree_control") or "").split()),
        processes=None if processes is None else tuple(map(int, processes.split())),
        writable=all(
            os.access(path, os.W_OK) for path in (folder, f"{folder}/cgroup.procs", f"{folder}/cgroup.subtree_control")
        ),
        kind="" if kind is None else kind.strip(),
        limits={name: value for name, value in values.items() if value and value.split()[0] != "max"},
    )


def read(path: str) -> str:
    """Return the content of a file of the kernel, which may need several reads."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b"")).decode()
    finally:
        os.close(fd)


def write(path: str, text: str) -> None:
    """Write a text with a single write call, as the kernel requires."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _text(path: str) -> str | None:
    try:
        return read(path)
    except OSError:
        return None
