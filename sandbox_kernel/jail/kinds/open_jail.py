"""A jail without namespaces: behind Landlock and a syscall filter, or without walls if the caller asked for that.

The gate is an ordinary process of the host, and the work folder is a private folder of the host. A control group, if
there is one, keeps track of the processes; otherwise the gate does, because it adopts orphans. Killing is repeated
until no process is left: children first and the gate last, because without it orphans would be lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.core.guest_programs import guest_folder, memory_file, start_of
from sandbox_kernel.jail.core.jail import DEATH_TIMEOUT_S, Jail, JailCommand
from sandbox_kernel.jail.core.walls import Places, Walls
from sandbox_kernel.jail.kinds.open_spec import open_spec
from sandbox_kernel.jail.kinds.private_folder import PrivateFolder
from sandbox_kernel.jail.meter.folder_watch import FolderWatch
from sandbox_kernel.jail.meter.meter import counts_processes
from sandbox_kernel.jail.meter.process_tree import living, of_user, signal_same, tree
from sandbox_kernel.jail.meter.reading import Disk
from sandbox_kernel.jail.streams.stop import readable

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
        work, cell, tmp = (self._folder.inner(name) for name in ("work", "cell", "tmp"))
        self.places = Places(work=work, cell=cell, guest=guest_folder(), tmp=tmp)
        self._watch = FolderWatch(self._folder.path, walls.box_bytes, self._members_but_gate)
        self._launch()

    def _command(self, control: int, channel: int) -> JailCommand:
        """See ``Jail``. The gate changes its user itself, because only root may be able to read its program."""
        spec = open_spec(self.walls, self.places, self.uid, counted=counts_processes())
        spec_fd = memory_file("spec", spec.to_bytes())
        self._child_fds.append(spec_fd)
        argv = [
            self.walls.interpreter, "-I", "-S", "-u", "-B", "-c", start_of("gate.open_gate"), self.places.guest,
            str(spec_fd), str(control), str(channel), *self.walls.preload,
        ]  # fmt: skip
        return JailCommand(argv, None, (spec_fd,))

    def _find_init(self, deadline: float) -> int:
        """See ``Jail``."""
        return self.child.pid

    def _open_box(self) -> int:
        """See ``Jail``."""
        return os.open(self.places.work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def disk(self, *, last: bool = False) -> Disk:
        """See ``Jail``. The folder is measured from time to time, and a run that fills it is ended."""
        return self._watch.look(last=last)

    def disk_anew(self) -> Disk:
        """See ``Jail``."""
        self._watch.forget()
        return self._watch.look()

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
        """Return every known process of the jail, with the gate."""
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

    def _members_but_gate(self) -> list[int]:
        """Return the jail's processes without the gate, whose /proc entries are closed."""
        return [pid for pid in self._members() if pid != self.child.pid]

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
