"""Finds where this host lets us make a control group (a leaf) for each sandbox (``cgroup_leaf.py``).

Tried in this order: version 2 with memory and pids, version 1 hierarchies that this process may write, a scope from the
user's service manager. A process does this once: it makes one place for all its leaves (``cgroup_place.py``). It moves
no process but itself, and only if it must (``cgroup_place.py``).
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping, Sequence

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.cgroups.cgroup_place import (
    GROUP_PREFIX,
    PLACE_PREFIX,
    Group,
    Place,
    PlacePlan,
    mounts,
    own_chain,
    own_folder,
    own_groups,
    own_groups_text,
    plans,
    sweep,
    why_none,
)
from sandbox_kernel.jail.cgroups.user_scope import ScopeRefused, enter_scope, may_ask

__all__ = ["GROUP_PREFIX", "Hierarchies", "Shortfall", "find_hierarchies", "shortfall"]

_SYSTEMD = "/run/systemd/system"


@dataclass(frozen=True)
class Hierarchies:
    """The folders in which leaves are made; None for a hierarchy that is not used."""

    version: int
    memory: str | None
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
class Shortfall:
    """Why no control group limits sandboxes here, and what to do about it."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class _Search:
    found: Hierarchies | None
    missing: Shortfall | None
    #: The groups of this process before the search, which may move it.
    before: str
    places: tuple[Place, ...] = ()


_lock = threading.Lock()
_search: _Search | None = None


def find_hierarchies() -> Hierarchies | None:
    """Return where leaves with a memory limit can be made; None if nowhere. Searched once for each process."""
    return _result().found


def shortfall() -> Shortfall | None:
    """Return why ``find_hierarchies`` found nothing; None if it found something."""
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
        before = own_groups_text()
        groups, mounted = own_groups(), mounts()
    except OSError as error:
        return _Search(None, Shortfall(f"the kernel gives no information about control groups ({error})", ""), "")
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
    folders = {name: _writable(own_folder(name, groups, mounted)) for name in ("memory", "pids", "")}
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
    if folders["memory"] not in made:
        for place in made.values():
            place.remove()
        return None
    memory, pids, unified = (made[folder].folder if folder in made else None for folder in folders.values())
    return Hierarchies(1, memory, pids, unified), tuple(made.values())


def _writable(folder: str | None) -> str | None:
    return folder if folder is not None and os.access(folder, os.W_OK) else None


def _shortfall(chain: Sequence[Group], version_1: str | None, failures: Sequence[str]) -> Shortfall:
    if version_1 is not None:
        reason = f"this process may not make control groups in its own, {version_1} (version 1)"
        return Shortfall(
            "; ".join((reason, *failures)), "run it as root, or on a host with control groups of version 2"
        )
    reason = why_none(chain, os.getpid()) if chain else "no control groups are mounted here that this process is in"
    user = "" if os.geteuid() == 0 else " --user"
    with_systemd = (
        f"start it in a scope of its own: systemd-run{user} --scope -p Delegate=yes COMMAND "
        "(a service: Delegate=yes and DelegateSubgroup=main)"
    )
    without = "start it alone in a control group that it may write and that has the memory and pids controllers"
    return Shortfall("; ".join((reason, *failures)), with_systemd if os.path.isdir(_SYSTEMD) else without)
