"""More for a running jail: a folder or file of the host, or a socket for a proxy (``guest/root/late_rights.py``)."""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Iterable

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.jail.bubblewrap_jail import NamespaceJail
from sandbox_kernel.jail.guest_programs import guest_folder, memory_file, start_of
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.rules.landlock import in_place_paths
from sandbox_kernel.jail.walls import LANDLOCK, LATE_PLACES, WORK, Walls, own_path
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import own_places

# Where a folder or file of the host can be shown to a running jail, and where not. Pure.
#
# The root of a jail is read-only and, in forks of a template, shared with other jails: nothing can be made there later.
# So every jail has some empty folders from its start (``LATE_PLACES``), in which places for late mounts are made on a
# small file system of their own; ``/tmp`` takes them too.


def check_place(walls: Walls, target: str, late: Iterable[str]) -> None:
    """Raise ``PolicyViolation``, which says what works, when nothing can be mounted at a place of a running jail."""
    top = "/" + target.split("/")[1]
    instead = (
        f"begin a session that has it from its start: %sandbox restart --keep --mount HOST:{target}, "
        f"policy.mount(HOST, {target!r})"
    )
    spare = f"{LATE_PLACES[1]}/{os.path.basename(target) or 'data'}"
    free = f"mount it at {spare if spare != target else f'{LATE_PLACES[0]}/{os.path.basename(target)}'}"
    if top == WORK:
        raise PolicyViolation(
            f"nothing can be mounted at {target} while the session runs: it is in the work folder, which a rollback "
            f"restores; {free}, or work on the folder copy-on-write: %sandbox restart --keep --here"
        )
    # Not in /tmp: programs move the folders there, also while something is mounted in one or taken off.
    if top not in LATE_PLACES:
        raise PolicyViolation(
            f"a running session can be shown folders and files at or below the empty folders that it began with "
            f"({', '.join(LATE_PLACES)}), not at {target}: its root is fixed when it begins; "
            f"{free}, or {instead}"
        )
    own = [grant.target for grant in (*walls.runtime, *walls.grants)] + [path for path in own_path(walls)[:1] if path]
    for taken in (*own, *late):
        if target == taken or target.startswith(f"{taken}/") or taken.startswith(f"{target}/"):
            raise PolicyViolation(
                f"{target} and {taken}, which the session has already, would cover each other; {free}, or take the "
                f"other one back first: %sandbox reset, session.revoke(mount='HOST:{taken}')"
            )


#: How long joining a jail may take on a busy machine.
_PATIENCE_S = 20.0


def check_late(jail: Jail) -> None:
    """Raise ``PolicyViolation``, which says what works, when this jail can be given nothing later."""
    if not isinstance(jail, NamespaceJail):
        raise PolicyViolation(
            "behind these walls nothing can be added to a running session; begin one that has the right from its start "
            "(%sandbox restart --keep with the option, box.session(...)), or copy files into it "
            "(%sandbox allow ./FILE, session.write_file)"
        )


def check_mount(jail: Jail, grant: Grant, late: Iterable[str]) -> None:
    """Raise ``PolicyViolation``, which says what works, when a running jail cannot be shown this folder or file."""
    if not isinstance(jail, NamespaceJail):
        in_place_paths([grant], LANDLOCK)
    check_late(jail)
    check_place(jail.walls, grant.target, late)
    is_folder = os.path.isdir(grant.source)
    if not is_folder and not os.path.isfile(grant.source):
        raise PolicyViolation(
            f"{grant.source!r} is neither a folder nor a regular file, and through others a sandbox could reach "
            "programs of the host; nothing can be mounted from there"
        )
    if not is_folder and grant.target in LATE_PLACES:
        inside = f"{grant.target}/{os.path.basename(grant.source)}"
        raise PolicyViolation(
            f"{grant.source!r} is a file and {grant.target} a folder; name the file inside as well: "
            f"--mount {grant.source}:{inside}"
        )
    own = own_places([grant.source]) if grant.writable else []
    if own:
        raise PolicyViolation(
            f"{grant.source!r} cannot be given writable to a running session: the host trusts {own[0]!r} in it, "
            "which only a sandbox that begins with the folder can keep read-only"
        )
    if is_folder and grant.writable and not jail.walls.grants:
        # Such a jail may open unix sockets, and through a writable folder it would reach those of the host.
        where = f"{grant.source}:{grant.target}"
        raise PolicyViolation(
            f"a session that began without folders of yours can be shown {grant.source!r} read-only: it may open unix "
            "sockets, and through a folder that it writes to it could reach those of the host. To let it write there, "
            f"begin one that may: %sandbox restart --keep --mount {where}:rw, policy.mount(…, writable=True); or work "
            "on the folder copy-on-write: %sandbox restart --keep --here"
        )


def mount_late(jail: Jail, grant: Grant, late: Iterable[str] = ()) -> None:
    """Show a folder or a file of the host to a running jail. Raises ``PolicyViolation``; see ``check_mount``."""
    check_mount(jail, grant, late)
    plan: dict[str, object] = {"act": "mount", "source": grant.source, "target": grant.target}
    plan |= {"writable": grant.writable, "identity": grant.identity}
    top = "/" + grant.target.split("/")[1]
    shelf, covered = None, set()
    if top in LATE_PLACES and grant.target != top:
        # A place is made in that empty folder, on a file system that must have what the jail has there already. Places
        # below others are left out: they come along.
        shelf = top
        shown = [*(each.target for each in (*jail.walls.runtime, *jail.walls.grants)), own_path(jail.walls)[0]]
        own = {target for target in shown if target.startswith(f"{top}/")}
        covered = {place for place in own if not any(place.startswith(f"{other}/") for other in own)}
    failed = f"{grant.source!r} cannot be shown to a running session"
    _do({**plan, "shelf": shelf, "covered": tuple(sorted(covered))}, jail, failed)


def unmount_late(jail: Jail, target: str) -> None:
    """Take a folder or file away again. Raises ``PolicyViolation`` while something in the jail holds a part of it."""
    _do({"act": "unmount", "target": target}, jail, f"{target} cannot be taken back")


def listen_late(jail: Jail) -> socket.socket:
    """Return a listening socket in the network of a running jail, for a proxy."""
    check_late(jail)
    found = _do({"act": "listen"}, jail, "the network of the session cannot be reached")
    return socket.socket(fileno=found[0])


def _do(plan: dict[str, object], jail: Jail, failed: str) -> list[int]:
    ours, theirs = socket.socketpair()
    plan_fd = memory_file("plan", marshal.dumps({**plan, "pid": jail.init_pid, "uid": jail.uid}, 2))
    try:
        with contextlib.closing(ours):
            with contextlib.closing(theirs):
                command = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", start_of("root.late_rights")]
                child = subprocess.Popen(
                    [*command, guest_folder(), str(plan_fd), str(theirs.fileno())],
                    pass_fds=(plan_fd, theirs.fileno()),
                    env={},
                    stdin=subprocess.DEVNULL,
                )
            try:
                ours.settimeout(_PATIENCE_S)
                data, descriptors, _, _ = socket.recv_fds(ours, 4096, 1)
            except TimeoutError:
                data, descriptors = b"-0|it took too long", []
            finally:
                child.kill()
                child.wait()
    finally:
        os.close(plan_fd)
    if data[:1] == b"+":
        return list(descriptors)
    code, _, text = data[1:].decode("utf-8", "replace").partition("|")
    if code == str(errno.EBUSY):
        raise PolicyViolation(
            f"{failed}: something in the session, or a state that undo could go back to, still uses it; close its "
            "files and leave its folder, or take everything back with %sandbox restart"
        )
    raise PolicyViolation(
        f"{failed}: {text or 'no answer'}; begin a session that has it from its start: %sandbox restart --keep with "
        "the option"
    )
