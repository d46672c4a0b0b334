"""A worker with its checkpoints: the states of a session that live in one jail.

The worker makes a checkpoint of itself right after each cell, because the order to run the cell asks for it. The gate
copies the work folder when ``keep_state`` orders it. ``prepare`` waits for both before the next cell. When a cell has
to be ended, ``end_worker`` kills the worker and ``recover`` rolls back: the gate kills what the cell started, restores
the work folder and wakes the newest checkpoint, which becomes the worker. One thread at a time uses a ``JailedWorker``
(``WorkerSupervisor`` ensures that).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.functions.call_server import CallServer
from sandbox_kernel.errors import EnforcerFailed, SessionError
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.accounting.meter import counts_processes
from sandbox_kernel.jail.gate_messages import JobFile, Step
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.model import Note, notes
from sandbox_kernel.session.cell.request import CellEvents, CellRequest
from sandbox_kernel.session.tree.node import Checkpoint
from sandbox_kernel.session.tree.state_tree import StateTree
from sandbox_kernel.session.worker.gate_client import GateClient
from sandbox_kernel.session.worker.memory_budget import MemoryBudget, holders_of_removed_files
from sandbox_kernel.session.worker.messages import CheckpointOrder, FromWorker, Frozen, Looked, Restored, clean_text
from sandbox_kernel.session.worker.process import WorkerProcess
from sandbox_kernel.workspace.changes import FileDiff
from sandbox_kernel.workspace.overlay.session_layer import SessionLayer

if TYPE_CHECKING:
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy

#: How long the worker may take to say what its cells have changed.
LOOK_S = 10.0
#: How many evicted checkpoints may wait for a pause. Each holds some megabytes, and a place for a process.
MOST_EVICTED = 20
#: How many checkpoints look at their variables at once.
LOOKS_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class RolledBack:
    """A finished rollback or undo: what was restored and what was not.

    Attributes:
        cell: how many cells are in the restored state.
        names: how many variables of the user it has.
        threads: how many threads of the user were lost.
        files: why the work folder was not restored; empty when it was.

    """

    cell: int
    names: int
    threads: int
    files: str

    def losses(self) -> list[Note]:
        """Notes on what was not restored."""
        files = [notes.lost_files(self.files)] if self.files else []
        return [*files, notes.lost_threads(self.threads)] if self.threads else files


class JailedWorker(WorkerProcess):
    """A jail with a worker that runs cells. ``tree`` knows the states of the session and which one is the present one.

    ``checkpoints`` is how many cells back ``undo`` can go; 0 switches checkpoints off. ``sealed`` ones are protected
    from other processes. ``looks``: the worker can say what its variables are.
    """

    def __init__(
        self,
        jail: Jail,
        checkpoints: int,
        memory_bytes: int,
        processes: int,
        proxy: EgressProxy | None = None,
        *,
        sealed: bool,
        calls: CallServer | None = None,
        looks: bool = False,
    ) -> None:
        super().__init__(jail, proxy, calls)
        self._looks, self._sealed = looks, sealed
        self.tree = StateTree(checkpoints)
        self.memory = MemoryBudget(jail, self.channel, memory_bytes, processes, checkpoints)
        #: Whether the worker was ordered to start and nobody has waited for it yet.
        self._starting = False
        #: Whether the worker was ordered to make a checkpoint of the present state, which it has not reported yet.
        self._freezing = False
        #: Whether the copy of the work folder in the present state is still to be ordered.
        self._uncopied = False
        self.evicted = EvictedCheckpoints(self.gate, self._hear_looks)
        self._lost: tuple[int, ...] = ()
        #: The names of states that were killed, or evicted for memory, and of which nobody was told.
        self._lost_names: list[str] = []
        #: Whether the worker has a context on a GPU, and names of variables there.
        self.on_gpu = False
        self.on_card: tuple[str, ...] = ()
        #: Why the present state has no checkpoint; empty when it has one.
        self.unfrozen = "" if checkpoints else "checkpoints are switched off"
        #: The layer over the user's folder that the session works on; None for a plain work folder.
        self.layer: SessionLayer | None = None

    def start(
        self, step: Step, files: Sequence[JobFile] = (), descriptors: Sequence[int] = (), *, waits: bool = True
    ) -> None:
        """Start the worker and order the first checkpoint; returns when a cell can be sent.

        Without ``waits`` it returns at once. The worker reads the order when it has started, and the first ``prepare``
        waits for both.
        """
        self.order_start(step, files, descriptors)
        self._starting = True
        if waits:
            self._finish_start()
        self._keep_present()

    def _finish_start(self) -> None:
        self._starting = False
        self.await_start()
        self.memory.begin()

    def take_history(self, past: StateTree) -> None:
        """Go on with the history of a worker that was lost: none of its states lives, and this is its beginning."""
        self.prepare()
        beginning = self.tree.here.checkpoint
        past.all_ended()
        if beginning is not None:
            past.hold(beginning)
        self.tree = past

    @property
    def cell(self) -> int:
        """How many cells are in the present state."""
        return self.tree.here.depth

    # Keeping states.

    def checkpoint_after(self, node: int) -> CheckpointOrder | None:
        """Return the order to make a checkpoint right after the next cell, as the state of a node.

        None where none is made, and where each fork waits for the host: then ``keep_state`` orders it.
        """
        return {"cell": node, "sealed": self._sealed} if self.tree.keep > 0 and self.forks_freely else None

    def commit(self, cell: CellRequest, *, ended_well: bool) -> None:
        """Keep the state after a new cell. ``keep_state``, or the next ``prepare``, gives the orders that are left.

        So a result does not wait for them, and no code of the user is sent before them.
        """
        self.tree.grow(replace(cell, events=CellEvents()), ended_well=ended_well)
        self._ran()

    def recommit(self, node: int, *, by_cell: bool = True) -> None:
        """Keep the present state as that of a node, whose cell was run again or, without ``by_cell``, was loaded."""
        self.tree.go_to(node)
        self._ran(by_cell)

    def _ran(self, by_cell: bool = True) -> None:
        self._uncopied = self.tree.keep > 0
        self._freezing = by_cell and self._uncopied and self.forks_freely

    def keep_state(self) -> None:
        """Order what ``commit`` left to be ordered: a copy of the work folder, or a checkpoint too; returns at once."""
        if self._uncopied:
            self._uncopied = False
            if not self._freezing:
                self._order_checkpoint()
            self._copy_files()

    def begin_again(self) -> None:
        """Make the present state the beginning of the history: a saved state was loaded."""
        self.tree.here.looked = False
        self._keep_present()

    def _keep_present(self) -> None:
        if self.tree.keep > 0:
            self._order_checkpoint()
            self._copy_files()

    def _order_checkpoint(self, room: int = 0) -> None:
        """Order a checkpoint of the present state. ``room``: processes that are allowed beside the usual ones."""
        if room:
            self.memory.relimit(self._copies() + room)
        self.allow_fork()
        self.channel.put({"op": "freeze", "cell": self.tree.present, "sealed": self._sealed})
        self._freezing = True

    def _copy_files(self) -> None:
        """Order a copy of the work folder; the host itself copies a layer."""
        if self.layer is None:
            self.gate.snapshot(self.tree.present)
        else:
            self.layer.take(self.tree.present, [item.node for item in self.tree.living()])

    def keep_files(self) -> None:
        """Copy the work folder again, after the host has changed files in it between cells."""
        if self.tree.keep > 0:
            self._copy_files()
            self.gate.settle()

    def prepare(self) -> None:
        """Wait for the checkpoint and the copy of the present state; called before the worker gets a new message."""
        if self._starting:
            try:
                self._finish_start()
            except EnforcerFailed as error:
                raise SessionError(f"it did not start: {error}") from None
        self.keep_state()
        if self._freezing:
            frozen = self._await(Frozen)
            if not frozen.pid and self.tree.present and frozen.reason != self.unfrozen:
                # The cell may have used up all processes. What fails in the same way again is not tried twice.
                self._order_checkpoint(room=1)
                frozen = self._await(Frozen)
            self._freezing = False
            self._keep(frozen)
            self.gate.settle()
            self._make_room()
        self.gate.settle()
        self.gate.read()
        self._note_lost()
        if self.gate.gone is None and self.channel.speaker_is_dead:
            self.gate.await_gone()

    def _keep(self, frozen: Frozen) -> None:
        """Add a new checkpoint. The worker's report may be false: the gate checks the process, we check the node."""
        node = self.tree.present
        self.withdraw_fork()
        if frozen.cell != node:
            raise SessionError(
                f"the worker reported a checkpoint of cell {frozen.cell}; one of cell {node} was ordered"
            )
        self.unfrozen = frozen.reason
        if not frozen.pid:
            self.tree.here.lacks = (notes.not_held(frozen.reason),)
            return
        self.evicted.forget(node)
        self.gate.hold(node, frozen.pid)
        item = Checkpoint(node=node, cell=self.cell, pid=frozen.pid, time=time.time(), threads=frozen.threads)
        told, outside = (notes.lost_threads(frozen.threads),) if frozen.threads else (), frozen.outside
        self.tree.here.lacks = (*told, *notes.shared_by_states(outside.sockets, outside.databases, outside.children))
        self._drop(self.tree.hold(item))

    # Giving up states.

    def _drop(self, nodes: list[int]) -> None:
        """Drop evicted checkpoints. One that was not looked at yet is, before it ends (``EvictedCheckpoints``)."""
        unseen = [node for node in nodes if self._looks and not self.tree.records[node].looked]
        self.gate.drop([node for node in nodes if node not in unseen])
        # They wait only where somebody ends them between cells, and where their processes are counted apart.
        patient = self.background.listens and counts_processes() and self.memory.has_room()
        self.evicted.add(unseen, MOST_EVICTED if patient else 0)

    def end_evicted(self) -> None:
        """Go on with ending evicted checkpoints; called again and again while the session is idle."""
        if self.evicted.nodes():
            self.prepare()
            self.evicted.step()
            self.memory.relimit(self._copies())

    def give_up(self, nodes: Sequence[int]) -> None:
        """End the checkpoints of these nodes, but not that of the present one."""
        self.gate.drop(self.tree.release(nodes))

    def _make_room(self) -> None:
        """Drop checkpoints until everything fits into the limit, then set the limits for the next cell."""
        self.memory.copies_bytes = self.gate.copies_bytes
        if self._is_full():
            self._end_evicted_at_once()
            # A removed file takes disk space as long as a checkpoint has it open. No other checkpoint is in the way.
            # Files of a layer are on a file system of their own.
            device = os.fstat(self.jail.box_fd).st_dev if self.layer is None else None
            keepers = holders_of_removed_files(self.jail.init_pid, device)
            self._evict_while(self._is_full, {item.node for item in self.tree.living() if item.pid in keepers})
        if self.memory.is_crowded():
            self._end_evicted_at_once()
            self._evict_while(self.memory.is_crowded)
        self.memory.relimit(self._copies())

    def _evict_while(self, needed: Callable[[], bool], among: set[int] | None = None) -> None:
        """End one checkpoint after the other, and wait until what it held is free, while more room is needed."""
        while needed() and (node := self.tree.evict(for_memory=True, among=among)) is not None:
            self._note_names([node])
            self.gate.drop([node], wait=True)

    def _end_evicted_at_once(self) -> None:
        """End evicted checkpoints without a look: their memory is needed now."""
        self.tree.not_seen(self.evicted.nodes())
        self.evicted.end()

    def _is_full(self) -> bool:
        """Whether there is no room left in the work folder."""
        return os.fstatvfs(self.jail.box_fd).f_bavail == 0

    def _copies(self) -> int:
        """How many processes the checkpoints are, with those that are about to end."""
        return self.tree.living_count + len(self.evicted.nodes())

    def limit_memory(self, limit_bytes: int) -> None:
        """Change the memory limit. Raises ``SessionError``, and changes nothing, when the state is already larger.

        The limit can be raised at any time, and lowered only when no cell runs.
        """
        if limit_bytes > self.memory.limit_bytes:
            self.memory.limit_bytes = limit_bytes
            self.memory.relimit(self._copies())
        elif limit_bytes < self.memory.limit_bytes:
            self.memory.lower(limit_bytes)
            self._make_room()

    # States that were lost, and what is known of states.

    def _note_lost(self) -> None:
        """Remove checkpoints that the gate has reported as ended without our order."""
        lost, self.gate.lost = self.gate.lost, set()
        gone = self.tree.remove(lost)
        self._lost += gone
        self._note_names(gone)
        if self.tree.present in gone:
            self.unfrozen = "its checkpoint was killed, by the session itself or for memory"

    def _note_names(self, nodes: Sequence[int]) -> None:
        self._lost_names += [name for node in nodes if (name := self.tree.records[node].name)]

    def look_for_lost(self) -> None:
        """Ask the gate, so that the list holds no checkpoint that has ended."""
        self.gate.lives(self.tree.present)
        self._note_lost()

    def take_losses(self) -> list[Note]:
        """Return notes on checkpoints and named states that were killed, or evicted for memory, since the last call."""
        self._note_lost()
        nodes, names, self._lost, self._lost_names = self._lost, self._lost_names, (), []
        line = self.tree.line()[1:] if nodes else []
        steps = sorted(line.index(node) + 1 for node in nodes if node in line)
        found = [notes.lost_checkpoints(steps)] if steps else []
        return [*found, notes.lost_names(names)] if names else found

    def look_at_variables(self) -> None:
        """Find out what the variables are at each living node that was not looked at yet; called between cells."""
        if self.tree.keep == 0 or not self._looks:
            return
        self.prepare()
        self.evicted.finish()
        while nodes := self.tree.unseen()[:LOOKS_AT_ONCE]:
            # Each looks in a fork that ends afterwards.
            self.memory.relimit(self._copies() + len(nodes))
            self.allow_fork(*(item.pid for node in nodes if (item := self.tree.records[node].checkpoint) is not None))
            self.gate.look(nodes)
            self._hear_looks(nodes)
        self.memory.relimit(self._copies())

    def _hear_looks(self, nodes: Sequence[int]) -> None:
        """Take in what these checkpoints found; a worker that does not tell is noticed by the next cell."""
        with contextlib.suppress(SessionError):
            self.ask("looks", " ".join(map(str, nodes)), 0, LOOK_S)
        self.tree.not_seen(nodes)

    def _take(self, message: FromWorker) -> None:
        if isinstance(message, Looked):
            self.tree.looked(message.cell, message.found)
        else:
            super()._take(message)

    def compare_files(self, before: int, after: int) -> tuple[tuple[FileDiff, ...], str]:
        """Return how the folder differs between two states, and what of that could not be found out."""
        if self.layer is None:
            return self.gate.compare(before, after)
        found, problem = self.layer.compare(before, after)
        return tuple(FileDiff(clean_text(one.path), one.kind, clean_text(one.patch)) for one in found), problem

    # Going back.

    def recover(self, *, strict: bool = False, patient: bool = False) -> RolledBack | None:
        """Go back to the present state, or its nearest ancestor that is alive; returns None when none is."""
        if self._freezing:
            # The worker may have reported its checkpoint just before it died.
            try:
                self.prepare()
            except SessionError:
                self._freezing = False
        while (target := self.tree.nearest()) is not None:
            back = self.go_back(target, strict=strict, patient=patient)
            if back is not None:
                return back
        return None

    def go_back(self, target: Checkpoint, *, strict: bool = False, patient: bool = False) -> RolledBack | None:
        """End the worker and make a checkpoint the worker; returns None when that checkpoint is gone.

        All other checkpoints stay, those of later cells too. The state gets a new checkpoint at once. With ``strict``,
        processes that earlier cells left running are ended too. With ``patient``, the worker's memory is free then.
        """
        self.end_debugger()
        before = self.evicted.nodes()
        staying = self.evicted.stay(strict=strict)
        self.tree.not_seen(set(before) - set(staying))
        keep = (*self.tree.promoted(target.node), *staying)
        files = self.gate.promote(target.node, keep, strict=strict, patient=patient)
        # Losses reported before now must not be applied to the checkpoint that this node gets next.
        self._note_lost()
        if files is None:
            return None
        self.channel.listen_to(self.gate.worker)
        try:
            restored = self._await(Restored)
        except SessionError:
            # The checkpoint ended while it was woken, or does not behave as one.
            return None
        if restored.cell != target.node:
            return None
        if self.layer is not None:
            # No code of the user runs before the next cell.
            files = self.layer.restore(target.node)
        self.tree.go_to(target.node)
        # A process with a context on a GPU makes no checkpoint.
        self.on_gpu, self.on_card = False, ()
        self.names = restored.names
        self._uncopied = False
        self._order_checkpoint()
        return RolledBack(cell=target.cell, names=restored.names, threads=restored.threads, files=files)


class EvictedCheckpoints:
    """Checkpoints that were evicted and have not ended yet: each is to say what its variables are before it ends.

    To look and to end takes several times as long as a small cell, so with cells back to back it is left for the time
    in which nothing runs (``session/background.py``). At most ``MOST_EVICTED`` checkpoints wait for that; the oldest
    end at once when there are more, and all when memory is short.
    """

    def __init__(self, gate: GateClient, hear: Callable[[Sequence[int]], None]) -> None:
        self._gate, self._hear = gate, hear
        self._waiting: list[int] = []
        self._looking: list[int] = []

    def nodes(self) -> tuple[int, ...]:
        """Return the nodes whose checkpoints have not ended, oldest first."""
        return (*self._looking, *self._waiting)

    def add(self, nodes: Sequence[int], most: int) -> None:
        """Let these checkpoints end, after a look. ``most`` of all may wait for that; for the others it begins now."""
        self._gate.let_go(nodes)
        self._waiting += nodes
        if len(self.nodes()) > most:
            self.step(len(self._waiting) - most)

    def step(self, wanted: int = LOOKS_AT_ONCE) -> None:
        """End the checkpoints that have looked, and let the next few look; does not wait for these."""
        if self._looking:
            self._hear(self._looking)
            self._gate.drop(self._looking)
        count = max(0, min(wanted, LOOKS_AT_ONCE))
        self._looking, self._waiting = self._waiting[:count], self._waiting[count:]
        self._gate.look(self._looking, last=True)

    def finish(self) -> None:
        """Let all of them look and end, and wait for it."""
        while self.nodes():
            self.step()

    def end(self) -> None:
        """End all of them without a look, and wait until their memory is free."""
        self._gate.drop(list(self.nodes()), wait=True)
        self._waiting, self._looking = [], []

    def stay(self, *, strict: bool) -> tuple[int, ...]:
        """Return those that a rollback leaves alone. A strict one ends those that look: they run code of the user."""
        if strict:
            self._looking = []
        return self.nodes()

    def forget(self, node: int) -> None:
        """Note that the checkpoint of a node has ended: the gate has put another one into its place."""
        self._waiting = [other for other in self._waiting if other != node]
        self._looking = [other for other in self._looking if other != node]
