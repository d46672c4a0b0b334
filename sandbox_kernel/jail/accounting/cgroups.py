"""Finds where this host lets us make a control group (a leaf) for each sandbox (``meter.py``).

Tried in this order: version 2 with memory and pids, version 1 hierarchies that this process may write, a scope from the
user's service manager. A process does this once: it makes one place for all its leaves (``cgroup_place.py``). It moves
no process but itself, and only if it must: moving all of a group broke the next kernel of the same server.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from sandbox_kernel.jail.accounting.cgroup_place import (
    GROUP_PREFIX,
    PLACE_PREFIX,
    Group,
    Place,
    PlacePlan,
    mounts,
    own_chain,
    own_folder,
    own_groups,
    plans,
    read,
    sweep,
    why_none,
)
from sandbox_kernel.limits import DEFAULT_SESSION_MEMORY_MB, LEAST_PAGE_MEMORY_MB, MIB
from sandbox_kernel.util.values import dataclass

__all__ = ["GROUP_PREFIX", "Hierarchies", "find_hierarchies", "page_memory_mb", "shortfall"]

_SYSTEMD = "/run/systemd/system"
#: By hierarchy: the files of the limit and of what is used, and the name of what of it can be taken back.
_MEMORY_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
_STEP_MB = 256


@dataclass(frozen=True)
class Hierarchies:
    """The folders in which leaves are made; None for a hierarchy that is not used."""

    version: int
    memory: str
    pids: str | None
    #: A version 2 folder, even without controllers: it counts CPU time and can kill a whole group at once.
    unified: str | None
    #: Notes about the place for the report, for example that it is outside of this process's own group.
    notes: tuple[str, ...] = ()

    @property
    def mechanism(self) -> str:
        """The name for the report."""
        return f"cgroup v{self.version}"


@dataclass(frozen=True)
class _Search:
    found: Hierarchies | None
    missing: str | None
    #: The groups of this process before the search, which may move it.
    before: str
    places: tuple[Place, ...] = ()


_lock = threading.Lock()
_search: _Search | None = None


def find_hierarchies() -> Hierarchies | None:
    """Return where leaves with a memory limit can be made; None if nowhere. Searched once for each process."""
    return (_search or _result()).found


def shortfall() -> str | None:
    """Return why ``find_hierarchies`` found nothing, and what to do about it; None if it found something."""
    return _result().missing


def groups_at_start() -> str:
    """Return the control groups of this process before it made its place, as /proc/self/cgroup shows them."""
    return _result().before


def _result() -> _Search:
    global _search
    with _lock:
        if _search is None:
            _search = _look_around()
        return _search


@functools.cache
def page_memory_mb() -> int:
    """Return the memory limit where a person looks on, in MB: a quarter of the machine's, or of the container's.

    More where that is very little, never more than was free when this process asked first.
    """
    found = [_machine_memory()]
    with contextlib.suppress(OSError):
        found += _memory_of_groups(own_groups(), mounts())
    total, free = (min(each[index] for each in found) // MIB for index in (0, 1))
    share: int = min(max(total // 4, LEAST_PAGE_MEMORY_MB), free)
    return max(DEFAULT_SESSION_MEMORY_MB, share - share % _STEP_MB)


def _machine_memory() -> tuple[int, int]:
    """Return the memory of the machine, and what of it is free, in bytes."""
    with open("/proc/meminfo") as file:
        known = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
    return known["MemTotal"], known["MemAvailable"]


def _memory_of_groups(groups: Mapping[str, str], mounted: Mapping[str, tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """Return, for each group around this process that has a limit of memory, that limit and what is free of it."""
    for name, (limit, used, cache) in _MEMORY_FILES.items():
        folder = own_folder(name, groups, mounted) or ""
        while folder.startswith(f"{mounted.get(name, ('/', ''))[0]}/"):
            with contextlib.suppress(OSError, ValueError):  # a group may have no limit, or the word ``max``
                most = int(read(f"{folder}/{limit}"))
                words = read(f"{folder}/memory.stat").split()
                cached = int(words[words.index(cache) + 1])  # the kernel takes it back when memory is needed
                yield most, most - int(read(f"{folder}/{used}")) + cached
            folder = os.path.dirname(folder)


def _leave() -> None:
    """Remove what this process made. Runs as the last of our exit handlers, because this module is imported first."""
    for place in _search.places if _search is not None else ():
        place.remove()


atexit.register(_leave)


def _forget() -> None:
    """In a forked child, start again: the place belongs to the parent, which removes it when it ends."""
    global _lock, _search
    for place in _search.places if _search is not None else ():
        place.forget()
    _lock, _search = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)


def _look_around() -> _Search:
    try:
        before = read("/proc/self/cgroup")
        groups, mounted = own_groups(), mounts()
    except OSError as error:
        return _Search(None, f"the kernel gives no information about control groups ({error})", "")
    chain = own_chain(groups, mounted)
    failures: list[str] = []
    found = _version_2(chain, failures) or _version_1(groups, mounted, failures)
    if found is None and may_ask(groups.get("", ""), os.geteuid()):
        try:
            enter_scope()
            found = _version_2(own_chain(own_groups(), mounted), failures)
        except (ScopeRefused, OSError) as error:
            failures.append(f"asking the user's service manager for a scope: {error}")
    if found is None:
        return _Search(None, _shortfall(chain, own_folder("memory", groups, mounted), failures), before)
    hierarchies, places = found
    return _Search(hierarchies, None, before, places)


def _version_2(chain: Sequence[Group], failures: list[str]) -> tuple[Hierarchies, tuple[Place, ...]] | None:
    for plan in plans(chain, os.getpid()):
        sweep(plan.parent)
        try:
            place = Place(plan)
        except OSError as error:
            failures.append(f"making a group in {plan.parent}: {error.strerror}")
            continue
        pids = place.folder if "pids" in plan.controllers else None
        return Hierarchies(2, place.folder, pids, place.folder, _notes(chain, plan)), (place,)
    return None


def _notes(chain: Sequence[Group], plan: PlacePlan) -> tuple[str, ...]:
    if chain[0].folder == plan.parent or chain[0].folder.startswith(f"{plan.parent}/{PLACE_PREFIX}"):
        return ()
    limits = ", ".join(f"{name} {value}" for name, value in sorted(plan.limits.items()))
    return (
        f"sandboxes are counted in {plan.parent}, outside of this process's own control group, which cannot hold them; "
        + (f"all of them together have the limits that it has ({limits})" if limits else "it has no limits of its own"),
    )


def _version_1(
    groups: Mapping[str, str], mounted: Mapping[str, tuple[str, str]], failures: list[str]
) -> tuple[Hierarchies, tuple[Place, ...]] | None:
    folders = {name: own_folder(name, groups, mounted) for name in ("memory", "pids", "")}
    folders = {name: folder if folder and os.access(folder, os.W_OK) else None for name, folder in folders.items()}
    if folders["memory"] is None:
        return None
    made: dict[str, Place] = {}
    for folder in folders.values():
        if folder is not None and folder not in made:
            sweep(folder)
            try:
                made[folder] = Place(PlacePlan(folder))
            except OSError as error:
                failures.append(f"making a group in {folder}: {error.strerror}")
    memory, pids, unified = (made[folder].folder if folder in made else None for folder in folders.values())
    if memory is None:
        for place in made.values():
            place.remove()
        return None
    return Hierarchies(1, memory, pids, unified), tuple(made.values())


def _shortfall(chain: Sequence[Group], version_1: str | None, failures: Sequence[str]) -> str:
    reason = why_none(chain, os.getpid()) if chain else "no control groups are mounted here that this process is in"
    remedy = "start it alone in a control group that it may write and that has the memory and pids controllers"
    if version_1 is not None:
        reason = f"this process may not make control groups in its own, {version_1} (version 1)"
        remedy = "run it as root, or on a host with control groups of version 2"
    elif os.path.isdir(_SYSTEMD):
        user = "" if os.geteuid() == 0 else " --user"
        remedy = (
            f"start it in a scope of its own: systemd-run{user} --scope -p Delegate=yes COMMAND "
            "(a service: Delegate=yes and DelegateSubgroup=main)"
        )
    return "; ".join((reason, *failures, f"to have them limited, {remedy}"))


# Requests a scope from the user's service manager: control groups for an ordinary user in a login session.
#
# The group of a login session belongs to root. The user's systemd, which may limit memory, makes a scope on request,
# moves the requesting process into it, and lets it make groups there. The request goes over the user's bus with
# ``jeepney``, which is imported only here and only when needed.

#: A desktop answers within milliseconds. After this time the watchdog is used instead.
TIMEOUT_S = 2.0

_MANAGER = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"


class ScopeRefused(Exception):
    """No scope was made; the message says why."""


def may_ask(group: str, uid: int) -> bool:
    """Whether to request a scope: only for an ordinary user, in a version 2 group of a login session.

    A process elsewhere (a system service that runs as the user) would leave the limits that its administrator set. A
    scope stays below the same slice of the user as the session.
    """
    return uid != 0 and f"/user-{uid}.slice/" in f"{group}/"


def bus_address(uid: int) -> str:
    """Return the address of the user's bus."""
    address = os.environ.get("DBUS_SESSION_BUS_ADDRESS", "")
    if address:
        return address
    folder = os.environ.get("XDG_RUNTIME_DIR", "") or f"/run/user/{uid}"
    return f"unix:path={folder}/bus"


def enter_scope(timeout_s: float = TIMEOUT_S) -> None:
    """Move this process into a new delegated scope of the user's service manager. Raises ``ScopeRefused``."""
    answer: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    name = f"sandbox-kernel-{os.urandom(8).hex()}.scope"

    def ask() -> None:
        try:
            _start_scope(name)
            answer.put(None)
        except Exception as error:
            answer.put(error)

    # The library waits for the bus without a time limit, so it runs in a thread that can be left behind.
    threading.Thread(target=ask, name="sandbox-scope", daemon=True).start()
    try:
        refused = answer.get(timeout=timeout_s)
    except queue.Empty:
        raise ScopeRefused(f"no answer within {timeout_s:g} s") from None
    if refused is not None:
        reason = refused if isinstance(refused, ScopeRefused) else ScopeRefused(f"{type(refused).__name__}: {refused}")
        raise reason from None
    if name not in own_groups().get("", ""):
        raise ScopeRefused(f"it made the scope {name} but did not move this process into it")


def _start_scope(name: str) -> None:
    try:
        from jeepney import DBusAddress, MatchRule, message_bus, new_method_call
        from jeepney.io.blocking import open_dbus_connection
        from jeepney.wrappers import unwrap_msg
    except ImportError:
        raise ScopeRefused("the package jeepney, which is needed to call it, is not installed") from None
    properties = [
        ("PIDs", ("au", [os.getpid()])),
        ("Delegate", ("b", True)),
        ("Description", ("s", "Sandboxes of a sandbox-kernel host process")),
        ("CollectMode", ("s", "inactive-or-failed")),
    ]
    manager = DBusAddress(_PATH, bus_name=_MANAGER, interface=f"{_MANAGER}.Manager")
    ended = MatchRule(type="signal", interface=f"{_MANAGER}.Manager", member="JobRemoved", path=_PATH)
    with open_dbus_connection(bus_address(os.geteuid())) as bus, bus.filter(ended, queue=deque()) as jobs:
        for call in (message_bus.AddMatch(ended), new_method_call(manager, "Subscribe")):
            unwrap_msg(bus.send_and_get_reply(call))
        start = new_method_call(manager, "StartTransientUnit", "ssa(sv)a(sa(sv))", (name, "fail", properties, []))
        (job,) = unwrap_msg(bus.send_and_get_reply(start))
        while True:
            _, path, _, result = bus.recv_until_filtered(jobs).body
            if path == job:
                break
    if result != "done":
        raise ScopeRefused(f"the scope was not started: {result}")
