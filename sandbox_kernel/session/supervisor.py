"""Keeps one worker ready for a session: starts it, runs cells in it, and replaces it when it ends.

``WorkerSupervisor`` belongs to one ``Session`` and lets one thread at a time use the worker. After a cell that had to
be ended it rolls the session back to a checkpoint. Without a checkpoint it starts a new worker, and the result says
that the state is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from sandbox_kernel.errors import CheckpointGone, SandboxError, SessionError
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import ExecResult, FsChange, Note, notes
from sandbox_kernel.session.between_cells import BetweenCells
from sandbox_kernel.session.cell.cell_check import make_order
from sandbox_kernel.session.cell.cell_order import CellEnd, CellOrder, CellRequest
from sandbox_kernel.session.cell.cell_result import (
    CellFacts,
    Frame,
    comeback_notes,
    ended_by_its_heap,
    loss_notes,
    lost_notes,
    make_result,
    ran_out_of_memory,
    reason,
)
from sandbox_kernel.session.cell.run_cell import Cell
from sandbox_kernel.session.present_worker import PresentWorker
from sandbox_kernel.session.tree.node import CellText
from sandbox_kernel.session.tree.state_record import cell_name
from sandbox_kernel.session.worker.gate_client import GateLost
from sandbox_kernel.session.worker.worker import JailedWorker, RolledBack

_GONE = "its sandbox was ended"
#: How long a line of ours may take.
QUIET_S = 10.0
#: How long ``make_ready`` waits for the turn, which a listener between cells may have for a moment.
_READY_S = 1.0


class WorkerSupervisor(PresentWorker):
    """Runs cells in the current worker, and replaces a worker that dies."""

    @cached_property
    def _between_cells(self) -> BetweenCells:
        return BetweenCells(self)

    @contextlib.contextmanager
    def turn(self, patience_s: float | None = None, *, settles: bool = False) -> Iterator[JailedWorker]:
        """Wait for the turn, and have a worker that waits. ``patience_s``: see ``lock``.

        With ``settles``, the caller calls ``make_ready`` afterwards, and what has time until then is left to it.
        """
        self.refuse_if_closed()
        with self.lock(patience_s):
            self._between_cells.busy()
            try:
                self.refuse_if_closed()
                if self.live is None:
                    self.live = self._begin()
                live = self._ready(self.live)
                if self.rights is not None:
                    self.rights.renew(self, live)
                yield live
            finally:
                if not settles:
                    self._listen()

    def _listen(self) -> None:
        if self.live is not None and self.live.late.listens:
            self._between_cells.idle()

    #: A worker that could not be made ready between cells, and why; the next turn deals with it.
    _unready: tuple[JailedWorker, SessionError | GateLost] | None = None

    def make_ready(self) -> None:
        """Keep the state after the last cell, now that nobody waits; the next turn raises what went wrong.

        Does nothing when another thread keeps the turn: that one makes the worker ready itself.
        """
        if not self._lock.acquire(timeout=_READY_S):
            return
        try:
            live = self.live
            if live is not None and not self.closed and self._unready is None:
                try:
                    live.prepare()
                except (SessionError, GateLost) as error:
                    self._unready = live, error
                self._listen()
        finally:
            self._lock.release()

    def run(
        self, live: JailedWorker, order: CellOrder, stop: Stop, again: int | None = None, *, settles: bool = False
    ) -> ExecResult:
        """Run a cell, keep it or roll it back, and say what happened; ``ListenerFailed`` is the caller's own.

        ``again`` is the node whose cell is run again; None for a new cell. ``settles``: see ``turn``.
        """
        live.limit_memory(order.memory_mb * MIB)
        if order.memory_mb > self.memory_mb:
            # What a cell makes with more memory is there for the next ones, which must be able to hold it.
            self.memory_mb = order.memory_mb
            self._pending_notes.append(notes.more_memory(order.memory_mb))
        try:
            return self._run(live, order, stop, replace(self.spec.frame, memory_mb=order.memory_mb), again, settles)
        finally:
            if self.live is live and live.jail.alive:
                live.limit_memory(self.memory_mb * MIB)

    def settle(self, live: JailedWorker) -> None:
        """Wait until the worker is ready for a cell; raises ``SessionError`` when it is not any more."""
        if self._ready(live) is not live:
            raise SessionError(_GONE)

    def _run(
        self, live: JailedWorker, order: CellOrder, stop: Stop, frame: Frame, again: int | None, later: bool
    ) -> ExecResult:
        with contextlib.suppress(GateLost):  # the cell finds out, and says so
            self._pending_notes += self.files.bring(live)
        meter = live.jail.meter
        meter.reset_peak()
        # Processes of earlier cells may hold every place already; that is not this cell's doing.
        meter.last_look()
        before, kills = meter.read(), meter.oom_kills()
        cell = Cell(live, order, stop)
        end = cell.watch()
        # Count processes before the checkpoint adds one: a cell shorter than a tick was not counted yet.
        meter.last_look()
        told, self._pending_notes = self._pending_notes, []
        back: RolledBack | None = None
        kept = end.how is Ending.DONE and not self._must_go_back(live, end)
        if kept:
            with contextlib.suppress(GateLost):  # the next turn notices and says so; this cell has its result
                if again is None:
                    live.commit(cell_text(order, end))
                else:
                    live.recommit(again)
        else:
            heap = ended_by_its_heap(end, frame, meter.read().peak_bytes)
            back, more = self._roll_back(
                live, end, for_memory=end.how is Ending.DONE or heap or meter.oom_kills() > kills
            )
            told += more
            if happened := [call.name for call in end.calls if call.happened]:
                told.append(notes.calls_happened(happened))
        cell.settle()
        after = meter.read()
        changes, more = self._changes(live, end, back)
        if kept:
            live.tree.changed_files(changes)
        told += [*more, *lost_notes(live.take_lost(), live.take_lost_names()), *live.take_failures()]
        facts = CellFacts(
            stdout=cell.output.stdout,
            stderr=cell.output.stderr,
            displays=cell.displays.all(),
            dropped_displays=cell.displays.dropped,
            late_displays=cell.displays.late,
            violations=live.take_violations(),
            oom_kills=meter.oom_kills() - kills,
            forks_refused=after.forks_refused and not before.forks_refused,
            cpu_seconds=_difference(after.cpu_seconds, before.cpu_seconds),
            peak_bytes=after.peak_bytes,
            gpu_peak_bytes=cell.limits.gpu_peak_bytes(),
        )
        if back is None and not kept:
            self.again()
        if cell.failure is not None:
            raise cell.failure
        self.just_rolled_back = back is not None
        if self.rights is not None:
            frame = replace(frame, network_notes=self.rights.network_notes)
        result = make_result(
            end,
            facts,
            frame,
            timeout=order.timeout_s,
            rolled_back=back is not None,
            told=told,
            code_text=order.request.code,
        )
        if kept and not later:
            # Last: the worker and the gate begin at once, and would take the processor from what makes the result.
            with contextlib.suppress(GateLost):  # as above
                live.keep_state()
        return replace(result, changes=changes, here=self.files.here(live))

    def _must_go_back(self, live: JailedWorker, end: CellEnd) -> bool:
        """Whether a cell that lived on is taken back all the same: it ran out of memory, and the state before is there.

        Where the kernel counts memory it kills such a cell, where it limits what can be asked for the cell gets an
        error: the promise is the same.
        """
        nearest = live.tree.nearest()
        return ran_out_of_memory(end) and nearest is not None and nearest.node == live.tree.present

    def _changes(
        self, live: JailedWorker, end: CellEnd, back: RolledBack | None
    ) -> tuple[tuple[FsChange, ...], list[Note]]:
        """What the cell left in the work folder; nothing when that went back with the state."""
        try:
            if (end.how is Ending.DONE and back is None) or (back is not None and back.files):
                return self.files.after(live)
            if back is not None:
                self.files.rolled_back(live)
        except OSError as error:
            # The cell has run: whatever is wrong with the host, its result is not lost.
            return (), [notes.changes_unknown(error)]
        return (), []

    def go_to(self, live: JailedWorker, node: int, asked: str) -> RolledBack:
        """Make a living state of the tree the present one; raises ``CheckpointGone`` when it lives no more.

        ``asked`` is what the user asked for, for messages. The whole state is lost only when the jail is.
        """
        try:
            # Check that the checkpoint lives before the worker is ended: a program of the session may have killed it.
            live.look_for_lost()
            target = live.tree.records[node].checkpoint
            if target is None:
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

    def moved(self, note: Note, back: RolledBack) -> ExecResult:
        """Return the result of a move in the tree: a sentence about it, and what did not come along."""
        frame = self.spec.frame
        return ExecResult(
            language=frame.language,
            backend=frame.backend,
            isolation=frame.isolation,
            memory_limit_mb=frame.memory_mb,
            rolled_back=True,
            notes=(note, *loss_notes(back)),
        )

    def raise_memory(self, live: JailedWorker, memory_mb: int) -> None:
        """Let the session use more memory from now on; less is left as it is."""
        if memory_mb > self.memory_mb:
            live.limit_memory(memory_mb * MIB)
            self.memory_mb = memory_mb

    def quietly(self, live: JailedWorker, code: str) -> None:
        """Run a line of ours as part of the present state: it is no cell, and undo does not count it."""
        live.prepare()
        with contextlib.closing(Stop()) as stop:
            order = make_order(self.spec, self.memory_mb, CellRequest(code=code, timeout=QUIET_S))
            cell = Cell(live, order, stop)
            end = cell.watch()
            if end.how is not Ending.DONE:
                self._roll_back(live, end, for_memory=False)
                raise SessionError("the session did not take the change; it is as it was before")
            live.recommit(live.tree.present)
            cell.settle()
            live.prepare()

    def revive(self, live: JailedWorker) -> None:
        """A worker that did not answer a question is replaced by its newest checkpoint, which has the same state."""
        try:
            live.end_worker()
            if self._recover(live) is None:
                self.again()
        except (GateLost, SessionError):
            self.again()

    def _ready(self, live: JailedWorker) -> JailedWorker:
        """A worker that waits for a cell. One that died between cells is brought back."""
        try:
            unready, self._unready = self._unready, None
            if unready is not None and unready[0] is live:
                raise unready[1]
            live.prepare()
            if live.gate.gone is None:
                return live
            problem = f"ended with {_describe(live.gate.gone)}"
        except SessionError as error:
            problem = str(error)
        except GateLost:
            problem = ""
        self.refuse_if_closed()
        return self._bring_back(live, problem)

    def _bring_back(self, live: JailedWorker, problem: str) -> JailedWorker:
        before = live.cell
        try:
            if problem:
                live.end_worker()
                back = self._recover(live, strict=True)
                live.drop_output()
                live.prepare()
                if back is not None and back.cell == before:
                    self._pending_notes = [notes.worker_replaced(problem)]
                    return live
                if back is not None:
                    raise SessionError(
                        f"session {self.spec.name!r} died between cells ({problem}); {self._went_on(back)}; "
                        f"the cells after that have to be run again: {before - back.cell}"
                    )
        except GateLost:
            problem = ""
        self.again()
        raise SessionError(
            f"session {self.spec.name!r} was ended between cells ({problem or _GONE}) and its state is lost; "
            "it was started anew: run the cells that you need again"
        )

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
        found = None if for_memory else reason(end)
        why = [] if found is None else [found]
        before, lost, on_card = live.cell, end.problem or _GONE, live.on_card
        line = live.tree.line() if live.on_gpu else []
        if end.how is not Ending.LOST and not self.closed:
            lost = live.unfrozen or "no checkpoint was left"
            try:
                patient = for_memory or not live.has_room()
                live.end_worker()
                back = self._recover(live, strict=end.how is Ending.PROTOCOL, patient=patient)
                if back is not None:
                    cells = [cell_name(live.tree.records[node]) for node in line[: before - back.cell]]
                    gone = [notes.lost_on_gpu(cells, on_card)] if cells else []
                    return back, [*why, *comeback_notes(back, before - back.cell), *gone]
            except SessionError as error:
                lost = str(error)
            except GateLost:
                lost = _GONE
        return None, [*why, notes.state_lost(lost)]


def cell_text(order: CellOrder, end: CellEnd) -> CellText:
    """Return what is needed to run a cell again."""
    asked = order.request
    return CellText(
        code=asked.code,
        timeout_s=order.timeout_s,
        number=asked.number,
        memory_mb=asked.memory_mb,
        cpu_seconds=asked.cpu_seconds,
        output_bytes=asked.output_bytes,
        status=end.done.status if end.done is not None else "ok",
    )


def _describe(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None else max(0.0, after - (before or 0.0))
