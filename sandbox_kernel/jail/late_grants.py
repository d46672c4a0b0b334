"""More for a running jail: a folder or file of the host, or a socket for a proxy. ``root/late_rights.py`` does it."""

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
from sandbox_kernel.jail.core.guest_programs import memory_file, start_of
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.walls import LANDLOCK
from sandbox_kernel.jail.kinds.bubblewrap_jail import NamespaceJail
from sandbox_kernel.jail.late_places import check_file_place, check_place, covered_places, shelf_of
from sandbox_kernel.jail.root import root_plan
from sandbox_kernel.jail.rules.in_place import in_place_paths
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import own_places

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
    """Raise ``PolicyViolation``, which says what works, when a running jail cannot be shown this folder or file.

    Args:
        jail: The jail of the session.
        grant: The folder or file, and where it shall be inside.
        late: The places of what the session was shown since it began.

    """
    if not isinstance(jail, NamespaceJail):
        in_place_paths([grant], LANDLOCK)
    check_late(jail)
    check_place(jail.walls, grant.target, late)
    is_folder = os.path.isdir(grant.source)
    if not is_folder:
        check_file_place(grant.source, grant.target)
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
    failed = f"{grant.source!r} cannot be shown to a running session"
    shelf = shelf_of(grant.target)
    covered = () if shelf is None else covered_places(jail.walls, shelf)
    _do({**plan, "shelf": shelf, "covered": covered}, jail, failed)


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
    folder = os.path.dirname(os.path.abspath(root_plan.__file__))
    plan_fd = memory_file("plan", marshal.dumps({**plan, "pid": jail.init_pid, "uid": jail.uid}, 2))
    try:
        with contextlib.closing(ours):
            with contextlib.closing(theirs):
                command = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", start_of("late_rights"), folder]
                child = subprocess.Popen(
                    [*command, str(plan_fd), str(theirs.fileno())],
                    pass_fds=(plan_fd, theirs.fileno()), env={}, stdin=subprocess.DEVNULL,
                )  # fmt: skip
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
