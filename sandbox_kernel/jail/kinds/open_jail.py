"""A jail without namespaces: behind Landlock and a syscall filter, or behind nothing, where that was asked for.

The gate is a process of the host beside us, the work folder a private folder of the host, and the tree of processes is
held together by a control group where there is one, else by the gate, to whom orphans come. Killing therefore goes on
until nothing is left: children first, the gate last, because without it the tree falls apart.
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
from sandbox_kernel.jail.meter.disk import Disk
from sandbox_kernel.jail.meter.folder_watch import FolderWatch
from sandbox_kernel.jail.meter.meter import counts_processes
from sandbox_kernel.jail.meter.process_tree import living, of_user, signal_same, tree
from sandbox_kernel.jail.streams.readable import readable

#: What the gate takes as the host's end too: ``guest/gate/open_gate.py`` kills all it has, then ends.
END_EVERYTHING = signal.SIGRTMIN + 7


class OpenJail(Jail):
    """An interpreter beside us, that walls in each program before it runs."""

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
        """See ``Jail``; the gate itself becomes another user, so that it can be started from where only root looks."""
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
        """See ``Jail``; the folder is looked at, and a run that fills it is ended."""
        return self._watch.look(last=last)

    def disk_anew(self) -> Disk:
        """See ``Jail``."""
        self._watch.forget()
        return self._watch.look()

    def kill(self) -> None:
        """See ``Jail``."""
        self._kill_once()

    def wait_dead(self) -> None:
        """Kill until nothing is left: what was started while we looked is found at the next look."""
        deadline = time.monotonic() + DEATH_TIMEOUT_S
        while not self._kill_once() and time.monotonic() < deadline:
            time.sleep(0.0005)
        if self.child.poll() is None:
            self.child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(max(0.1, deadline - time.monotonic()))

    def forget(self) -> None:
        """See ``Jail``. The folder goes with the last who may look into it: a box that was handed over is kept."""
        keep = self._box_taken and self.box_fd < 0
        super().forget()
        self._watch.close()
        if os.getpid() != self._host:
            self._folder.forget()
        elif not keep:
            self._folder.remove()

    def take_box(self) -> int:
        """Hand over the descriptor of the work folder; its files stay until it is given back and ``forget`` called."""
        self._box_taken = True
        return super().take_box()

    def _members(self) -> list[int]:
        """Every process of the jail that we can know of, the gate among them."""
        counted = self.meter.members()
        if counted is not None:
            return counted
        # Those seen before are asked too: if the gate is killed, its orphans go to somebody else.
        same = [pid for pid, started in living(self._known).items() if self._known[pid] == started]
        found = [pid for root in dict.fromkeys((self.child.pid, *same)) for pid in tree(root)]
        if self.uid is not None:
            found += of_user(self.uid)
        self._known = living(dict.fromkeys(found))
        return list(self._known)

    def _members_but_gate(self) -> list[int]:
        """The jail's processes but for the gate, which lets nobody look into it."""
        return [pid for pid in self._members() if pid != self.child.pid]

    def _kill_once(self) -> bool:
        """Kill what is left; true when nothing was."""
        alive = living(dict.fromkeys(self._members()))
        alive.pop(self.child.pid, None)
        if alive:
            # Stopped first: who is stopped does not fork while the others are being killed.
            self.meter.kill()
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid, started in alive.items():
                    signal_same(pid, started, number)
            return False
        # One look can miss processes that do nothing but fork and exit. To the gate they come as orphans, so it is
        # asked to end whatever it still has, and itself; a program without walls may have stopped it.
        if self.child.poll() is None:
            self.child.send_signal(END_EVERYTHING)
            self.child.send_signal(signal.SIGCONT)
        return self.init_fd < 0 or readable(self.init_fd, 0)
