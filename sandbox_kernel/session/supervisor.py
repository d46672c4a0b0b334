"""Keeps one worker ready for a session: starts it, runs cells in it, and replaces it when it ends.

``WorkerSupervisor`` belongs to one ``Session`` and lets one thread at a time use the worker, by a lock (the *turn*).
After a cell that had to be ended it rolls the session back to a checkpoint. Without a checkpoint it starts a new
worker, and the result says that the state is lost.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from sandbox_kernel.backends.outcome import NetworkSigns, make_result
from sandbox_kernel.errors import CheckpointGone, SandboxError, SessionError
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import ExecResult, FsChange, Note, Status, notes
from sandbox_kernel.session.background import BackgroundListener
from sandbox_kernel.session.cell.request import CellEvents, CellRequest, LimitLift, SessionSpec
from sandbox_kernel.session.cell.result import CellEnd, cell_result
from sandbox_kernel.session.cell.run_cell import Cell
from sandbox_kernel.session.files import WorkFiles
from sandbox_kernel.session.session_rights import SessionRights
from sandbox_kernel.session.tree.state_tree import StateTree
from sandbox_kernel.session.worker.gate_client import GateLost
from sandbox_kernel.session.worker.jailed_worker import JailedWorker, RolledBack, StoppedEarly
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.folder_link import FolderLink

_GONE = "its sandbox was ended"
#: How long a line of ours may take.
QUIET_S = 10.0
#: How long ``make_ready`` waits for the turn, which a listener between cells may have for a moment.
_READY_S = 1.0
#: How soon a cell that waits for the turn hears that it was stopped.
_HEAR_S = 0.05


class StillBusy(SessionError):
    """Raised when the turn did not come in the time that the caller would wait."""


@dataclass(eq=False)
class WorkerSupervisor:
    """Holds the worker that a session has now, runs cells in it, and replaces a worker that dies."""

    spec: SessionSpec
    begin: Callable[[], JailedWorker]
    share: FolderLink | None = None
    rights: SessionRights | None = None

    def __post_init__(self) -> None:
        self.files = WorkFiles(self.share)
        #: Whether the last cell was rolled back.
        self.just_rolled_back = False
        self.closed = False
        self.memory_mb = self.spec.memory_mb
        self.live: JailedWorker | None = self.begin()
        self._lock = threading.Lock()
        self._owner: int | None = None
        #: Notes for the result of the next cell.
        self._pending_notes: list[Note] = []
        #: The history of the worker before this one.
        self._past: StateTree | None = None
        #: A worker that could not be made ready between cells, and why; the next turn deals with it.
        self._unready: tuple[JailedWorker, SessionError | GateLost] | None = None
        #: What the session lost when nobody was told; the next turn raises it that tells.
        self._unreported: SessionError | None = None
        self._background = BackgroundListener(self)

    # The worker, and the turn to use it.

    def _begin(self) -> JailedWorker:
        worker = self.begin()
        if self._past is not None:
            worker.take_history(self._past)
        worker.limit_memory(self.memory_mb * MIB)
        return worker

    def end(self) -> None:
        """End the present worker. May be called twice, and without the turn: garbage collection calls it."""
        worker, self.live = self.live, None
        if worker is not None:
            worker.destroy()

    def forget(self) -> None:
        """Close the descriptors and end nothing; called in a forked child of the host."""
        self.closed = True
        worker, self.live = self.live, None
        if worker is not None:
            worker.copies.close()
            worker.jail.forget()

    def again(self, *, forget: bool = False) -> None:
        """End the worker and start a new one. If the start fails, the next turn tries again and raises the reason.

        The history stays unless ``forget``; of its states only the beginning lives, and its cells can be run again.
        """
        if forget:
            self._past = None
        elif self.live is not None:
            self._past = self.live.tree
        self.end()
        self._pending_notes = []
        if not self.closed:
            with contextlib.suppress(SandboxError):
                self.live = self._begin()

    @contextlib.contextmanager
    def lock(self, patience_s: float | None = None, stop: Stop | None = None) -> Iterator[None]:
        """Wait for the turn and hold it; raises ``SessionError`` on the thread that already has it.

        With ``patience_s``, raises ``StillBusy`` when the turn has not come after that time, or cannot come. Raises
        ``StoppedEarly`` when ``stop`` is raised meanwhile.
        """
        if self._owner == threading.get_ident():
            if patience_s is not None:
                raise StillBusy(f"session {self.spec.name!r} runs a cell on this thread")
            raise SessionError(
                f"session {self.spec.name!r} is already running a cell on this thread; wait for its result first"
            )
        if stop is not None:
            while not self._lock.acquire(timeout=_HEAR_S):
                if stop.raised:
                    raise StoppedEarly
        elif not self._lock.acquire(timeout=-1 if patience_s is None else patience_s):
            raise StillBusy(f"session {self.spec.name!r} runs a cell; ask again when it has ended")
        try:
            self._owner = threading.get_ident()
            yield
        finally:
            self._owner = None
            self._lock.release()

    @contextlib.contextmanager
    def lock_after_kill(self) -> Iterator[None]:
        """Kill the jail, so that a running cell ends and gives up the turn, then hold the turn; from any thread."""
        worker = self.live
        if worker is not None:
            worker.jail.kill()
        with self.lock():
            yield

    def refuse_if_closed(self) -> None:
        """Raise ``SessionError`` if the session is closed."""
        if self.closed:
            name, language = self.spec.name, str(self.spec.language)
            raise SessionError(f"session {name!r} is closed; open a new one with box.session({language!r})")

    @contextlib.contextmanager
    def turn(
        self, patience_s: float | None = None, *, stop: Stop | None = None, settles: bool = False, tells: bool = True
    ) -> Iterator[JailedWorker]:
        """Wait for the turn, and have a worker that waits. ``patience_s``: see ``lock``.

        When ``stop`` is raised meanwhile, raises ``StoppedEarly``. With ``settles``, the caller calls ``make_ready``
        afterwards, and what has time until then is left to it. Without ``tells``, nobody reads what the caller raises:
        what the session has lost is kept for a turn that tells.
        """
        self.refuse_if_closed()
        with self.lock(patience_s, stop):
            self._background.busy()
            try:
                self.refuse_if_closed()
                if self.live is None:
                    self.live = self._begin()
                self.live.stop = stop
                unreported, self._unreported = self._unreported, None
                try:
                    if unreported is not None and tells:
                        raise unreported
                    live = self._ready(self.live)
                except SessionError as error:
                    unreported = error
                    raise
                finally:
                    self._unreported = None if tells else unreported
                if self.rights is not None:
                    self.rights.renew(self, live)
                yield live
            finally:
                if self.live is not None:
                    self.live.stop = None
                if not settles:
                    self._background.idle()

    def make_ready(self) -> None:
        """Keep the state after the last cell, if no other thread has the turn; the next turn raises what went wrong."""
        with contextlib.suppress(StillBusy), self.lock(_READY_S):
            live = self.live
            if live is not None and not self.closed and self._unready is None:
                try:
                    live.prepare()
                except (SessionError, GateLost) as error:
                    self._unready = live, error
                self._background.idle()

    def settle(self, live: JailedWorker) -> None:
        """Wait until the worker is ready for a cell; raises ``SessionError`` when it is not any more."""
        if self._ready(live) is not live:
            raise SessionError(_GONE)

    def _ready(self, live: JailedWorker) -> JailedWorker:
        """A worker that waits for a cell. One that died between cells is brought back."""
        try:
            unready, self._unready = self._unready, None
            if unready is not None and unready[0] is live:
                raise unready[1]
            live.prepare()
            code = live.gate.gone
            if code is None:
                return live
            problem = f"ended with {f'exit code {code}' if code >= 0 else f'signal {-code}'}"
        except SessionError as error:
            problem = str(error)
        except GateLost:
            problem = ""
        self.refuse_if_closed()
        return self._bring_back(live, problem)

    # Cells.

    def not_begun(self, request: CellRequest) -> ExecResult:
        """Return the result of a cell that was stopped while it waited."""
        spec, memory_mb = self.spec, self.spec.memory_of(request, self.memory_mb)
        made = make_result(request, Status.INTERRUPTED, memory_mb=memory_mb)
        return replace(made, backend=spec.backend, isolation=spec.isolation, notes=(notes.not_begun(),))

    def run(
        self,
        live: JailedWorker,
        request: CellRequest,
        events: CellEvents,
        stop: Stop,
        again: int | None = None,
        *,
        settles: bool = False,
    ) -> ExecResult:
        """Run a cell, or ``again`` that of a node, and keep it or roll it back; ``ListenerFailed`` is the caller's."""
        memory_mb = self.spec.memory_of(request, self.memory_mb)
        live.limit_memory(memory_mb * MIB)
        if memory_mb > self.memory_mb:
            # What a cell makes with more memory is there for the next ones, which must be able to hold it.
            self.memory_mb = memory_mb
            self._pending_notes.append(notes.more_memory(memory_mb))
        try:
            with contextlib.suppress(GateLost):  # the cell finds out, and says so
                self._pending_notes += self.files.bring(live)
            cell = Cell(live, request, events, stop, self.spec.grace_s, live.tree.next if again is None else again)
            end, memory_mb = self._watch(cell, memory_mb)
            result, kept = self._finish(live, cell, end, memory_mb, again)
            if kept and not settles:
                # Last: the gate begins at once, and would take the processor from what makes the result.
                with contextlib.suppress(GateLost):  # the next turn notices and says so; this cell has its result
                    live.keep_state()
            return result
        finally:
            if self.live is live and live.jail.alive:
                live.limit_memory(self.memory_mb * MIB)

    def _watch(self, cell: Cell, memory_mb: int) -> tuple[CellEnd, int]:
        """Run a cell to its end; returns the memory limit that it has at last. A person may give it more meanwhile."""
        lift = cell.events.lift or LimitLift()
        lift.timeout_s, lift.memory_mb = cell.request.timeout, memory_mb
        lift.most_mb = max(self.spec.cell_memory_mb, memory_mb)
        try:
            end = cell.watch()
        finally:
            lift.most_mb = 0
        if lift.timeout_s != cell.request.timeout:
            cell.request = replace(cell.request, timeout=lift.timeout_s)
        if lift.memory_mb > memory_mb:
            memory_mb = self.memory_mb = lift.memory_mb
            self._pending_notes.append(notes.more_memory(memory_mb))
        return end, memory_mb

    def _finish(
        self, live: JailedWorker, cell: Cell, end: CellEnd, memory_mb: int, again: int | None
    ) -> tuple[ExecResult, bool]:
        """Keep the state after a cell or roll it back. Returns the result, and whether the state was kept."""
        told, self._pending_notes = self._pending_notes, []
        if end.done is not None:
            if end.done.accelerator and not live.on_gpu:
                told.append(notes.state_on_gpu())
            live.on_gpu = end.done.accelerator
        # A cell that ran out of memory and lived on is taken back all the same, if the state before it is there. Where
        # the kernel counts memory it kills such a cell, where it limits what can be asked for the cell gets an error:
        # the promise is the same.
        nearest = live.tree.nearest()
        too_large = end.ran_out_of_memory and nearest is not None and nearest.id == live.tree.present
        back: RolledBack | None = None
        kept = end.how is Ending.DONE and not too_large
        if kept and again is None:
            live.commit(cell.request, ended_well=end.ended_well)
        elif kept and again is not None:
            live.recommit(again)
        else:
            heap = end.gave_up_its_heap(self.spec.language, memory_mb)
            back, more = self._roll_back(live, end, for_memory=end.how is Ending.DONE or heap or end.oom_kills > 0)
            told += more
            if happened := [call.name for call in end.calls if call.happened]:
                told.append(notes.calls_happened(happened))
        cell.settle()
        changes, more = self._changes(cell, kept, back)
        if kept:
            live.tree.here.changes = replace(live.tree.here.changes, files=changes)
        told += [*more, *live.take_losses()]
        violations = live.proxy.take_violations() if live.proxy is not None else ()
        told += live.proxy.take_failures() if live.proxy is not None else ()
        if back is None and not kept:
            self.again()
        if cell.failure is not None:
            raise cell.failure
        self.just_rolled_back = back is not None
        request = cell.request
        result = cell_result(request, self.spec, end, cell.stdout, cell.stderr, cell.displays, memory_mb)
        told += result.notes
        signs = NetworkSigns(result.stderr, str(request.code), end.done.tried if end.done is not None else ())
        told += self.spec.network_notes(signs, told, None if self.rights is None else self.rights.policy)
        result = replace(
            result,
            notes=tuple(told),
            violations=violations,
            changes=changes,
            rolled_back=back is not None,
            here=self.files.here(live),
        )
        return result, kept

    def _changes(self, cell: Cell, kept: bool, back: RolledBack | None) -> tuple[tuple[FsChange, ...], list[Note]]:
        """What the cell left in the work folder; nothing when that went back with the state."""
        try:
            if kept or (back is not None and back.files_problem):
                return self.files.after(cell.live, lambda: cell.displays.work.is_used_up)
            if back is not None:
                self.files.rolled_back(cell.live)
        except OSError as error:
            # The cell has run: whatever is wrong with the host, its result is not lost.
            return (), [notes.changes_unknown(error)]
        return (), []

    def quietly(self, live: JailedWorker, code: str) -> None:
        """Run a line of ours as part of the present state: it is no cell, and undo does not count it."""
        live.prepare()
        with contextlib.closing(Stop()) as stop:
            request = self.spec.request(code, QUIET_S)
            cell = Cell(live, request, CellEvents(), stop, self.spec.grace_s, live.tree.present)
            end = cell.watch()
            if end.how is not Ending.DONE:
                self._roll_back(live, end, for_memory=False)
                raise SessionError("the session did not take the change; it is as it was before")
            live.recommit(live.tree.present)
            cell.settle()
            live.prepare()

    # Going back, and bringing back.

    def go_to(self, live: JailedWorker, node: int, asked: str) -> RolledBack:
        """Make a living state of the tree the present one; raises ``CheckpointGone`` when it lives no more.

        ``asked`` is what the user asked for, for messages. The whole state is lost only when the jail is.
        """
        try:
            # Check that the checkpoint lives before the worker is ended: a program of the session may have killed it.
            live.look_for_lost()
            target = live.tree.records[node]
            if not target.pid:
                raise CheckpointGone(f"{asked}: that state is gone; nothing was changed, and the session is as it was")
            back = live.go_back(target)
            live.drop_output()
            if back is None:
                back = self._recover(live)
                raise CheckpointGone(f"{asked}: that state is gone; {self._went_on(back)}")
        except GateLost:
            self.again()
            raise SessionError(f"{asked} failed: {_GONE} and its state is lost; it was started anew") from None
        with contextlib.suppress(GateLost):  # the next turn notices
            self.files.undone(live)
        self.just_rolled_back = False
        if self.rights is not None:
            self.rights.travelled = True
        return back

    def moved(self, back: RolledBack, *told: Note) -> ExecResult:
        """Return the result of a move in the tree: sentences about it, and what did not come along."""
        spec = self.spec
        return ExecResult(
            language=str(spec.language),
            backend=spec.backend,
            isolation=spec.isolation,
            memory_limit_mb=spec.memory_mb,
            rolled_back=True,
            notes=(*told, *back.losses()),
        )

    def revive(self, live: JailedWorker) -> None:
        """Replace a worker that did not answer a question by its newest checkpoint; the next turn tells of losses."""
        try:
            self._bring_back(live, "it did not answer a question about code")
        except SessionError as error:
            self._unreported = error

    def _bring_back(self, live: JailedWorker, problem: str) -> JailedWorker:
        before, back = live.tree.here.depth, None
        try:
            if problem:
                live.end_worker()
                back = self._recover(live, strict=True)
                live.drop_output()
                with contextlib.suppress(StoppedEarly):  # what was lost is told first
                    live.prepare()
        except GateLost:
            problem, back = "", None
        except SessionError:
            back = None  # what woke is no checkpoint that behaves: it makes none itself
        if back is not None and back.cell == before:
            self._pending_notes = [notes.worker_replaced(problem)]
            live.prepare()
            return live
        if back is not None:
            raise SessionError(
                f"session {self.spec.name!r} died between cells ({problem}); {self._went_on(back)}; "
                f"the cells after that have to be run again: {before - back.cell}"
            )
        self.again()
        raise SessionError(
            f"session {self.spec.name!r} was ended between cells ({problem or _GONE}) and its state is lost; "
            "it was started anew: run the cells that you need again"
        )

    def keep_limits(self, live: JailedWorker, *, anew: bool = False) -> bool:
        """Bring a session back, or start it ``anew``, whose processes hold too much between cells; whether it did."""
        over = live.exceeded()
        if not over:
            return False
        try:
            self._bring_back(live, "" if anew else f"processes of earlier cells used more {over} than they may")
        except SessionError as error:
            self._unreported = error
        return True

    def _recover(self, live: JailedWorker, *, strict: bool = False, patient: bool = False) -> RolledBack | None:
        """Go back to the nearest state that lives; one before the present one takes back the files of its cells too."""
        present = live.tree.present
        back = live.recover(strict=strict, patient=patient)
        if back is not None and live.tree.present != present:
            try:
                self.files.undone(live)
            except (OSError, SandboxError) as error:
                self._pending_notes.append(notes.changes_unknown(error))
        return back

    def _went_on(self, back: RolledBack | None) -> str:
        if back is None:
            self.again()
            return "no other one was left, so the session was started anew"
        return f"the session went back to the state after {back.cell} cells"

    def _roll_back(self, live: JailedWorker, end: CellEnd, *, for_memory: bool) -> tuple[RolledBack | None, list[Note]]:
        """Let the newest checkpoint take over; where there is none, say that the state is lost."""
        found = None if for_memory else end.reason()
        why = [] if found is None else [found]
        before, lost = live.tree.here.depth, end.problem or _GONE
        line = live.tree.line() if live.on_gpu else []
        if end.how is not Ending.LOST and not self.closed:
            lost = live.unfrozen or "no checkpoint was left"
            try:
                patient = for_memory or not live.memory.has_room()
                live.end_worker()
                back = self._recover(live, strict=end.how is Ending.PROTOCOL, patient=patient)
                if back is not None:
                    steps = before - back.cell
                    lost_cells = [live.tree.records[node] for node in line[:steps]]
                    cells = [(record.number, record.code) for record in lost_cells]
                    gone = [notes.lost_on_gpu(cells)] if cells else []
                    further = notes.rolled_back_further(steps, back.names) if steps else None
                    return back, [*why, further or notes.rolled_back(back.names), *back.losses(), *gone]
            except SessionError as error:
                lost = str(error)
            except GateLost:
                lost = _GONE
        return None, [*why, notes.state_lost(lost)]
