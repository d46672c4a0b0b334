"""The memory limits of a session with checkpoints: a cell never fails because of its checkpoints.

A checkpoint shares its pages with the worker until the worker changes them; then both hold a copy. So while a cell
runs, the kernel's limit is the session's limit plus what was held when it began (what checkpoints hold alone, and what
the newest one may come to), and the host checks the worker against the session's limit. Between cells everything
together has to fit into the limit: the oldest checkpoints are dropped until it does.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Collection
from dataclasses import replace

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.accounting.folder_watch import deleted_files
from sandbox_kernel.jail.accounting.processes import read_once, speaker, tree
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.root_user import held_capabilities
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.run_job import OWN_PROCESSES
from sandbox_kernel.jail.watch_loop import USAGE_S, MemoryLimit
from sandbox_kernel.limits import MIB
from sandbox_kernel.session.tree.state_tree import living_bound
from sandbox_kernel.session.worker.channel import WorkerChannel, inner_pid
from sandbox_kernel.util.values import dataclass

#: Page tables and stacks of our own processes.
_SLACK = 16 << 20
#: Below this share of its memory limit a session can wake a checkpoint beside a dying worker.
_ROOMY = 0.5
_CAP_SYS_PTRACE = 19
#: How long processes that cells have started are asked what they hold, in seconds, and how long they are not asked
#: then: at least so many seconds, and so many times as long.
_OTHERS_S, _REST_S, _REST = 0.05, 0.1, 10


def spare_processes(checkpoints: int) -> int:
    """Return how many processes beside those of its cells a session may have: checkpoints, and a few that take over."""
    return living_bound(checkpoints) + 3


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """What a session held against its limit before a cell and at most during it; ``kept_bytes``: its kept states.

    ``wanted_bytes`` is what the worker had asked for when it held more than half of its limit, touched or not.
    """

    before_bytes: int = 0
    peak_bytes: int = 0
    #: Does not count against the limit; None where it is not measured.
    kept_bytes: int | None = None
    wanted_bytes: int = 0


class MemoryBudget(MemoryLimit):
    """The limits of one worker's jail: memory, and the number of processes that its checkpoints are."""

    #: Returns the pids of the checkpoints, as they are inside.
    held: Callable[[], Collection[int]] = tuple

    def __init__(self, jail: Jail, channel: WorkerChannel, limit_bytes: int, processes: int, checkpoints: int) -> None:
        super().__init__(jail.meter, limit_bytes)
        self._jail, self._channel = jail, channel
        #: The pid inside of each process that was seen, by its pid on the host; those that are workers and states.
        self._inner: dict[int, int] = {}
        self._ours: set[int] = set()
        #: The checkpoint of a cell is made before the host knows of it, so there is always room for one more process.
        self._processes = processes + OWN_PROCESSES + bool(checkpoints)
        self._has_checkpoints = checkpoints > 0
        #: Memory of the worker before the first cell, and of the gate beside it: neither counts. That of the gate is
        #: negative where the worker has pages of a template, which count for another jail.
        self._own_bytes = self._gate_bytes = 0
        #: Of the present cell: the jail's peak, when the next look is due, and the last reading.
        self._top, self._next_look, self.use = 0, 0.0, MemoryUse()
        #: What counted when that was looked at last, and in which worker.
        self._used, self._seen = 0, -1
        #: What processes that cells have started held alone, and when they are asked again.
        self._others, self._rest_until = 0, 0.0
        #: Whether it has ended: a process that is new by now may be the state after it, of which the host hears later.
        self.ended = False
        jail.meter.arm(limit_bytes, self._processes, spare_processes(checkpoints))

    def begin(self) -> None:
        """Note what the worker and the gate hold before the first cell."""
        self._own_bytes = anonymous_bytes(self._channel.speaker)
        if self._jail.meter.exact:
            self._gate_bytes = self._jail.meter.held_bytes() - self._own_bytes

    def relimit(self, copies: int, *, dying: bool = False) -> None:
        """Set the kernel's limits for the next cell, beside so many ``copies`` of the worker.

        While the memory of a ``dying`` worker is not free yet, there is more: for a page that the gate asks for the
        kernel would kill a checkpoint, because it finds no memory of the worker any more. The room does not grow with
        what is used: other processes of the session may take it, and keep it when the next worker dies.
        """
        room = 0
        if self._has_checkpoints:  # in steps: to set a limit takes longer than to find that it is the same
            room = min(self.limit_bytes, self._jail.meter.held_bytes() // _SLACK * _SLACK + _SLACK) + _SLACK
        room += _SLACK if dying else 0
        try:
            self._jail.meter.relimit(self.limit_bytes + room, self._processes + copies)
        except OSError as error:
            # The control group was removed: the next cell notices at once, is ended for it, and says so.
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise

    def lower(self, limit_bytes: int) -> None:
        """Lower the session's limit. Raises ``SessionError``, and changes nothing, when the state is already larger."""
        held = anonymous_bytes(self._channel.speaker), self._jail.meter.files_bytes()
        if sum(held) - self._own_bytes > limit_bytes:
            raise SessionError(
                f"the session holds {sum(held) >> 20} MB already, more than the {limit_bytes >> 20} MB that this cell "
                "may have; nothing was run: delete what is large, undo, or give the cell more memory"
            )
        self.limit_bytes = limit_bytes

    def is_crowded(self) -> bool:
        """Whether a checkpoint must be dropped: worker and checkpoints together hold more than the limit."""
        meter = self._jail.meter
        return meter.usage_bytes() > self.limit_bytes and meter.held_bytes() > self.limit_bytes

    def has_room(self) -> bool:
        """Whether a checkpoint can wake before the memory of the worker, which is to be ended, is free."""
        return self._jail.meter.usage_bytes() < _ROOMY * self.limit_bytes

    def begin_cell(self) -> None:
        """Measure a new cell from now on. Before it the session holds what it held at the end of the last one."""
        self._top, self._next_look, self.ended = 0, 0.0, False
        if self._seen != self._channel.speaker:
            self._look(anonymous_bytes(self._channel.speaker), self._jail.meter.files_bytes())
        self.use = MemoryUse(before_bytes=self._used)

    def memory_exceeded(self) -> bool:
        """Whether the worker exceeds the session's memory limit. Notes in ``use`` what the session holds.

        The host checks this where there is no control group, and where the control group's limit includes room for
        checkpoints. Other processes of a cell meet the kernel's limit, which ends them alone.
        """
        meter = self._jail.meter
        if not meter.exact and meter.memory_is_exceeded():
            return True
        total = meter.usage_bytes()
        if not self.ended and self._top and total < self._top + MIB and total <= self.limit_bytes:
            return False
        worker, files = anonymous_bytes(self._channel.speaker), meter.files_bytes()
        self._top = max(1, total, self._top)
        if self.ended or time.monotonic() >= self._next_look:
            self._look(worker, files)
        used = worker - self._own_bytes + files
        wanted = anonymous_bytes(self._channel.speaker, b"VmData:") if used > self.limit_bytes // 2 else 0
        peak = max(self.use.peak_bytes, min(used, self.limit_bytes))
        self.use = replace(self.use, peak_bytes=peak, wanted_bytes=wanted or self.use.wanted_bytes)
        return used > self.limit_bytes

    def _look(self, worker: int, files: int) -> None:
        """Note what counts for the session now, with processes beside the worker and checkpoints."""
        self._next_look, self._seen = time.monotonic() + USAGE_S, self._channel.speaker
        others = self._others_bytes()
        self._used = used = min(max(0, worker - self._own_bytes) + others + files, self.limit_bytes)
        kept = None
        if self._jail.meter.exact:
            kept = max(0, self._jail.meter.held_bytes() - files - worker - others - self._gate_bytes)
        self.use = replace(self.use, peak_bytes=max(used, self.use.peak_bytes), kept_bytes=kept)

    def _others_bytes(self) -> int:
        """Return what processes that cells have started hold alone; it is shown, and limits nothing.

        None of our own is measured, old states that end too: where pages are being copied that takes up to 60 ms. A
        program can make it slow to find out: then fewer are asked, and less often.
        """
        if (began := time.monotonic()) < self._rest_until:
            return self._others
        known, members = self._inner, set(self._jail.meter.members() or tree(self._jail.init_pid))
        self._inner, held = {pid: known[pid] for pid in members & known.keys()}, set(self.held())
        for pid in members - known.keys():
            with contextlib.suppress(OSError):
                self._inner[pid] = inner_pid(pid)
        self._ours |= {self._jail.init_pid, self._channel.speaker}
        self._ours |= {pid for pid, inner in self._inner.items() if inner in held}
        self._ours &= self._inner.keys()
        others, self._others = self._inner.keys() - self._ours, 0
        for pid in others & known.keys() if self.ended else others:
            if time.monotonic() > began + _OTHERS_S:
                break
            self._others += _private(pid)
        self._rest_until = time.monotonic() + max(_REST_S, _REST * (time.monotonic() - began))
        return self._others

    def used_bytes(self) -> int:
        """Return what the session holds against its limit, in bytes, for display: as seen in the last moments."""
        if time.monotonic() >= self._next_look:
            self._look(anonymous_bytes(self._channel.speaker), self._jail.meter.files_bytes())
        return self._used


def can_be_sealed(enforcer: str | None) -> bool:
    """Whether checkpoints can be sealed against other processes while the host can still read their memory use.

    The creator of a user namespace may inspect every process in it. Without a namespace only CAP_SYS_PTRACE allows
    that: for an ordinary user behind Landlock every page of every sealed checkpoint would count as its own. There the
    checkpoints are not sealed: Landlock keeps processes from writing into each other (/proc is read-only), but a
    checkpoint can be read.
    """
    return enforcer == bubblewrap.NAME or _CAP_SYS_PTRACE in held_capabilities()


def anonymous_bytes(pid: int, field: bytes = b"RssAnon:") -> int:
    """Return the memory of a process that no file backs, or another number of its status; 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(read_once(f"/proc/{speaker(pid)}/status").partition(field)[2].split(None, 1)[0]) << 10
    return 0


def private_bytes(init_pid: int) -> dict[int, int]:
    """Return the memory that each process of a jail holds alone, by its pid inside: what its end would free."""
    found: dict[int, int] = {}
    for pid in tree(init_pid):
        with contextlib.suppress(OSError):
            found[inner_pid(pid)] = _private(pid)
    return found


def _private(pid: int) -> int:
    """Return what a process holds alone, in bytes; 0 when it is gone or may not be looked at."""
    with contextlib.suppress(OSError), open(f"/proc/{speaker(pid)}/smaps_rollup", "rb") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(b"Private_")) << 10
    return 0


def holders_of_removed_files(init_pid: int, device: int | None) -> frozenset[int]:
    """Return the processes of a jail, by their pids inside, that have removed files of a file system open.

    Nobody gets back the room of such a file before they end. ``device`` is the number of the file system; None means
    every one. A process that cannot be looked at counts as one of them.
    """
    held = ((pid, deleted_files((pid,), device, thorough=True)) for pid in tree(init_pid))
    return frozenset(inner_pid(pid) for pid, found in held if found.sizes or found.hidden)
