"""The methods of ``Session`` that move in its tree of states and look at it.

Going back never destroys: the line that was left stays as a branch, until it is thinned out for memory. What was
thinned out stays in the history with its code, and ``checkout`` runs its cells again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S
from sandbox_kernel.model import ExecResult, notes
from sandbox_kernel.session.tree import explore, replay
from sandbox_kernel.session.tree.explore import Exploration
from sandbox_kernel.session.tree.node import Node
from sandbox_kernel.session.tree.state_diff import StateDiff, compare
from sandbox_kernel.session.tree.state_record import cell_name
from sandbox_kernel.session.tree.tree_lines import check_name
from sandbox_kernel.session.worker.checkpoints import Checkpoint
from sandbox_kernel.session.worker.memory_budget import private_bytes

if TYPE_CHECKING:
    from sandbox_kernel.session.supervisor import WorkerSupervisor
    from sandbox_kernel.session.worker.worker import JailedWorker


class TimeTravel:
    """The part of ``Session`` that knows its past."""

    _supervisor: WorkerSupervisor

    def _stoppable(self, stop: Stop) -> AbstractContextManager[None]:
        """Let ``interrupt`` raise this stop sign meanwhile."""
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
        with host_trouble(), self._supervisor.turn() as worker:
            worker.look_for_lost()
            worker.look_at_variables()
            return worker.tree.nodes(private_bytes(worker.jail.init_pid))

    def when(self, variable: str) -> tuple[Node, ...]:
        """Return the nodes whose cells added, changed or removed a variable, oldest first.

        Args:
            variable: its name.

        """
        return tuple(node for node in self.history() if variable in node.changed.names())

    def diff(self, a: Node | int | str, b: Node | int | str | None = None) -> StateDiff:
        """Return how two states differ: variables with short values, files with their lines. Changes nothing.

        Args:
            a: the first state: a node, its number or its name.
            b: the second one; None is the present state.

        """
        with host_trouble(), self._supervisor.turn() as worker:
            worker.look_for_lost()
            worker.look_at_variables()
            tree = worker.tree
            before, after = tree.find(a), tree.find(b) if b is not None else tree.present
            looks = tree.seen(before), tree.seen(after)
            return compare((before, after), looks, *worker.compare_files(before, after))

    def explore(self, codes: Sequence[str], timeout: float = DEFAULT_TIMEOUT_S, *, at_once: int = 1) -> Exploration:
        """Run candidates one after another, each from the present state, and return their results side by side.

        Each has its own variables and files. Afterwards the session is where it was; ``keep(i)`` of what is returned
        makes a candidate the present state. The others stay as branches until they are thinned out.

        Args:
            codes: the cells to try.
            timeout: seconds that each may take.
            at_once: how many run at once. Only 1 is exact, so only 1 is taken; ``fork`` gives sessions side by side.

        Raises:
            InvalidRequest: a candidate cannot be run, or more than one was wanted at once; nothing was run.
            SessionError: the present state is not held, so that one cannot come back to it.

        """
        explore.check_at_once(at_once)
        with self._travel() as (worker, stop):
            tried = explore.try_out(self._supervisor, worker, codes, timeout, stop)
        return explore.Exploration(self, *tried)

    def checkpoint(self, name: str, state: Node | int | str | None = None) -> Node:
        """Name a state, so that ``checkout(name)`` finds it and it is given up last.

        Args:
            name: a short text that is not a number. A state that had this name before loses it.
            state: a node of ``history()``, its number, or another name of it; the present state by default.

        Raises:
            InvalidRequest: the name cannot be used.
            SessionError: there is no such state.

        """
        wanted = check_name(name)
        with host_trouble(), self._supervisor.turn() as worker:
            worker.look_for_lost()
            record = worker.tree.name_node(wanted, None if state is None else worker.tree.find(state))
            return worker.tree.node(record, private_bytes(worker.jail.init_pid))

    def undo(self, n: int = 1) -> ExecResult:
        """Go back to the state before the last ``n`` cells. ``redo`` goes forward again.

        Args:
            n: how many cells to undo; cells that were rolled back do not count.

        Returns:
            A result whose notes say what was restored.

        Raises:
            InvalidRequest: ``n`` is not a number of at least 1.
            SessionError: there is no such state, or it is not held; the message lists what can be undone.

        """
        _check_steps("undo", n)
        with host_trouble(), self._supervisor.turn() as worker:
            worker.look_for_lost()
            worker.look_at_variables()
            target = worker.tree.back(n)
            cells = [worker.tree.records[node] for node in worker.tree.line()[:n]]
            back = self._supervisor.go_to(worker, target, f"undo of {n} cells")
            taken = [cell_name(record) for record in cells]
            return self._supervisor.moved(notes.taken_back(back.names, taken), back)

    def acknowledge_rollback(self) -> bool:
        """Return whether the last cell was rolled back, once: an undo would take back the good cell before it."""
        found, self._supervisor.just_rolled_back = self._supervisor.just_rolled_back, False
        return found

    def redo(self, n: int = 1) -> ExecResult:
        """Go forward again ``n`` cells after an undo or a checkout, on the branch that the session was in last.

        Args:
            n: how many cells.

        Returns:
            A result whose notes say where the session is, and which cells had to be run again.

        Raises:
            InvalidRequest: ``n`` is not a number of at least 1.
            SessionError: there is nothing to redo.

        """
        _check_steps("redo", n)
        with self._travel() as (worker, stop):
            return replay.reach(self._supervisor, worker, worker.tree.forward(n), stop)

    def checkout(self, where: Node | int | str) -> ExecResult:
        """Go to any state of the tree. The state that is left stays as a branch.

        A state that is no longer held is made again: its cells run again after the nearest state before it that is
        held, and the notes of the result say so. If one of them ends in another way than it did, the session stays
        where it was.

        Args:
            where: a node of ``history()``, its number, or a name that ``checkpoint`` gave.

        Returns:
            A result whose notes say where the session is, and which cells had to be run again.

        Raises:
            SessionError: there is no such state, or it cannot be made again.

        """
        with self._travel() as (worker, stop):
            return replay.reach(self._supervisor, worker, worker.tree.find(where), stop)

    def _give_up(self, base: int, nodes: Sequence[int]) -> None:
        """Go to a node and give up the states of others; the history keeps their code."""
        with self._travel() as (worker, stop):
            if worker.tree.present != base:
                replay.reach(self._supervisor, worker, base, stop)
            worker.prepare()
            worker.give_up(nodes)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints that ``undo`` can go back to, nearest first, with the memory that each alone holds."""
        with host_trouble(), self._supervisor.turn() as worker:
            worker.look_for_lost()
            held = private_bytes(worker.jail.init_pid)
            return tuple(replace(item, memory_bytes=held.get(item.pid)) for item in worker.tree.reachable())


def _check_steps(what: str, n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidRequest(f"{what} takes a number of cells of at least 1, got {n!r}")
