"""A worker in its jail, with its checkpoints: the states of a session that live in one jail.

The worker makes a checkpoint of itself right after each cell, because the order to run the cell asks for it.
``keep_state`` copies the work folder. ``prepare`` waits for both before the next cell. When a cell has to be ended,
``end_worker`` kills the worker and ``recover`` rolls back (``guest/session`` says how). One thread at a time uses it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sandbox_kernel.backends.functions.call_server import CallServer
from sandbox_kernel.errors import EnforcerFailed, SessionError
from sandbox_kernel.jail.accounting.meter import counts_processes
from sandbox_kernel.jail.gate_messages import JobFile, Step
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.streams import Stop, readable
from sandbox_kernel.model import Note, notes
from sandbox_kernel.session.cell.displays import BackgroundOutput
from sandbox_kernel.session.cell.request import CellRequest
from sandbox_kernel.session.debug_link import DebugLink, OnEvent, PauseClock
from sandbox_kernel.session.tree.state_tree import StateRecord, StateTree
from sandbox_kernel.session.worker.channel import WorkerChannel
from sandbox_kernel.session.worker.fork_authorization import ForkAuthorizer, receive_authorizer
from sandbox_kernel.session.worker.gate_client import GateClient
from sandbox_kernel.session.worker.memory_budget import MemoryBudget, holders_of_removed_files
from sandbox_kernel.session.worker.messages import (
    Answer,
    Ask,
    CheckpointOrder,
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
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.folder_copies import FolderCopies
from sandbox_kernel.workspace.overlay.session_layer import SessionLayer
from sandbox_kernel.workspace.tree.rooted import Rooted

if TYPE_CHECKING:
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy

#: How often limits that the host watches are looked at while a worker answers.
_LOOK_EVERY_S = 0.1
#: How long a worker may take to start, to freeze or to wake on a machine under load.
WORKER_START_S = 30.0
#: How long to wait, after the channel was closed, for the gate's report of how the worker ended.
LAST_WORD_S = 0.5
#: How often a worker that answers a question is interrupted again.
INTERRUPT_EVERY_S = 0.5
#: How often a pipe is read to empty it; a process that goes on writing must not keep the host busy.
_PIPE_READS = 32
#: How long the worker may take to say what its cells have changed.
LOOK_S = 10.0
#: How long one checkpoint may take to wake, and how long the host waits for a worker between cells after Stop.
WAKE_S = 10.0
#: How many seconds of a processor the host reads what a worker sends while it waits for one message.
_MOST_READING_S = 5.0
#: How many checkpoints more than usual may live while cells run back to back: to look at their variables, before they
#: end, takes several times as long as a small cell, so it waits for a pause. Each holds some megabytes, and a place for
#: a process.
MOST_WAITING = 50
#: How many checkpoints look at their variables at once.
LOOKS_AT_ONCE = 4

Kind = TypeVar("Kind", bound=FromWorker)


class StoppedEarly(Exception):
    """Raised when a cell is stopped while it waits. The session is as it was, and goes on with what it does."""


@dataclass(frozen=True, kw_only=True)
class RolledBack:
    """A finished rollback or undo: how many cells and variables the state has, and how many threads were lost."""

    cell: int
    names: int
    threads: int
    #: Why the work folder was not restored; empty when it was.
    files_problem: str

    def losses(self) -> list[Note]:
        """Notes on what was not restored."""
        files = [notes.lost_files(self.files_problem)] if self.files_problem else []
        return [*files, notes.lost_threads(self.threads)] if self.threads else files


@dataclass(eq=False)
class JailedWorker:
    """A jail with a worker that runs cells. ``tree`` knows the states of the session and which one is the present one.

    ``checkpoints`` is how many cells back ``undo`` can go; 0 switches checkpoints off. ``sealed`` ones are protected
    from other processes. ``looks``: the worker can say what its variables are.
    """

    jail: Jail
    checkpoints: int
    memory_bytes: int
    processes: int
    sealed: bool
    proxy: EgressProxy | None = None
    calls: CallServer | None = None
    looks: bool = False

    def __post_init__(self) -> None:
        #: Where programs find a proxy that was started later; empty without one.
        self.proxy_url = ""
        #: A random name of this worker, part of its display ids on the page; the guest never gets it.
        self.worker_id = secrets.token_hex(8)
        self.gate = GateClient(self.jail)
        self.channel = WorkerChannel(self.jail.channel)
        self.background = BackgroundOutput(self.worker_id)
        self.tree = StateTree(self.checkpoints)
        self.memory = MemoryBudget(self.jail, self.channel, self.memory_bytes, self.processes, self.checkpoints)
        self.memory.held = lambda: [each.pid for each in self.tree.living()]
        #: The number of the last cell or question.
        self.cell_id = 0
        #: How many variables the user has, as far as that was told.
        self.names = 0
        #: Decides the forks of a session whose policy denies starting processes; None where forks are free.
        self._forks: ForkAuthorizer | None = None
        self._asks_to_fork = False
        #: How long the cell has stood at breakpoints, and the debugger that stopped it there.
        self.pause = PauseClock()
        self._debugger: DebugLink | None = None
        #: Whether the worker was ordered to start and nobody has waited for it yet.
        self._starting = False
        #: Whether the worker was ordered to make a checkpoint of the present state, which it has not reported yet.
        self._freezing = False
        #: Whether the copy of the work folder in the present state is still to be ordered.
        self._uncopied = False
        #: The nodes of checkpoints that were given up and look at their variables meanwhile.
        self._looking: list[int] = []
        self._lost: tuple[int, ...] = ()
        #: The names of states that were killed, or evicted for memory, and of which nobody was told.
        self._lost_names: list[str] = []
        #: How many states were given up for memory since the last cell, and how far undo reached when that was told.
        self._given_up, self._told_reach = 0, self.checkpoints
        #: Whether the worker has a context on a GPU.
        self.on_gpu = False
        #: Why the present state has no checkpoint; empty when it has one.
        self.unfrozen = "" if self.checkpoints else "checkpoints are switched off"
        self.copies = FolderCopies(Rooted(self.jail.box_fd))
        #: The layer over the user's folder that the session works on; None for a plain work folder.
        self.layer: SessionLayer | None = None
        #: What the user raises who waits for this turn.
        self.stop: Stop | None = None

    def start(
        self, step: Step, files: Sequence[JobFile] = (), descriptors: Sequence[int] = (), *, waits: bool = True
    ) -> None:
        """Start the worker and order the first checkpoint; without ``waits`` the first ``prepare`` waits for both."""
        for fd in (self.jail.stdout_fd, self.jail.stderr_fd):
            os.set_blocking(fd, False)
        call_socket = None
        if self.calls is not None:
            step, call_socket = replace(step, functions=self.calls.functions.listing()), self.calls.call_socket
        self._asks_to_fork = step.asks_to_fork
        self.gate.start(step, files, self.proxy.start if self.proxy is not None else None, descriptors, call_socket)
        self._starting = True
        if waits:
            self._finish_start()
        self._ran(by_cell=False)
        self.keep_state()

    def _finish_start(self) -> None:
        self._starting = False
        self.gate.await_start()
        if self._asks_to_fork:
            self._forks = receive_authorizer(self.jail.channel, WORKER_START_S)
        self.channel.listen_to(self.gate.worker)
        self.names = self._await(Ready).names
        self.memory.begin()

    def take_history(self, past: StateTree) -> None:
        """Go on with the history of a worker that was lost: none of its states lives, and this is its beginning."""
        self.prepare()
        beginning = self.tree.here.pid
        past.all_ended()
        if beginning:
            past.hold(0, beginning)
        self.tree = past

    # Keeping states.

    def checkpoint_after(self, node: int) -> CheckpointOrder | None:
        """Return the order for a checkpoint right after the next cell; None if ``keep_state`` orders it, or none."""
        return {"cell": node, "sealed": self.sealed} if self.tree.keep > 0 and self._forks is None else None

    def commit(self, cell: CellRequest, *, ended_well: bool) -> None:
        """Keep the state after a new cell. ``keep_state``, or the next ``prepare``, gives the orders that are left.

        So a result does not wait for them, and no code of the user is sent before them.
        """
        self.tree.grow(cell, ended_well=ended_well)
        self._ran()

    def recommit(self, node: int, *, by_cell: bool = True) -> None:
        """Keep the present state as that of a node, whose cell was run again or, without ``by_cell``, was loaded."""
        self.tree.go_to(node)
        self._ran(by_cell)

    def _ran(self, by_cell: bool = True) -> None:
        self._uncopied = self.tree.keep > 0
        self._freezing = by_cell and self._uncopied and self._forks is None

    def keep_state(self) -> None:
        """Order what ``commit`` left to be ordered: a copy of the work folder, or a checkpoint too; returns at once."""
        if self._uncopied:
            self._uncopied = False
            if not self._freezing:
                self._order_checkpoint()
            self.gate.order("snapshot", owed=True, cell=self.tree.present)
            self.keep_files()

    def begin_again(self) -> None:
        """Make the present state the beginning of the history: a saved state was loaded."""
        self.tree.here.looked = False
        self._ran(by_cell=False)
        self.keep_state()

    def _order_checkpoint(self, room: int = 0) -> None:
        """Order a checkpoint of the present state. ``room``: processes that are allowed beside the usual ones."""
        if room:
            self.memory.relimit(self.tree.living_count + len(self._looking) + room)
        self.allow_fork()
        self.channel.put({"op": "freeze", "cell": self.tree.present, "sealed": self.sealed})
        self._freezing = True

    def allow_fork(self, *processes: int) -> None:
        """Let each of these processes, by its pid inside, fork once; without any, the worker."""
        if self._forks is not None:
            for pid in processes or (self.gate.worker,):
                self._forks.allow(pid)

    def keep_files(self) -> None:
        """Copy the work folder, also again after the host has changed files in it between cells."""
        if self.tree.keep > 0:
            self.copies.take(self.tree.present, {each.id for each in self.tree.living()})

    def prepare(self) -> None:
        """Wait for the checkpoint and the copy of the present state; called before the worker gets a new message."""
        if self._starting:
            try:
                self._finish_start()
            except EnforcerFailed as error:
                raise SessionError(f"it did not start: {error}") from None
        self.keep_state()
        if self._freezing:
            frozen = self._await(Frozen, watch=True)
            if not frozen.pid and self.tree.present and frozen.reason != self.unfrozen:
                # The cell may have used up all processes. What fails in the same way again is not tried twice.
                self._order_checkpoint(room=1)
                frozen = self._await(Frozen, WAKE_S, watch=True)
            self._freezing = False
            self._keep(frozen)
            self.gate.settle()
            # Checkpoints that are too many wait for a look, but only where their processes are counted apart.
            if not (self.looks and counts_processes()) or self.memory.is_crowded():
                self._end_surplus(0)
            elif self.tree.surplus >= MOST_WAITING + LOOKS_AT_ONCE:
                self._end_surplus(MOST_WAITING, wait=False)
            self._make_room()
        self.gate.settle()
        self.gate.read()
        self._note_lost()
        if self.gate.gone is None and self.channel.speaker_is_dead:
            self.gate.await_gone()

    def _keep(self, frozen: Frozen) -> None:
        """Add a new checkpoint. The worker's report may be false: the gate checks the process, we check the node."""
        node = self.tree.present
        if self._forks is not None:
            self._forks.withdraw(self.gate.worker)
        if frozen.cell != node:
            raise SessionError(
                f"the worker reported a checkpoint of cell {frozen.cell}; one of cell {node} was ordered"
            )
        self.unfrozen = frozen.reason
        if not frozen.pid:
            self.tree.here.lacks = (notes.not_held(frozen.reason),)
            return
        self.gate.hold(node, frozen.pid)
        self.tree.hold(node, frozen.pid)
        told, outside = (notes.lost_threads(frozen.threads),) if frozen.threads else (), frozen.outside
        self.tree.here.lacks = (*told, *notes.shared_by_states(outside.sockets, outside.databases, outside.children))

    # Giving up states.

    def give_up(self, nodes: Sequence[int]) -> None:
        """End the checkpoints of these nodes, but not that of the present one."""
        self.gate.drop(self.tree.release(nodes))

    def _make_room(self) -> None:
        """Drop checkpoints until everything fits into the limit, then set the limits for the next cell."""

        def is_full() -> bool:
            return os.fstatvfs(self.jail.box_fd).f_bavail == 0

        if is_full():
            # A removed file takes disk space as long as a checkpoint has it open. No other checkpoint is in the way.
            # Files of a layer are on a file system of their own.
            device = os.fstat(self.jail.box_fd).st_dev if self.layer is None else None
            keepers = holders_of_removed_files(self.jail.init_pid, device)
            self._evict_while(is_full, {each.id for each in self.tree.living() if each.pid in keepers})
        self._evict_while(self.memory.is_crowded)
        self.memory.relimit(self.tree.living_count + len(self._looking))

    def _evict_while(self, needed: Callable[[], bool], among: set[int] | None = None) -> None:
        """End one checkpoint after the other, and wait until what it held is free, while more room is needed."""
        while needed() and (node := self.tree.evict(for_memory=True, among=among)) is not None:
            self.tree.not_seen([node])
            self._note_names([node])
            self._given_up += 1
            self.gate.drop([node], wait=True)

    def limit_memory(self, limit_bytes: int) -> None:
        """Raise the memory limit, or lower it between cells; ``SessionError`` when the state is larger already."""
        if limit_bytes > self.memory.limit_bytes:
            self.memory.limit_bytes = limit_bytes
            self.memory.relimit(self.tree.living_count)
        elif limit_bytes < self.memory.limit_bytes:
            self.memory.lower(limit_bytes)
            self._make_room()

    # States that were lost, and what is known of states.

    def _note_lost(self) -> None:
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
        self.gate.order("ping", owed=True)
        self.gate.settle()
        self._note_lost()

    def take_losses(self) -> list[Note]:
        """Return notes on checkpoints and named states that were killed, or evicted for memory, since the last call."""
        self._note_lost()
        nodes, names, self._lost, self._lost_names = self._lost, self._lost_names, (), []
        line = self.tree.line()[1:] if nodes else []
        steps = sorted(line.index(node) + 1 for node in nodes if node in line)
        found = [notes.lost_checkpoints(", ".join(map(str, steps)), steps[-1])] if steps else []
        given_up, self._given_up = self._given_up, 0
        if given_up and (reach := len(self.tree.reachable())) < self._told_reach:
            # Once: a session with large data gives up a state with each further cell.
            self._told_reach = reach
            found.append(notes.states_given_up(given_up, reach))
        return [*found, notes.lost_names(names)] if names else found

    def look_at_variables(self) -> None:
        """Find out what the variables are at each living node that was not looked at yet, then end surplus checkpoints.

        Called between cells, when somebody asks for variables.
        """
        if self.tree.keep <= 0 or not self.looks:
            return
        self.prepare()
        while nodes := self.tree.unseen()[:LOOKS_AT_ONCE]:
            # Each looks in a fork that ends afterwards.
            self.memory.relimit(self.tree.living_count + len(nodes))
            self.allow_fork(*(self.tree.records[node].pid for node in nodes))
            self.gate.order("look", cells=nodes, last=False)
            self._hear_looks(nodes)
        self._end_surplus(0)
        self.memory.relimit(self.tree.living_count)

    def end_some_surplus(self) -> bool:
        """End a few checkpoints that are too many, between cells; returns whether to go on with the next few.

        Few, so that a cell that comes meanwhile waits for a moment. They look at their variables themselves, without
        a fork.
        """
        self.prepare()
        before = self.tree.surplus
        self._end_surplus(max(0, before - LOOKS_AT_ONCE))
        self.memory.relimit(self.tree.living_count)
        return 0 < self.tree.surplus < before

    def _hear_looks(self, nodes: Sequence[int]) -> None:
        # A worker that does not tell is noticed by the next cell.
        with contextlib.suppress(SessionError):
            self.ask("looks", " ".join(map(str, nodes)), 0, LOOK_S)
        self.tree.not_seen(nodes)

    def _end_looking(self) -> None:
        nodes, self._looking = self._looking, []
        if nodes:
            self._hear_looks(nodes)
            self.gate.drop(nodes)

    def _end_surplus(self, most: int, *, wait: bool = True) -> None:
        """End checkpoints until at most so many are too many; first those whose variables were looked at.

        Without ``wait`` the last few look while the next cells run, and end with the next few.
        """
        # Not the beginning: what was given up is made again from there, if from nowhere else.
        looked = [record.id for record in self.tree.living() if record.looked and record.id]
        while self.tree.surplus > most and (node := self.tree.evict(for_memory=False, among=looked)) is not None:
            self.gate.drop([node])
        while (many := self.tree.surplus - most) > 0:
            given_up = [self.tree.evict(for_memory=False) for _ in range(min(many, LOOKS_AT_ONCE))]
            nodes = [node for node in given_up if node is not None]
            if not nodes:
                break
            self._end_looking()
            if self.looks:
                self.gate.order("look", cells=nodes, last=True)
                self._looking = nodes
            else:
                self.gate.drop(nodes)
        if wait:
            self._end_looking()

    # Going back.

    def recover(self, *, strict: bool = False, patient: bool = False) -> RolledBack | None:
        """Go back to the present state, or its nearest ancestor that is alive; returns None when none is."""
        if self._freezing:
            # The worker may have reported its checkpoint just before it died.
            try:
                self.prepare()
            except (SessionError, StoppedEarly):
                self._freezing = False
        # Checkpoints of a hostile session may not behave as such: they have their time together.
        deadline = time.monotonic() + WORKER_START_S
        while (target := self.tree.nearest()) is not None and time.monotonic() < deadline:
            back = self.go_back(target, strict=strict, patient=patient)
            if back is not None:
                return back
        return None

    def go_back(self, target: StateRecord, *, strict: bool = False, patient: bool = False) -> RolledBack | None:
        """End the worker and make a checkpoint the worker; returns None when that checkpoint is gone.

        All other checkpoints stay, those of later cells too. The state gets a new checkpoint at once. With ``strict``,
        processes that earlier cells left running are ended too. With ``patient``, the worker's memory is free then.
        """
        self.end_debugger()
        self.tree.release([target.id], present=True)
        keep = [each.id for each in self.tree.living()]
        promoted = self.gate.promote(target.id, keep, strict=strict, patient=patient)
        # Losses reported before now must not be applied to the checkpoint that this node gets next.
        self._note_lost()
        if not promoted:
            return None
        self.channel.listen_to(self.gate.worker)
        # Before it wakes, in a folder that the cell may have removed; no code of the user runs before the next cell.
        files = self.copies.restore(target.id)
        self.gate.order("wake")
        try:
            restored = self._await(Restored, WAKE_S)
        except SessionError:
            # The checkpoint ended while it was woken, or does not behave as one.
            return None
        if restored.cell != target.id:
            return None
        self.memory.relimit(self.tree.living_count)
        self.tree.go_to(target.id)
        # A process with a context on a GPU makes no checkpoint.
        self.on_gpu = False
        self.names = restored.names
        self._uncopied = False
        self._order_checkpoint()
        return RolledBack(cell=target.depth, names=restored.names, threads=restored.threads, files_problem=files)

    # The process: questions to it, its debugger, its output, its end.

    def ask(
        self, what: What, code: str, pos: int, timeout_s: float, descriptor: int | None = None, stop: Stop | None = None
    ) -> Answer:
        """Ask the worker a question about code; raises ``SessionError`` when it does not answer in time.

        The worker gets a copy of ``descriptor``, if one is given. When ``stop`` is raised it is interrupted, and its
        answer awaited all the same.
        """
        self.cell_id = number = self.cell_id + 1
        message: Ask = {"op": "ask", "id": number, "what": what, "code": code, "pos": pos}
        self.channel.put(message, descriptor)
        try:
            answer = self._await(Answer, timeout_s, stop, watch=True)
        except KeyboardInterrupt:
            # The caller does not wait any more. An answer that comes later would be read in place of another message.
            self.channel.signal_speaker(signal.SIGINT)
            with contextlib.suppress(SessionError):
                self._await(Answer)
            raise
        if answer.id != number:
            raise SessionError("the worker answered another question")
        return answer

    def attach_debugger(self, on_event: OnEvent) -> DebugLink:
        """Start the debugger in the worker; raises ``SessionError`` when it cannot be started."""
        self.end_debugger()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                answer = self.ask("debug", "", 0, WORKER_START_S, theirs.fileno()).answer
            if answer.get("ok") is not True:
                reason = answer.get("reason", "the session refused")
                raise SessionError(f"the debugger cannot be started: {reason!s:.300}")
        except SessionError:
            ours.close()
            raise
        self._debugger = DebugLink(ours, self.pause, on_event)
        return self._debugger

    def exceeded(self) -> str:
        """Return of what processes of the session hold more than they may, where the host looks; empty for nothing."""
        if self.jail.has_too_many_sockets():
            return "memory"
        if self.jail.meter.exact and self.jail.walls.enforcer == bubblewrap.NAME:
            return ""
        return "memory" if self.memory.memory_exceeded() else "disk" if self.jail.disk().over else ""

    def end_debugger(self) -> None:
        """Close the debugger, if there is one: the worker that it stopped is about to end."""
        if self._debugger is not None:
            self._debugger.close()
            self._debugger = None

    def end_worker(self) -> None:
        """Kill the worker if it is alive; the promotion that follows ends the processes that it started."""
        self.memory.relimit(self.tree.living_count, dying=True)
        if self.gate.gone is None and not self.channel.signal_speaker(signal.SIGKILL):
            self.gate.order("kill", owed=True)
        self.jail.meter.release()

    def drop_output(self) -> None:
        """Forget what a worker that ended between cells has left in its pipes: the next cell did not print it."""
        for fd in (self.jail.stdout_fd, self.jail.stderr_fd):
            with contextlib.suppress(OSError):
                for _ in range(_PIPE_READS):
                    if not os.read(fd, 1 << 16):
                        break

    def destroy(self) -> None:
        """End the jail with everything in it, and the proxy."""
        self.channel.forget_speaker()
        self.end_debugger()
        self.copies.close()
        self.jail.destroy()
        if self.proxy is not None:
            self.proxy.close()
        if self.calls is not None:
            self.calls.close()

    def _take(self, message: FromWorker) -> None:
        """Take a message that came while another one was awaited; raises ``SessionError`` for one out of turn."""
        if isinstance(message, Looked):
            self.tree.looked(message.cell, message.found)
        elif isinstance(message, LateText | DisplayShown):
            self.background.take(message)
        elif not isinstance(message, OutputCleared):
            raise SessionError(f"the worker sent a {type(message).__name__.lower()} message out of turn")

    def _ended(self) -> SessionError:
        """Return the error for a worker that has ended while the host waits for it: what ended it, and what to do."""
        if self.gate.gone != -signal.SIGKILL or not self.jail.meter.read().oom_kills:
            return SessionError("the worker is gone")
        return SessionError(
            "the session ran out of memory, and its worker was ended; delete variables that are not needed, or give it "
            "more (memory_mb, --memory)"
        )

    def _await(
        self, kind: type[Kind], timeout_s: float | None = None, stop: Stop | None = None, *, watch: bool = False
    ) -> Kind:
        """Wait for a message of a kind; raises ``SessionError`` when the worker dies, is late or sends another kind.

        While ``stop`` is raised the worker is interrupted again and again: it ignores what came before our question.
        With ``watch``, code of the user runs meanwhile: a worker whose processes exceed a limit is ended.
        """
        next_interrupt, next_look = 0.0, time.monotonic() + _LOOK_EVERY_S
        read_s, shortened = time.thread_time(), False
        timeout_s = WORKER_START_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            messages = self.channel.read()
            for position, message in enumerate(messages, 1):
                if isinstance(message, kind):
                    self.channel.put_back(messages[position:])
                    return message
                self._take(message)
            if self.channel.closed:
                # The gate may report how the worker ended.
                if readable(self.jail.control.fileno(), LAST_WORD_S):
                    self.gate.read()
                raise self._ended()
            self.channel.write_some()
            if stop is not None and stop.raised and time.monotonic() >= next_interrupt:
                next_interrupt = time.monotonic() + INTERRUPT_EVERY_S
                self.channel.signal_speaker(signal.SIGINT)
            if self.stop is not None and self.stop.raised and not shortened:
                if kind is Frozen:
                    raise StoppedEarly
                shortened, deadline = True, min(deadline, time.monotonic() + WAKE_S)
            if watch and time.monotonic() >= next_look:
                next_look = time.monotonic() + _LOOK_EVERY_S
                if over := self.exceeded():
                    self.end_worker()
                    raise SessionError(f"it used more {over} than it may while it answered")
            left = deadline - time.monotonic()
            if left <= 0:
                raise SessionError(f"the worker did not answer within {timeout_s:g} s")
            if time.thread_time() - read_s > _MOST_READING_S:
                raise SessionError("the worker sends too much that nobody waits for")
            if not readable(self.channel.fileno(), min(left, 0.05)):
                self.gate.read()
                if self.gate.gone is not None and not readable(self.channel.fileno(), 0):
                    raise self._ended()
