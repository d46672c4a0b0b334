"""A jail without namespaces: behind Landlock and a syscall filter, or without walls if the caller asked for that.

The gate is an ordinary process of the host, and the work folder is a private folder of the host. A control group, if
there is one, keeps track of the processes; otherwise the gate does, because it adopts orphans. Killing is repeated
until no process is left: children first and the gate last, because without it orphans would be lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import marshal
import os
import signal
import subprocess
import time
from dataclasses import asdict

from sandbox_kernel.errors import EnforcerFailed, SandboxError
from sandbox_kernel.jail.accounting.folder_watch import FolderWatch
from sandbox_kernel.jail.accounting.meter import Disk, counts_processes
from sandbox_kernel.jail.accounting.processes import living, of_user, signal_same, tree
from sandbox_kernel.jail.guest_programs import guest_folder, memory_file, start_of
from sandbox_kernel.jail.jail import DEATH_TIMEOUT_S, Jail
from sandbox_kernel.jail.rules.landlock import open_spec
from sandbox_kernel.jail.spawner import SpawnOrder
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.jail.walls import Places, Walls
from sandbox_kernel.util.linux_calls import closed_after
from sandbox_kernel.util.own_folder import parent_weakness
from sandbox_kernel.workspace.tree.removal import remove_tree

#: On this signal, as at the end of the host, ``guest/gate/open_gate.py`` kills its descendants and ends.
END_EVERYTHING = signal.SIGRTMIN + 7


class OpenJail(Jail):
    """A gate without namespaces. Each step puts up its own walls before it runs."""

    def __init__(self, walls: Walls) -> None:
        super().__init__(walls)
        self._host = os.getpid()
        self._box_taken = False
        self._known: dict[int, int] = {}
        try:
            self._folder = PrivateFolder(walls.box_bytes, self.uid)
        except OSError as error:
            super().forget()
            raise EnforcerFailed(walls.enforcer or "none", f"no private folder could be made: {error}") from None
        path = self._folder.path
        self.places = Places(work=f"{path}/work", cell=f"{path}/cell", guest=guest_folder(), tmp=f"{path}/tmp")
        self._watch = FolderWatch(
            path,
            walls.box_bytes,
            # Without the gate, whose /proc entries are closed.
            lambda: [pid for pid in self._members() if pid != self.child.pid],
        )
        self._launch()

    def _command(self, control: int, channel: int) -> SpawnOrder:
        """See ``Jail``. The gate changes its user itself, because only root may be able to read its program."""
        spec = open_spec(self.walls, self.places, self.uid, counted=counts_processes())
        spec_fd = memory_file("spec", marshal.dumps(asdict(spec), 2))
        self._child_fds.append(spec_fd)
        argv = [
            self.walls.interpreter, "-I", "-S", "-u", "-B", "-c", start_of("gate.open_gate"), self.places.guest,
            str(spec_fd), str(control), str(channel), *self.walls.preload,
        ]  # fmt: skip
        return SpawnOrder(argv, (spec_fd,))

    def _find_init(self, deadline: float) -> int:
        return self.child.pid

    def _open_box(self) -> int:
        return os.open(self.places.work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def disk(self, *, last: bool = False) -> Disk:
        """See ``Jail``. The folder is measured from time to time, and a run that fills it is ended."""
        return self._watch.measure(last=last)

    def disk_anew(self) -> Disk:
        """See ``Jail``."""
        self._watch.forget()
        return self._watch.measure()

    def kill(self) -> None:
        """See ``Jail``."""
        self._kill_once()

    def wait_dead(self) -> None:
        """Kill until no process is left. A process that was started meanwhile is found in the next round."""
        deadline = time.monotonic() + DEATH_TIMEOUT_S
        while not self._kill_once() and time.monotonic() < deadline:
            time.sleep(0.0005)
        if self.child.poll() is None:
            self.child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(max(0.1, deadline - time.monotonic()))

    def forget(self) -> None:
        """See ``Jail``. Removes the private folder too, unless its descriptor was given away with ``take_box``."""
        keep = self._box_taken and self.box_fd < 0
        super().forget()
        self._watch.close()
        if os.getpid() != self._host:
            self._folder.forget()
        elif not keep:
            self._folder.remove()

    def take_box(self) -> int:
        """Return the descriptor of the work folder. Its files stay until it is put back and ``forget`` is called."""
        self._box_taken = True
        return super().take_box()

    def _members(self) -> list[int]:
        counted = self.meter.members()
        if counted is not None:
            return counted
        # Include processes that were seen before: if the gate is killed, its orphans get another parent.
        same = [pid for pid, started in living(self._known).items() if self._known[pid] == started]
        found = [pid for root in dict.fromkeys((self.child.pid, *same)) for pid in tree(root)]
        if self.uid is not None:
            found += of_user(self.uid)
        self._known = living(dict.fromkeys(found))
        return list(self._known)

    def _kill_once(self) -> bool:
        """Kill what is left; returns True when no process was left."""
        alive = living(dict.fromkeys(self._members()))
        alive.pop(self.child.pid, None)
        if alive:
            # Stop them first: a stopped process cannot fork while the others are killed.
            self.meter.kill()
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid, started in alive.items():
                    signal_same(pid, started, number)
            return False
        # One listing can miss processes that do nothing but fork and exit. They become orphans of the gate, so the gate
        # is asked to kill all its descendants and itself. A program without walls may have stopped the gate.
        if self.child.poll() is None:
            self.child.send_signal(END_EVERYTHING)
            self.child.send_signal(signal.SIGCONT)
        return self.init_fd < 0 or readable(self.init_fd, 0)


# A folder on the host for one jail: its work folder, its program and its temporary files. Removed afterwards.
#
# It is in memory if there is room, as work folders behind bubblewrap are: programs make many small files, and deleting
# them from a disk is slow. The host holds a lock on the folder while the jail lives. A folder without a lock was left
# by a killed host; the next host that makes such a folder removes it.

_MEMORY = "/dev/shm"
PREFIX = "sandbox-kernel-jail-"
#: Folders with this prefix are not swept: they are new and not locked yet.
_UNFINISHED = "sandbox-kernel-new-"
#: Time limit for one removal; a program may leave a million files.
_REMOVAL_S = 120.0
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateFolder:
    """The folders ``work``, ``cell`` and ``tmp`` of a user, below a path that other users cannot list."""

    def __init__(self, size: int, uid: int | None = None) -> None:
        parent = choose_parent(size)
        _sweep_once(parent)
        name = f"{os.getpid()}-{os.urandom(8).hex()}"
        new, self.path = f"{parent}/{_UNFINISHED}{name}", f"{parent}/{PREFIX}{name}"
        # The other user must be able to reach its own folders inside, and nothing else.
        os.mkdir(new, 0o700 if uid is None else 0o711)
        self._lock = os.open(new, _OPEN)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for inner in ("work", "cell", "tmp"):
            os.mkdir(inner, 0o700, dir_fd=self._lock)
            if uid is not None:
                os.chown(inner, uid, uid, dir_fd=self._lock, follow_symlinks=False)
        os.rename(new, self.path)

    def remove(self) -> None:
        """Remove the folder and everything in it. May be called twice."""
        if self._lock >= 0:
            _remove(self.path)
            self.forget()

    def forget(self) -> None:
        """Close the descriptor and do nothing else: in a forked child the folder belongs to the parent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def choose_parent(size: int) -> str:
    """Return where to make a folder for this many bytes: in memory if most of that stays free, else in the temp folder.

    Programs are compiled and run there, so a file system without execution is skipped. So is a parent where another
    user could replace our folder.
    """
    import tempfile  # a run in a jail with its own disk does not need it

    usual = os.path.realpath(tempfile.gettempdir())
    for parent, spare in ((_MEMORY, 4 * size), (usual, 0), ("/var/tmp", 0)):
        with contextlib.suppress(OSError):
            found = os.statvfs(parent)
            usable = os.access(parent, os.W_OK | os.X_OK) and not found.f_flag & os.ST_NOEXEC
            if usable and found.f_bavail * found.f_frsize > spare and parent_weakness(parent) is None:
                return parent
    problem = parent_weakness(usual)
    if problem is not None:
        raise EnforcerFailed(
            "work folder", f"other users could replace it: {problem}; set TMPDIR to a folder of yours with mode 700"
        )
    return usual


def _remove(path: str) -> None:
    parent, name = os.path.split(path)
    # What cannot be removed now has no lock and is removed by the next sweep.
    with closed_after(os.open(parent, _OPEN)) as fd, contextlib.suppress(FileNotFoundError, SandboxError):
        remove_tree(fd, name, _REMOVAL_S)


def sweep(parent: str) -> None:
    """Remove private folders whose host is gone."""
    with os.scandir(parent) as entries:
        ours = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in ours:
        with contextlib.suppress(OSError), closed_after(os.open(path, _OPEN)) as fd:
            if os.fstat(fd).st_uid == os.geteuid():
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)


_sweep_once = functools.lru_cache(maxsize=8)(sweep)
