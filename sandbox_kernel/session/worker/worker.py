"""One jail with a worker in it, and the checkpoints of that worker.

After each cell ``keep_state`` orders a checkpoint from the worker and a copy of the work folder from the gate, and does
not wait. ``prepare`` waits for both before the next cell. When a cell has to be ended, ``end_worker`` kills the worker
and ``recover`` rolls back: the gate kills what the cell started, restores the work folder and wakes the newest
checkpoint, which becomes the worker. One thread at a time uses a ``JailedWorker`` (``WorkerSupervisor`` ensures that).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sandbox_kernel.backends.functions.call_server import CallServer
from sandbox_kernel.errors import EnforcerFailed, SessionError
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.accounting.meter import counts_processes
from sandbox_kernel.jail.gate_messages import JobFile, Step
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.run_job import OWN_PROCESSES
from sandbox_kernel.jail.streams import Stop, readable
from sandbox_kernel.model import Note, Violation, notes
from sandbox_kernel.session.cell.late_output import LateOutput
from sandbox_kernel.session.debug_link import DebugLink, OnEvent, PauseClock
from sandbox_kernel.session.tree.node import CellText
from sandbox_kernel.session.tree.state_tree import StateTree
from sandbox_kernel.session.worker.channel import WorkerChannel
from sandbox_kernel.session.worker.checkpoints import Checkpoint, room_beside_cells
from sandbox_kernel.session.worker.fork_permits import ForkPermits, receive_permits
from sandbox_kernel.session.worker.gate_client import GateClient
from sandbox_kernel.session.worker.leaving import LOOKS_AT_ONCE, MOST_LEAVING, Leaving
from sandbox_kernel.session.worker.memory_budget import Budget, anonymous_bytes
from sandbox_kernel.session.worker.message_reader import MAX_FRAME, clean_text
from sandbox_kernel.session.worker.messages import (
    Answer,
    Ask,
    CellDone,
    DisplayShown,
    FromWorker,
    Frozen,
    LateText,
    Looked,
    OutputCleared,
    Ready,
    Restored,
    What,
)
from sandbox_kernel.session.worker.removed_files import holders
from sandbox_kernel.workspace.changes import FileDiff
from sandbox_kernel.workspace.overlay.session_layer import SessionLayer

if TYPE_CHECKING:
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy

#: How long a worker may take to start, to freeze or to wake on a machine under load.
PATIENCE_S = 30.0
#: The most displays of background threads, and of their bytes, that are kept for the next cell.
#: The part of its memory limit below which a session has room for a checkpoint that wakes beside a dying worker.
_ROOMY = 0.5
#: How often a pipe is read to empty it; a process that goes on writing must not keep the host busy.
_PIPE_READS = 32
_MAX_STRAYS, _MAX_STRAY_BYTES = 100, MAX_FRAME
#: How long to wait, after the channel was closed, for the gate's report of how the worker ended.
LAST_WORD_S = 0.5
#: How long the worker may take to say what its cells have changed.
LOOK_S = 10.0
#: How often a worker that answers a question is interrupted again.
INTERRUPT_EVERY_S = 0.5

Kind = TypeVar("Kind", bound=FromWorker)


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


class JailedWorker:
    """A jail with a worker that runs cells. ``tree`` knows the states of the session and which one is the present one.

    Args:
        jail: a waiting jail; belongs to this object from now on.
        keep: how many cells back ``undo`` can go; 0 switches checkpoints off.
        memory_bytes: the session's memory limit.
        processes: how many processes the user's code may have.
        proxy: the network proxy of the session; None without network.
        calls: serves the calls of host functions; None without any.
        sealed: whether checkpoints are protected from other processes (``memory_budget.can_be_sealed``).
        looks: whether the worker can say what its variables are.

    """

    def __init__(
        self,
        jail: Jail,
        keep: int,
        memory_bytes: int,
        processes: int,
        proxy: EgressProxy | None = None,
        *,
        sealed: bool,
        calls: CallServer | None = None,
        looks: bool = False,
    ) -> None:
        self.looks = looks
        self.jail = jail
        self.calls = calls
        self.proxy = proxy
        #: A random name of this worker, part of its display ids on the page; the guest never gets it.
        self.worker_id = secrets.token_hex(8)
        self.gate = GateClient(jail)
        self.channel = WorkerChannel(jail.channel)
        self.tree = StateTree(keep)
        self.cell_id = 0
        self.names = 0
        self._budget = Budget(limit_bytes=memory_bytes)
        self._processes = processes + OWN_PROCESSES
        self._freezing = False
        #: Whether the worker was ordered to start and nobody has waited for it yet.
        self._starting = False
        #: Whether the checkpoint of the present state is still to be ordered.
        self._unordered = False
        self._sealed = sealed
        self._strays: list[DisplayShown] = []
        self.late = LateOutput(self.worker_id)
        #: Checkpoints that were given up and have not ended.
        self.leaving = Leaving(self.gate, self._hear_looks)
        self._lost: tuple[int, ...] = ()
        #: The names of states that were killed, or given up for memory, and of which nobody was told.
        self._lost_names: list[str] = []
        #: How long the cell has stood at breakpoints, and the debugger that stopped it there.
        self.pause = PauseClock()
        self.debugger: DebugLink | None = None
        #: Whether the worker has a context on a GPU, and names of variables there.
        self.on_gpu = False
        self.on_card: tuple[str, ...] = ()
        #: Why the present state has no checkpoint; empty when it has one.
        self.unfrozen = "" if keep else "checkpoints are switched off"
        self._ceiling = memory_bytes
        #: The layer over the user's folder that the session works on; None for a plain work folder.
        self.layer: SessionLayer | None = None
        #: Decides the forks of a session whose policy denies starting processes; None where forks are free.
        self.permits: ForkPermits | None = None
        #: Where programs find a proxy that was started later; empty without one.
        self.proxy_url = ""
        jail.meter.arm(memory_bytes, self._processes, room_beside_cells(keep))

    def start(
        self, step: Step, files: Sequence[JobFile] = (), descriptors: Sequence[int] = (), *, waits: bool = True
    ) -> None:
        """Start the worker and order the first checkpoint; returns when a cell can be sent.

        Without ``waits`` it returns at once. The worker reads the order when it has started, and the first ``prepare``
        waits for both.
        """
        for fd in (self.jail.stdout_fd, self.jail.stderr_fd):
            os.set_blocking(fd, False)
        hatch = None
        if self.calls is not None:
            step, hatch = replace(step, functions=self.calls.functions.listing()), self.calls.hatch
        self.gate.start(step, files, self.proxy.start if self.proxy is not None else None, descriptors, hatch)
        self._starting = True
        if waits:
            self._finish_start(asks_to_fork=step.asks_to_fork)
        self._keep_state()

    def _finish_start(self, *, asks_to_fork: bool = False) -> None:
        """Wait until the worker has started."""
        self._starting = False
        self.gate.await_start()
        if asks_to_fork:
            self.permits = receive_permits(self.jail.channel, PATIENCE_S)
        self.channel.listen_to(self.gate.worker)
        ready = self._await(Ready)
        self.names = ready.names
        self._budget = replace(self._budget, worker_bytes=anonymous_bytes(self.channel.speaker))

    def take_history(self, past: StateTree) -> None:
        """Go on with the history of a worker that was lost: none of its states lives, and this is its beginning."""
        self.prepare()
        beginning = self.tree.here.checkpoint
        past.all_ended()
        if beginning is not None:
            past.hold(beginning)
        self.tree = past

    def next_id(self) -> int:
        """Return a new number for the next cell or question."""
        self.cell_id += 1
        return self.cell_id

    @property
    def cell(self) -> int:
        """How many cells are in the present state."""
        return self.tree.here.depth

    def commit(self, cell: CellText) -> None:
        """Note a cell whose state is kept. ``keep_state`` gives the orders, or the next ``prepare`` does.

        So a result does not wait for them, and no code of the user is sent before them.
        """
        self.tree.grow(cell)
        self._unordered = True

    def keep_state(self) -> None:
        """Order what ``commit`` left to be ordered: a checkpoint and a copy of the work folder; returns at once."""
        if self._unordered:
            self._unordered = False
            self._keep_state()

    def begin_again(self) -> None:
        """Make the present state the beginning of the history: a saved state was loaded."""
        self.tree.here.looked = False
        self._keep_state()

    def recommit(self, node: int) -> None:
        """Keep the state after a cell that was run again, as that of the node that it was first run for.

        As with ``commit``, ``keep_state`` or the next ``prepare`` gives the orders.
        """
        self.tree.go_to(node)
        self._unordered = True

    def _keep_state(self) -> None:
        if self.tree.keep > 0:
            self._freeze()
            self._copy_files()

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
        """Wait for the checkpoint and the copy that ``commit`` ordered; called before the worker gets a new message."""
        if self._starting:
            try:
                self._finish_start()
            except EnforcerFailed as error:
                raise SessionError(f"it did not start: {error}") from None
        self.keep_state()
        if self._freezing:
            frozen = self._await(Frozen)
            self._freezing = False
            if self.permits is not None:
                self.permits.withdraw(self.gate.worker)
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
        if frozen.cell != node:
            raise SessionError(
                f"the worker reported a checkpoint of cell {frozen.cell}; one of cell {node} was ordered"
            )
        self.unfrozen = frozen.reason
        if not frozen.pid:
            self.tree.here.lacks = (notes.not_held(frozen.reason),)
            return
        self.leaving.forget(node)
        self.gate.hold(node, frozen.pid)
        item = Checkpoint(node=node, cell=self.cell, pid=frozen.pid, time=time.time(), threads=frozen.threads)
        told, beside = (notes.lost_threads(frozen.threads),) if frozen.threads else (), frozen.beside
        self.tree.here.lacks = (*told, *notes.shared_by_states(beside.sockets, beside.databases, beside.children))
        self._drop(self.tree.hold(item))

    def _drop(self, nodes: list[int]) -> None:
        """Drop checkpoints that were given up. One that was not looked at yet is, before it goes (``Leaving``)."""
        unseen = [node for node in nodes if self.looks and not self.tree.records[node].looked]
        self.gate.drop([node for node in nodes if node not in unseen])
        # They wait only where somebody lets them go between cells, and where their processes are counted apart.
        patient = self.late.listens and counts_processes() and self.has_room()
        self.leaving.add(unseen, MOST_LEAVING if patient else 0)

    def _hear_looks(self, nodes: Sequence[int]) -> None:
        """Take in what these checkpoints found; a worker that does not tell is noticed by the next cell."""
        with contextlib.suppress(SessionError):
            self.ask("looks", " ".join(map(str, nodes)), 0, LOOK_S)
        self.tree.not_seen(nodes)

    def let_go(self) -> None:
        """Go on with ending the checkpoints that were given up; called again and again while the session is idle."""
        if self.leaving.nodes():
            self.prepare()
            self.leaving.step()
            self._relimit()

    def _look(self, nodes: list[int]) -> None:
        """Let the checkpoints of these nodes look at their variables, each in a fork that ends afterwards."""
        held = (self.tree.records[node].checkpoint for node in nodes)
        self._permit([item.pid for item in held if item is not None])
        self.gate.look(nodes)

    def _permit(self, processes: Sequence[int]) -> None:
        """Let each of these processes, by its pid inside, fork once, where forks are the host's decision."""
        if self.permits is not None:
            for pid in processes:
                self.permits.grant(pid)

    def permit_fork(self) -> None:
        """Let the worker fork once: it saves its variables in a fork."""
        self._permit([self.gate.worker])

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

    def take_lost_names(self) -> list[str]:
        """Return the names of states that were killed or given up for memory since the last call."""
        found, self._lost_names = self._lost_names, []
        return found

    def look_for_lost(self) -> None:
        """Ask the gate, so that the list holds no checkpoint that has ended."""
        self.gate.lives(self.tree.present)
        self._note_lost()

    def take_lost(self) -> list[int]:
        """Return how many cells back checkpoints ended without our order since the last call, in ascending order."""
        self._note_lost()
        found, self._lost = self._lost, ()
        line = self.tree.line()[1:] if found else []
        return sorted(line.index(node) + 1 for node in found if node in line)

    def _freeze(self) -> None:
        """Order a checkpoint. Raises the process limit by one first: the cell may have used it up."""
        self.jail.meter.relimit(self._ceiling, self._processes + self._copies() + 1)
        self._permit([self.gate.worker])
        self.channel.put({"op": "freeze", "cell": self.tree.present, "sealed": self._sealed})
        self._freezing = True

    def _make_room(self) -> None:
        """Drop checkpoints until everything fits into the limit, then set the limits for the next cell."""
        meter = self.jail.meter
        self._budget = replace(self._budget, copies_bytes=self.gate.copies_bytes)
        if self._is_full():
            self._end_leaving()
            # A removed file takes disk space as long as a checkpoint has it open. No other checkpoint is in the way.
            # Files of a layer are on a file system of their own.
            device = os.fstat(self.jail.box_fd).st_dev if self.layer is None else None
            keepers = holders(self.jail.init_pid, device)
            among = {item.node for item in self.tree.living() if item.pid in keepers}
            while self._is_full() and (node := self.tree.give_up(for_memory=True, among=among)) is not None:
                self._give_way(node)
        if meter.usage_bytes() > self._budget.limit_bytes:
            self._end_leaving()
            while self._budget.crowded(meter.held_bytes()) and (node := self.tree.give_up(for_memory=True)) is not None:
                self._give_way(node)
        self._relimit()

    def _end_leaving(self) -> None:
        """End the checkpoints that were given up without a look: their memory is needed now."""
        self.tree.not_seen(self.leaving.nodes())
        self.leaving.end()

    def _give_way(self, node: int) -> None:
        """End the checkpoint of a node that was given up, and wait until what it held is free."""
        self._note_names([node])
        self.gate.drop([node], wait=True)

    def _is_full(self) -> bool:
        """Whether there is no room left in the work folder."""
        return os.fstatvfs(self.jail.box_fd).f_bavail == 0

    def _copies(self) -> int:
        """How many processes the checkpoints are, with those that are about to end."""
        return self.tree.living_count + len(self.leaving.nodes())

    def _relimit(self) -> None:
        budget = self._budget
        beside_checkpoints = budget.ceiling(anonymous_bytes(self.channel.speaker))
        self._ceiling = beside_checkpoints if self.tree.keep > 0 else budget.limit_bytes
        self.jail.meter.relimit(self._ceiling, self._processes + self._copies())

    def limit_memory(self, limit_bytes: int) -> None:
        """Change the memory limit. Raises ``SessionError``, and changes nothing, when the state is already larger.

        The limit can be raised at any time, and lowered only when no cell runs.
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

    def told_of_gpu(self, done: CellDone | None) -> bool:
        """Whether the cell before used a GPU too, so that its result said so; remembers it for the next one.

        ``done`` is None for a cell that had to be ended: what it lost is still known, until the session is back.
        """
        before = self.on_gpu
        if done is not None:
            self.on_gpu, self.on_card = done.accelerator, done.on_card
        return before

    def take_violations(self) -> tuple[Violation, ...]:
        """Return what the network rules have refused since the last cell."""
        return self.proxy.take_violations() if self.proxy is not None else ()

    def take_failures(self) -> tuple[Note, ...]:
        """Return notes on hosts that were allowed but could not be reached since the last cell."""
        return self.proxy.take_failures() if self.proxy is not None else ()

    def hear(self) -> None:
        """Hand on the output that threads and tasks have sent between cells; called with the turn."""
        for message in self.channel.hear():
            self._between(message)

    def _between(self, message: LateText | DisplayShown) -> None:
        """Hand on late output to its cell; a display of a cell that nobody listens to is kept for the next cell."""
        if isinstance(message, LateText):
            self.late.text(message)
        elif self.late.knows(message.id):
            self.late.display(message)
        else:
            self._keep_stray(message)

    def take_strays(self) -> list[DisplayShown]:
        """Return the displays of background threads between cells."""
        found, self._strays = self._strays, []
        return found

    def ask(
        self,
        what: What,
        code: str,
        pos: int,
        timeout_s: float,
        descriptor: int | None = None,
        stop: Stop | None = None,
    ) -> Answer:
        """Ask the worker a question about code; raises ``SessionError`` when it does not answer in time.

        The worker gets a copy of ``descriptor``, if one is given. When ``stop`` is raised it is interrupted, and its
        answer awaited all the same.
        """
        number = self.next_id()
        message: Ask = {"op": "ask", "id": number, "what": what, "code": code, "pos": pos}
        if descriptor is None:
            self.channel.put(message)
        else:
            self.channel.give(message, descriptor)
        try:
            answer = self._await(Answer, timeout_s, stop)
        except KeyboardInterrupt:
            # The caller does not wait any more. An answer that comes later would be read in place of another message.
            self.channel.interrupt_speaker()
            with contextlib.suppress(SessionError):
                self._await(Answer)
            raise
        if answer.id != number:
            raise SessionError("the worker answered another question")
        return answer

    def attach_debugger(self, on_event: OnEvent) -> DebugLink:
        """Start the debugger in the worker; raises ``SessionError`` when it cannot be started."""
        self._end_debugger()
        ours, theirs = socket.socketpair()
        with theirs:
            number = self.next_id()
            self.channel.give({"op": "ask", "id": number, "what": "debug", "code": "", "pos": 0}, theirs.fileno())
        try:
            answer = self._await(Answer).answer
        except SessionError:
            ours.close()
            raise
        if answer.get("ok") is not True:
            ours.close()
            raise SessionError(f"the debugger cannot be started: {answer.get('reason', 'the session refused')!s:.300}")
        self.debugger = DebugLink(ours, self.pause, on_event)
        return self.debugger

    def _end_debugger(self) -> None:
        if self.debugger is not None:
            self.debugger.close()
            self.debugger = None

    def give_up(self, nodes: Sequence[int]) -> None:
        """End the checkpoints of these nodes, but not that of the present one."""
        self.gate.drop(self.tree.release(nodes))

    def look_at_variables(self) -> None:
        """Find out what the variables are at each living node that was not looked at yet; called between cells."""
        if self.tree.keep == 0 or not self.looks:
            return
        self.prepare()
        self.leaving.finish()
        while cells := self.tree.unseen()[:LOOKS_AT_ONCE]:
            self.jail.meter.relimit(self._ceiling, self._processes + self._copies() + len(cells))
            self._look(cells)
            self._hear_looks(cells)
        self._relimit()

    def end_worker(self) -> None:
        """Kill the worker if it is alive; the handover that follows ends the processes that it started."""
        if self.gate.gone is None and not self.channel.kill_speaker():
            self.gate.kill_worker()
        self.jail.meter.release()

    def go_back(self, target: Checkpoint, *, strict: bool = False, patient: bool = False) -> RolledBack | None:
        """End the worker and make a checkpoint the worker; returns None when that checkpoint is gone.

        All other checkpoints stay, those of later cells too. The state gets a new checkpoint at once. With ``strict``,
        processes that earlier cells left running are ended too. With ``patient``, the worker's memory is free then.
        """
        self._end_debugger()
        before = self.leaving.nodes()
        staying = self.leaving.stay(strict=strict)
        self.tree.not_seen(set(before) - set(staying))
        keep = (*self.tree.taken_over(target.node), *staying)
        files = self.gate.handover(target.node, keep, strict=strict, patient=patient)
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
        self._freeze()
        return RolledBack(cell=target.cell, names=restored.names, threads=restored.threads, files=files)

    def compare_files(self, before: int, after: int) -> tuple[tuple[FileDiff, ...], str]:
        """Return how the folder differs between two states, and what of that could not be found out."""
        if self.layer is None:
            return self.gate.compare(before, after)
        found, problem = self.layer.compare(before, after)
        return tuple(FileDiff(clean_text(one.path), one.kind, clean_text(one.patch)) for one in found), problem

    def recover(self, *, strict: bool = False, patient: bool = False) -> RolledBack | None:
        """Go back to the present state, or its nearest ancestor that is alive; returns None when none is."""
        self._finish_freezing()
        while (target := self.tree.nearest()) is not None:
            back = self.go_back(target, strict=strict, patient=patient)
            if back is not None:
                return back
        return None

    def has_room(self) -> bool:
        """Whether a checkpoint can wake before the memory of the worker, which is to be ended, is free."""
        return self.jail.meter.usage_bytes() < _ROOMY * self._budget.limit_bytes

    def drop_output(self) -> None:
        """Forget what a worker that ended between cells has left in its pipes: the next cell did not print it."""
        for fd in (self.jail.stdout_fd, self.jail.stderr_fd):
            with contextlib.suppress(OSError):
                for _ in range(_PIPE_READS):
                    if not os.read(fd, 1 << 16):
                        break

    def memory_exceeded(self) -> bool:
        """Whether the worker exceeds the session's memory limit.

        The host checks this where there is no control group, and where the control group's limit includes room for
        checkpoints.
        """
        meter, budget = self.jail.meter, self._budget
        if not meter.exact and meter.memory_is_exceeded():
            return True
        if meter.usage_bytes() <= budget.limit_bytes:
            return False
        return budget.exceeded(anonymous_bytes(self.channel.speaker), meter.files_bytes())

    def memory_alarm(self) -> None:
        """Do nothing: which process the kernel killed for memory is looked up after the cell."""

    def used_bytes(self) -> int:
        """Return the current memory use of the session in bytes, for display."""
        if self.jail.meter.exact:
            return max(0, self.jail.meter.usage_bytes() - self._budget.copies_bytes)
        return anonymous_bytes(self.channel.speaker)

    @property
    def limit_bytes(self) -> int:
        """The session's own memory limit."""
        return self._budget.limit_bytes

    def destroy(self) -> None:
        """End the jail with everything in it, and the proxy."""
        self.channel.forget_speaker()
        self._end_debugger()
        self.jail.destroy()
        if self.proxy is not None:
            self.proxy.close()
        if self.calls is not None:
            self.calls.close()

    def _finish_freezing(self) -> None:
        """Accept a checkpoint that the worker reported just before it died."""
        if self._freezing:
            try:
                self.prepare()
            except SessionError:
                self._freezing = False

    def _keep_stray(self, shown: DisplayShown) -> None:
        """Keep a display of a background thread for the next cell, if the bounds allow it."""
        held = sum(stray.size for stray in self._strays)
        if len(self._strays) < _MAX_STRAYS and held + shown.size <= _MAX_STRAY_BYTES:
            self._strays.append(shown)

    def _await(self, kind: type[Kind], timeout_s: float | None = None, stop: Stop | None = None) -> Kind:
        """Wait for a message of a kind; raises ``SessionError`` when the worker dies, is late or sends another kind.

        While ``stop`` is raised the worker is interrupted again and again: it ignores what came before our question.
        """
        next_interrupt = 0.0
        timeout_s = PATIENCE_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            messages = self.channel.read()
            for position, message in enumerate(messages, 1):
                if isinstance(message, kind):
                    self.channel.put_back(messages[position:])
                    return message
                if isinstance(message, LateText | DisplayShown):
                    self._between(message)
                elif isinstance(message, Looked):
                    self.tree.looked(message.cell, message.found)
                elif not isinstance(message, OutputCleared):
                    raise SessionError(f"the worker sent a {type(message).__name__.lower()} message out of turn")
            if self.channel.closed:
                # The gate may report how the worker ended.
                if readable(self.jail.control.fileno(), LAST_WORD_S):
                    self.gate.read()
                raise SessionError("the worker is gone")
            if self.channel.wants_to_write:
                self.channel.write_some()
            if stop is not None and stop.raised and time.monotonic() >= next_interrupt:
                next_interrupt = time.monotonic() + INTERRUPT_EVERY_S
                self.channel.interrupt_speaker()
            left = deadline - time.monotonic()
            if left <= 0:
                raise SessionError(f"the worker did not answer within {timeout_s:g} s")
            if not readable(self.channel.fileno(), min(left, 0.05)):
                self.gate.read()
                if self.gate.gone is not None and not readable(self.channel.fileno(), 0):
                    raise SessionError("the worker is gone")
