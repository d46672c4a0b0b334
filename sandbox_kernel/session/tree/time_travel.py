"""The methods of ``Session`` that move in its tree of states and look at it.

Going back never destroys: the line that was left stays as a branch, until it is evicted for memory. What was evicted
stays in the history with its code, and ``checkout`` runs its cells again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.errors import CheckpointGone, InvalidRequest, SandboxError, SessionError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, check_whole
from sandbox_kernel.model import ExecResult, FsChange, Language, notes
from sandbox_kernel.session.cell.request import CellEvents
from sandbox_kernel.session.supervisor import WorkerSupervisor
from sandbox_kernel.session.tree.node import Checkpoint, Node, StateDiff
from sandbox_kernel.session.tree.state_tree import StateRecord, check_name
from sandbox_kernel.session.tree.variables import Seen, can_run_again, compare
from sandbox_kernel.session.worker.jailed_worker import JailedWorker
from sandbox_kernel.session.worker.memory_budget import private_bytes
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import encodable

#: The most candidates of one exploration.
MAX_CANDIDATES = 1000


class TimeTravel:
    """The part of ``Session`` that knows its past."""

    _supervisor: WorkerSupervisor

    def _stoppable(self, stop: Stop) -> AbstractContextManager[None]:
        raise NotImplementedError

    @contextlib.contextmanager
    def _travel(self) -> Iterator[tuple[JailedWorker, Stop]]:
        """Have the turn, with a list of living states that is up to date; ``interrupt`` ends cells that run again."""
        with host_trouble():
            stop = Stop()
        with contextlib.closing(stop), host_trouble(), self._supervisor.turn() as worker, self._stoppable(stop):
            worker.look_for_lost()
            worker.look_at_variables()
            yield worker, stop

    def history(self) -> tuple[Node, ...]:
        """Return the tree of states, oldest first: each cell that was kept, and the beginning."""
        with self._travel() as (worker, _):
            held = private_bytes(worker.jail.init_pid)
            return tuple(worker.tree.node(record, held) for record in worker.tree.records.values())

    def variables(self, state: Node | int | str | None = None) -> dict[str, Seen] | None:
        """Return what the variables of a state are (the present one); None when they were not looked at."""
        with self._travel() as (worker, _):
            return worker.tree.variables(worker.tree.present if state is None else worker.tree.find(state))

    def when(self, variable: str) -> tuple[Node, ...]:
        """Return the nodes whose cells added, changed or removed a variable, oldest first."""
        return tuple(node for node in self.history() if variable in node.changed.names())

    def diff(self, a: Node | int | str, b: Node | int | str | None = None) -> StateDiff:
        """Return how two states (each a node, number or name; None: the present one) differ: variables and files."""
        with self._travel() as (worker, _):
            tree = worker.tree
            before, after = tree.find(a), tree.find(b) if b is not None else tree.present
            found, problem = worker.copies.compare(before, after)
            # Their texts are the session's own.
            files = tuple(replace(one, path=encodable(one.path), patch=encodable(one.patch)) for one in found)
            return compare((before, after), (tree.variables(before), tree.variables(after)), files, problem)

    def explore(self, codes: Sequence[str], timeout: float = DEFAULT_TIMEOUT_S) -> Exploration:
        """Run candidates one after another, each from the present state, and return their results side by side.

        Each has its own variables and files, and may take ``timeout`` seconds. Afterwards the session is where it was;
        ``keep(i)`` of what is returned makes a candidate the present state. The others stay as branches until they are
        evicted. Raises ``InvalidRequest``, before anything is run, for a candidate that cannot be, and ``SessionError``
        when the present state is not held, so that one cannot come back to it.
        """
        # One after another: docs/decisions/sessions.md says why there is no exact way to run them at once.
        with self._travel() as (worker, stop):
            return Exploration(self, *_try_out(self._supervisor, worker, codes, timeout, stop))

    def checkpoint(self, name: str, state: Node | int | str | None = None) -> Node:
        """Name a state, so that ``checkout(name)`` finds it and it is given up last.

        The ``name`` is a short text that is not a number; a state that had it before loses it. ``state`` is a node of
        ``history()``, its number, or another name of it; the present state by default.
        """
        wanted = check_name(name)
        with host_trouble(), self._supervisor.turn() as worker:
            worker.look_for_lost()
            tree = worker.tree
            record = tree.name_node(wanted, tree.present if state is None else tree.find(state))
            return tree.node(record, private_bytes(worker.jail.init_pid))

    def undo(self, n: int = 1) -> ExecResult:
        """Go back to the state before the last ``n`` cells; the result's notes say what was restored.

        Cells that were rolled back do not count. Raises ``SessionError``, which lists what can be undone, where there
        is no such state or it is not held.
        """
        check_whole("the number of cells to undo", n, 1)
        with self._travel() as (worker, _):
            target = worker.tree.back(n)
            taken = [worker.tree.records[node] for node in worker.tree.line()[:n]]
            back = self._supervisor.go_to(worker, target, f"undo of {n} cells")
            told = notes.taken_back(back.names, [(record.number, record.code) for record in taken])
            return self._supervisor.moved(back, told)

    def acknowledge_rollback(self) -> bool:
        """Return whether the last cell was rolled back, once: an undo would take back the good cell before it."""
        found, self._supervisor.just_rolled_back = self._supervisor.just_rolled_back, False
        return found

    def redo(self, n: int = 1) -> ExecResult:
        """Go forward again ``n`` cells after an undo or a checkout, on the branch that the session was in last.

        The notes of the result say where the session is, and which cells had to be run again. Raises ``SessionError``
        when there is nothing to redo.
        """
        check_whole("the number of cells to redo", n, 1)
        with self._travel() as (worker, stop):
            return _reach(self._supervisor, worker, worker.tree.forward(n), stop)

    def checkout(self, where: Node | int | str) -> ExecResult:
        """Go to any state of the tree: a node of ``history()``, its number, or a name that ``checkpoint`` gave.

        The state that is left stays as a branch. A state that is no longer held is made again: its cells run again
        after the nearest state before it that is held, and the notes of the result say so. If one of them ends in
        another way than it did, the session stays where it was. Raises ``SessionError`` for a state that is not there
        or cannot be made again.
        """
        with self._travel() as (worker, stop):
            return _reach(self._supervisor, worker, worker.tree.find(where), stop)

    def _give_up(self, base: int, nodes: Sequence[int]) -> None:
        """Go to a node and give up the states of others; the history keeps their code."""
        with self._travel() as (worker, stop):
            if worker.tree.present != base:
                _reach(self._supervisor, worker, base, stop)
            worker.prepare()
            worker.give_up(nodes)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints that ``undo`` can go back to, nearest first, with the memory that each alone holds."""
        with host_trouble(), self._supervisor.turn() as worker:
            worker.look_for_lost()
            held = private_bytes(worker.jail.init_pid)
            return tuple(
                Checkpoint(node=each.id, cell=each.depth, pid=each.pid, time=each.time, memory_bytes=held.get(each.pid))
                for each in worker.tree.reachable()
            )


@dataclass(frozen=True, eq=False)
class Exploration:
    """The results of candidates, in their order. ``keep`` makes one the present state; nothing is kept by itself.

    Attributes:
        results: the result of each candidate.
        nodes: the number of each candidate's node; None for one that had to be ended and left no state.
        base: the number of the node that all began with, where the session is now.
    """

    _session: TimeTravel
    base: int
    results: tuple[ExecResult, ...]
    nodes: tuple[int | None, ...]

    def __len__(self) -> int:
        return len(self.results)

    def keep(self, index: int) -> ExecResult:
        """Make a candidate the present state; the others stay as branches until they are evicted."""
        node = self.nodes[check_whole("the number of the candidate", index, 0, len(self.nodes) - 1)]
        if node is None:
            raise InvalidRequest(
                f"candidate {index} left no state ({self.results[index].status}), so it cannot be kept"
            )
        return self._session.checkout(node)

    def discard(self) -> None:
        """Go back to where it began and give up the states of all candidates; the history keeps their code."""
        self._session._give_up(self.base, [node for node in self.nodes if node is not None])


def _try_out(
    supervisor: WorkerSupervisor, worker: JailedWorker, codes: Sequence[str], timeout: float, stop: Stop
) -> tuple[int, tuple[ExecResult, ...], tuple[int | None, ...]]:
    """Run each candidate from the present state and come back to it. Returns that node, the results and the nodes."""
    if isinstance(codes, str) or not codes or len(codes) > MAX_CANDIDATES:
        raise InvalidRequest(f"explore takes a list of 1 to {MAX_CANDIDATES} cells, got {codes!r:.80}")
    cells = [supervisor.spec.request(code, timeout) for code in codes]
    base = worker.tree.present
    if not worker.tree.records[base].pid:
        raise SessionError(
            f"explore needs a copy of the present state to come back to, and there is none: {worker.unfrozen}"
        )
    results: list[ExecResult] = []
    nodes: list[int | None] = []
    for candidate, cell in enumerate(cells):
        supervisor.settle(worker)
        results.append(supervisor.run(worker, cell, CellEvents(), stop))
        if supervisor.live is not worker:
            raise SessionError(f"candidate {candidate} ended the whole session: {results[-1].notes}")
        moved = worker.tree.present
        nodes.append(None if moved == base else moved)
        if moved == base:
            continue
        supervisor.settle(worker)
        worker.look_at_variables()
        try:
            supervisor.go_to(worker, base, f"explore, after candidate {candidate}")
        except CheckpointGone as error:
            if supervisor.live is not worker or worker.tree.present != moved:
                raise
            raise CheckpointGone(
                f"candidate {candidate} ended the copy of the state that all candidates begin with, so no other one "
                f"was run; the session is in the state after that candidate (node {moved})"
            ) from error
    return base, tuple(results), tuple(nodes)


def _reach(supervisor: WorkerSupervisor, worker: JailedWorker, node: int, stop: Stop) -> ExecResult:
    """Make a node the present one; cells run again where it is not held. ``SessionError``: all is as it was."""
    tree = worker.tree
    asked = f"checkout of {tree.records[node]}"
    if node == tree.present and not tree.records[node].pid:
        raise SessionError(f"{asked}: the session is there already, and no copy of that state is held")
    again = tree.replayed(node)
    if not again:
        back = supervisor.go_to(worker, node, asked)
        return supervisor.moved(back, notes.moved(back.names, str(tree.records[node])))
    left = tree.present
    start = tree.records[again[0]].parent
    assert start is not None, "the beginning has no cell that could be run again"
    back = supervisor.go_to(worker, start, asked)
    written: dict[str, int] = {}
    for each in again:
        problem, changes = _run_again(supervisor, worker, tree.records[each], stop)
        for change in changes:
            written.update({path: each for path in (change.path, change.renamed_from) if path is not None})
        if problem:
            stays = _return(supervisor, worker, left)
            if supervisor.live is worker:
                # The failed run was kept as the state of its node, which had another one.
                worker.give_up([each])
            raise SessionError(f"{asked}: cell {each} was run again and {problem}; {stays}")
    where = str(tree.records[node])
    supervisor.settle(worker)
    if written:
        # Not earlier: a later cell may need what an earlier one wrote, although others have removed it since.
        supervisor.files.undone(worker, written)
    worker.look_at_variables()
    seen = tree.variables(node)
    moved = notes.moved(worker.names if seen is None else len(seen), where)
    python = supervisor.spec.language is Language.PYTHON
    outside = sum(not can_run_again(tree.records[each].code) for each in again) if python else 0
    return supervisor.moved(back, notes.run_again(outside, len(again), where), moved)


def _run_again(
    supervisor: WorkerSupervisor, worker: JailedWorker, record: StateRecord, stop: Stop
) -> tuple[str, tuple[FsChange, ...]]:
    """Run the cell of a node in the present state. Returns an empty text or what was different, and its changes."""
    if record.cell is None:
        return "its code is not known", ()
    supervisor.settle(worker)
    result = supervisor.run(worker, record.cell, CellEvents(), stop, record.id)
    if supervisor.live is not worker:
        return "the session was lost", ()
    if result.rolled_back:
        return f"had to be ended ({result.status})", ()
    if result.ok is not record.ended_well:
        return f"ended with {result.status}, unlike the first time", ()
    return "", result.changes


def _return(supervisor: WorkerSupervisor, worker: JailedWorker, left: int) -> str:
    """Go back to where the session was; where that fails, say where it is."""
    if supervisor.live is not worker:
        return "the session was started anew"
    with contextlib.suppress(SandboxError):
        supervisor.settle(worker)
        supervisor.go_to(worker, left, "the way back")
        return "the session is as it was"
    return f"the session is at {worker.tree.here}"
