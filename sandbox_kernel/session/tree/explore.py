"""What if: candidates run one after another from one state, each with its own variables and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox_kernel.errors import CheckpointGone, InvalidRequest, SessionError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.model import ExecResult
from sandbox_kernel.session.cell.cell_check import make_order
from sandbox_kernel.session.cell.cell_order import CellRequest

if TYPE_CHECKING:
    from sandbox_kernel.session.supervisor import WorkerSupervisor
    from sandbox_kernel.session.tree.time_travel import TimeTravel
    from sandbox_kernel.session.worker.worker import JailedWorker

#: The most candidates of one exploration.
MAX_CANDIDATES = 1000


class Exploration:
    """The results of candidates, in their order. ``keep`` makes one the present state; nothing is kept by itself.

    Attributes:
        results: the result of each candidate.
        nodes: the number of each candidate's node; None for one that had to be ended and left no state.
        base: the number of the node that all began with, where the session is now.

    """

    def __init__(
        self, session: TimeTravel, base: int, results: tuple[ExecResult, ...], nodes: tuple[int | None, ...]
    ) -> None:
        self._session = session
        self.base = base
        self.results = results
        self.nodes = nodes

    def __len__(self) -> int:
        return len(self.results)

    def keep(self, index: int) -> ExecResult:
        """Make a candidate the present state; the others stay as branches until they are thinned out.

        Args:
            index: which one, counted from 0.

        Raises:
            InvalidRequest: there is no such candidate, or it left no state.

        """
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(self.nodes):
            raise InvalidRequest(f"there are {len(self.nodes)} candidates, counted from 0; got {index!r}")
        node = self.nodes[index]
        if node is None:
            raise InvalidRequest(
                f"candidate {index} left no state ({self.results[index].status}), so it cannot be kept"
            )
        return self._session.checkout(node)

    def discard(self) -> None:
        """Go back to where the exploration began, and give up the states of all candidates.

        They stay in the history with their code.
        """
        self._session._give_up(self.base, [node for node in self.nodes if node is not None])


def check_at_once(at_once: int) -> None:
    """Refuse candidates at once, for which there is no exact way (docs/decisions.md, time travel)."""
    if isinstance(at_once, bool) or not isinstance(at_once, int) or at_once != 1:
        raise InvalidRequest(
            f"explore runs candidates one after another (at_once=1), got at_once={at_once!r}. Candidates that run at "
            "once would write to one work folder, one output and the same places of open files; none would be exact. "
            "session.fork() gives sessions side by side, behind walls of their own; restored of each names what was "
            "left behind, and what libraries keep to themselves (seeds, settings) begins anew"
        )


def _go_back(supervisor: WorkerSupervisor, worker: JailedWorker, base: int, candidate: int) -> None:
    """Go back to where the exploration began. Raises ``SessionError``, which says where the session is instead."""
    left = worker.tree.present
    try:
        supervisor.go_to(worker, base, f"explore, after candidate {candidate}")
    except CheckpointGone as error:
        if supervisor.live is not worker or worker.tree.present != left:
            raise
        raise CheckpointGone(
            f"candidate {candidate} ended the copy of the state that all candidates begin with, so no other one was "
            f"run; the session is in the state after that candidate (node {left})"
        ) from error


def try_out(
    supervisor: WorkerSupervisor, worker: JailedWorker, codes: Sequence[str], timeout: float, stop: Stop
) -> tuple[int, tuple[ExecResult, ...], tuple[int | None, ...]]:
    """Run each candidate from the present state and come back to it. Returns that node, the results and the nodes."""
    if isinstance(codes, str) or not codes or len(codes) > MAX_CANDIDATES:
        raise InvalidRequest(f"explore takes a list of 1 to {MAX_CANDIDATES} cells, got {codes!r:.80}")
    spec, memory_mb = supervisor.spec, supervisor.memory_mb
    orders = [make_order(spec, memory_mb, CellRequest(code=code, timeout=timeout)) for code in codes]
    base = worker.tree.present
    if worker.tree.records[base].checkpoint is None:
        raise SessionError(
            f"explore needs a copy of the present state to come back to, and there is none: {worker.unfrozen}"
        )
    results: list[ExecResult] = []
    nodes: list[int | None] = []
    for order in orders:
        supervisor.settle(worker)
        results.append(supervisor.run(worker, order, stop))
        if supervisor.live is not worker:
            raise SessionError(f"candidate {len(results) - 1} ended the whole session: {results[-1].notes}")
        moved = worker.tree.present != base
        nodes.append(worker.tree.present if moved else None)
        if moved:
            supervisor.settle(worker)
            worker.look_at_variables()
            _go_back(supervisor, worker, base, len(results) - 1)
    return base, tuple(results), tuple(nodes)
