"""One jail with a worker in it, and the checkpoints of that worker.

``JailedWorker`` keeps steps in order: the checkpoint and the copy of the work folder that were begun after one cell are
complete before the next cell runs. One thread at a time uses it (``WorkerSupervisor`` ensures that). It ends with its
jail.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.core.gate_messages import JobFile, Step
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.job import OWN_PROCESSES
from sandbox_kernel.jail.streams.readable import readable
from sandbox_kernel.model import Note, Violation
from sandbox_kernel.session.worker.channel import WorkerChannel
from sandbox_kernel.session.worker.checkpoints import Checkpoint, CheckpointShelf
from sandbox_kernel.session.worker.gate_client import GateClient
from sandbox_kernel.session.worker.memory_budget import Budget, anonymous_bytes
from sandbox_kernel.session.worker.message_reader import MAX_FRAME
from sandbox_kernel.session.worker.messages import (
    Answer,
    DisplayShown,
    FromWorker,
    Frozen,
    OutputCleared,
    Ready,
    Restored,
    What,
)

if TYPE_CHECKING:
    from sandbox_kernel.net.guest_fetch.fetch_server import FetchBridge
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy

#: How long a worker may take to start, to freeze or to wake on a machine under load.
PATIENCE_S = 30.0
#: Displays of background threads that are kept for the next cell, and their bytes on the wire.
_MAX_STRAYS, _MAX_STRAY_BYTES = 100, MAX_FRAME
#: After the end of a channel: how long the gate has to say what became of the worker.
LAST_WORD_S = 0.5

Kind = TypeVar("Kind", bound=FromWorker)


@dataclass(frozen=True, kw_only=True)
class RolledBack:
    """A checkpoint has taken over: what came back with it and what did not."""

    cell: int
    names: int
    threads: int
    files: str


class JailedWorker:
    """A worker that runs cells. ``cell`` counts the cells that are in its state.

    ``sealed``: no process of the session can look into a checkpoint (``memory.can_be_sealed``).
    """

    def __init__(
        self,
        jail: Jail,
        keep: int,
        memory_bytes: int,
        processes: int,
        proxy: EgressProxy | FetchBridge | None = None,
        *,
        sealed: bool,
    ) -> None:
        self.jail = jail
        self.proxy = proxy
        #: Names what this life shows on a page; nothing inside learns or can guess it.
        self.life = secrets.token_hex(8)
        self.keeper = GateClient(jail)
        self.channel = WorkerChannel(jail.channel)
        self.shelf = CheckpointShelf(keep)
        self.cell = 0
        self.cell_id = 0
        self.names = 0
        self._budget = Budget(limit_bytes=memory_bytes)
        self._processes = processes + OWN_PROCESSES
        self._freezing = False
        self._sealed = sealed
        self._strays: list[DisplayShown] = []
        self._lost: tuple[int, ...] = ()
        #: Cells of the present state whose checkpoints were killed without an order of ours.
        self.ended: set[int] = set()
        #: Why the present state has no checkpoint, when it has none.
        self.unfrozen = "" if keep else "checkpoints are switched off"
        self._ceiling = memory_bytes
        jail.meter.arm(memory_bytes, self._processes)

    def start(self, step: Step, files: Sequence[JobFile] = (), descriptors: Sequence[int] = ()) -> None:
        """Start the worker and take the first checkpoint; returns when a cell can be sent."""
        for fd in (self.jail.stdout_fd, self.jail.stderr_fd):
            os.set_blocking(fd, False)
        self.keeper.start(step, files, self.proxy.start if self.proxy is not None else None, descriptors)
        self.channel.listen_to(self.keeper.worker)
        ready = self._await(Ready)
        self.names = ready.names
        self._budget = replace(self._budget, worker_bytes=anonymous_bytes(self.channel.speaker))
        self.commit(0)

    def next_id(self) -> int:
        """A number for the next cell, never used before."""
        self.cell_id += 1
        return self.cell_id

    def commit(self, cells: int = 1) -> None:
        """The state after a cell is the new present: begin to freeze it and to copy the files."""
        self.cell += cells
        if self.shelf.keep > 0:
            self._freeze()
            self.keeper.snapshot(self.cell)

    def keep_files(self) -> None:
        """The host has changed the work folder between cells: that belongs to the present state."""
        if self.shelf.keep > 0:
            self.keeper.snapshot(self.cell)
            self.keeper.settle()

    def prepare(self) -> None:
        """Wait until what ``commit`` began is there; called before anything else is asked of the worker."""
        if self._freezing:
            frozen = self._await(Frozen)
            self._freezing = False
            self._keep(frozen)
            self.keeper.settle()
            self._make_room()
        self.keeper.settle()
        self.keeper.read()
        self._note_lost()
        if self.keeper.gone is None and self.channel.speaker_is_dead:
            self.keeper.await_gone()

    def _keep(self, frozen: Frozen) -> None:
        """Put a new checkpoint on the shelf. What the worker says of it is a claim: the gate looks at the process, and
        the cell is the one that we ordered.
        """
        if frozen.cell != self.cell:
            raise SessionError(
                f"the worker sent a checkpoint of cell {frozen.cell}; that of cell {self.cell} was asked for"
            )
        self.unfrozen = frozen.reason
        if not frozen.pid:
            return
        self.keeper.hold(self.cell, frozen.pid)
        item = Checkpoint(cell=self.cell, pid=frozen.pid, time=time.time(), threads=frozen.threads)
        self.keeper.drop([old.cell for old in self.shelf.add(item) if old.cell != item.cell])

    def _note_lost(self) -> None:
        """Take checkpoints from the shelf that were killed without an order of ours."""
        lost, self.keeper.lost = self.keeper.lost, set()
        gone = self.shelf.remove(lost)
        self._lost += gone
        self.ended.update(gone)
        if self.cell in gone:
            self.unfrozen = "its checkpoint was killed, by the session itself or for memory"

    def look_for_lost(self) -> None:
        """Ask the gate, so that the shelf holds no checkpoint that has ended."""
        self.keeper.lives(self.cell)
        self._note_lost()

    def take_lost(self) -> tuple[int, ...]:
        """The cells whose checkpoints were killed without an order of ours, as far as was not told yet."""
        self._note_lost()
        found, self._lost = self._lost, ()
        return found

    def _freeze(self) -> None:
        """Order a checkpoint; the cell's own processes may have used up their number, so it gets one more."""
        self.jail.meter.relimit(self._ceiling, self._processes + len(self.shelf.all()) + 1)
        self.channel.put({"op": "freeze", "cell": self.cell, "sealed": self._sealed})
        self._freezing = True

    def _make_room(self) -> None:
        """Set the limits for the next cell; what does not fit together beside it goes, oldest first."""
        meter = self.jail.meter
        self._budget = replace(self._budget, copies_bytes=self.keeper.copies_bytes)
        if os.fstatvfs(self.jail.box_fd).f_bavail == 0:
            # A removed file takes room as long as a checkpoint has it open.
            while (old := self.shelf.drop_oldest()) is not None:
                self.keeper.drop([old.cell], wait=True)
        if meter.usage_bytes() > self._budget.limit_bytes:
            while self._budget.crowded(meter.held_bytes()) and (old := self.shelf.drop_oldest()) is not None:
                self.keeper.drop([old.cell], wait=True)
        self._relimit()

    def _relimit(self) -> None:
        budget = self._budget
        beside_checkpoints = budget.ceiling(anonymous_bytes(self.channel.speaker))
        self._ceiling = beside_checkpoints if self.shelf.keep > 0 else budget.limit_bytes
        self.jail.meter.relimit(self._ceiling, self._processes + len(self.shelf.all()))

    def limit_memory(self, limit_bytes: int) -> None:
        """Another limit from now on; ``SessionError`` when the state is larger already, and nothing has changed then.

        More can be given at any time, less only when the worker waits for a cell.
        """
        if limit_bytes == self._budget.limit_bytes:
            return
        before, self._budget = self._budget, replace(self._budget, limit_bytes=limit_bytes)
        if limit_bytes > before.limit_bytes:
            self._relimit()
            return
        held = anonymous_bytes(self.channel.speaker), self.jail.meter.files_bytes()
        if self._budget.exceeded(*held):
            self._budget = before
            raise SessionError(
                f"the session holds {sum(held) >> 20} MB already, more than the {limit_bytes >> 20} MB that this cell "
                "may have; nothing was run: delete what is large, undo, or give the cell more memory"
            )
        self._make_room()

    def take_violations(self) -> tuple[Violation, ...]:
        """What the network's rules have refused since the last cell."""
        return self.proxy.take_violations() if self.proxy is not None else ()

    def take_failures(self) -> tuple[Note, ...]:
        """What was allowed and not reached since the last cell."""
        return self.proxy.take_failures() if self.proxy is not None else ()

    def take_strays(self) -> list[DisplayShown]:
        """What background threads have shown between cells."""
        found, self._strays = self._strays, []
        return found

    def ask(self, what: What, code: str, pos: int, timeout_s: float) -> Answer:
        """Ask the worker about code; ``SessionError`` when it does not answer in time."""
        number = self.next_id()
        self.channel.put({"op": "ask", "id": number, "what": what, "code": code, "pos": pos})
        answer = self._await(Answer, timeout_s)
        if answer.id != number:
            raise SessionError("the worker answered another question")
        return answer

    def end_worker(self) -> None:
        """Kill the worker, if it lives; what it started is ended by the handover that follows."""
        if self.keeper.gone is None and not self.channel.kill_speaker():
            self.keeper.kill_worker()
        self.jail.meter.release()

    def go_back(self, target: Checkpoint, *, strict: bool = False) -> RolledBack | None:
        """End the worker and let a checkpoint take over; None when that checkpoint is gone."""
        files = self.keeper.handover(target.cell, self.shelf.taken_over(target), strict=strict)
        # What was lost before must not be taken for the checkpoint that this cell gets next.
        self._note_lost()
        if files is None:
            return None
        self.channel.listen_to(self.keeper.worker)
        try:
            restored = self._await(Restored)
        except SessionError:
            # It was dying when it was woken, or is not itself any more.
            return None
        if restored.cell != target.cell:
            return None
        self.cell, self.names = target.cell, restored.names
        self.ended = {cell for cell in self.ended if cell < target.cell}
        self._freeze()
        return RolledBack(cell=target.cell, names=restored.names, threads=restored.threads, files=files)

    def recover(self, *, strict: bool = False) -> RolledBack | None:
        """Go back to the newest checkpoint that lives; None when none does."""
        self._finish_freezing()
        while (target := self.shelf.newest()) is not None:
            back = self.go_back(target, strict=strict)
            if back is not None:
                return back
        return None

    def memory_exceeded(self) -> bool:
        """Whether the worker is beyond its memory: where no control group counts, or where checkpoints have room."""
        meter, budget = self.jail.meter, self._budget
        if not meter.exact and meter.memory_is_exceeded():
            return True
        if meter.usage_bytes() <= budget.limit_bytes:
            return False
        return budget.exceeded(anonymous_bytes(self.channel.speaker), meter.files_bytes())

    def memory_alarm(self) -> None:
        """Nothing to remember: whom the kernel has ended for memory is looked up when the cell is over."""

    def used_bytes(self) -> int:
        """Memory that the session uses now, for whoever looks on."""
        if self.jail.meter.exact:
            return max(0, self.jail.meter.usage_bytes() - self._budget.copies_bytes)
        return anonymous_bytes(self.channel.speaker)

    @property
    def limit_bytes(self) -> int:
        """The session's own memory limit."""
        return self._budget.limit_bytes

    def destroy(self) -> None:
        """End everything."""
        self.shelf.clear()
        self.channel.forget_speaker()
        self.jail.destroy()
        if self.proxy is not None:
            self.proxy.close()

    def _finish_freezing(self) -> None:
        """A checkpoint that was just made when the worker died counts, if the worker still said so."""
        if self._freezing:
            try:
                self.prepare()
            except SessionError:
                self._freezing = False

    def _keep_stray(self, shown: DisplayShown) -> None:
        """Keep what a background thread shows, while there is room for it."""
        held = sum(stray.size for stray in self._strays)
        if len(self._strays) < _MAX_STRAYS and held + shown.size <= _MAX_STRAY_BYTES:
            self._strays.append(shown)

    def _await(self, kind: type[Kind], timeout_s: float | None = None) -> Kind:
        """The next message of a kind; ``SessionError`` when the worker dies, is silent or speaks out of turn."""
        timeout_s = PATIENCE_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            for message in self.channel.read():
                if isinstance(message, kind):
                    return message
                if isinstance(message, DisplayShown):
                    self._keep_stray(message)
                elif not isinstance(message, OutputCleared):
                    raise SessionError(f"the worker sent a {type(message).__name__.lower()} message out of turn")
            if self.channel.closed:
                # The gate may have more to say about it.
                if readable(self.jail.control.fileno(), LAST_WORD_S):
                    self.keeper.read()
                raise SessionError("the worker is gone")
            if self.channel.wants_to_write:
                self.channel.write_some()
            left = deadline - time.monotonic()
            if left <= 0:
                raise SessionError(f"the worker did not answer within {timeout_s:g} s")
            if not readable(self.channel.fileno(), min(left, 0.05)):
                self.keeper.read()
                if self.keeper.gone is not None and not readable(self.channel.fileno(), 0):
                    raise SessionError("the worker is gone")
