"""Goes to a node of the tree; makes its state again, where it is no longer held, by running its cells again."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.errors import SandboxError, SessionError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.model import ExecResult, FsChange, Language, notes
from sandbox_kernel.session.cell.cell_check import make_order
from sandbox_kernel.session.cell.cell_order import CellRequest
from sandbox_kernel.session.tree.again import can_run_again
from sandbox_kernel.session.tree.node import CellText
from sandbox_kernel.session.tree.state_record import StateRecord

if TYPE_CHECKING:
    from sandbox_kernel.session.supervisor import WorkerSupervisor
    from sandbox_kernel.session.worker.worker import JailedWorker


def reach(supervisor: WorkerSupervisor, worker: JailedWorker, node: int, stop: Stop) -> ExecResult:
    """Make a node the present one. The caller has the turn. Raises ``SessionError``; then the session is as it was.

    ``stop`` interrupts the cells that have to be run again.
    """
    tree = worker.tree
    asked = f"checkout of {describe(tree.records[node])}"
    if node == tree.present and tree.records[node].checkpoint is None:
        raise SessionError(f"{asked}: the session is there already, and no copy of that state is held")
    again = tree.replayed(node)
    if not again:
        back = supervisor.go_to(worker, node, asked)
        return supervisor.moved(notes.moved(back.names, describe(tree.records[node])), back)
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
            stays = _return(supervisor, worker, left, start)
            if supervisor.live is worker:
                # The failed run was kept as the state of its node, which had another one.
                worker.give_up([each])
            raise SessionError(f"{asked}: cell {each} was run again and {problem}; {stays}")
    where = describe(tree.records[node])
    supervisor.settle(worker)
    if written:
        # Not earlier: a later cell may need what an earlier one wrote, although others have removed it since.
        supervisor.files.undone(worker, written)
    worker.look_at_variables()
    seen = tree.seen(node)
    result = supervisor.moved(notes.moved(worker.names if seen is None else len(seen), where), back)
    codes = [cell.code for each in again if (cell := tree.records[each].cell) is not None]
    python = supervisor.spec.language is Language.PYTHON
    outside = sum(not can_run_again(code) for code in codes) if python else 0
    return replace(result, notes=(notes.run_again(len(again), where, outside), *result.notes))


def describe(record: StateRecord) -> str:
    """Return a state in words: by its name, by its cell as the notebook counts it, or by its number in the tree."""
    if record.name:
        return f"{record.name!r} (node {record.id})"
    if record.cell is not None and record.cell.number is not None:
        return f"cell [{record.cell.number}] (node {record.id})"
    return f"node {record.id}" if record.id else "the beginning (node 0)"


def _run_again(
    supervisor: WorkerSupervisor, worker: JailedWorker, record: StateRecord, stop: Stop
) -> tuple[str, tuple[FsChange, ...]]:
    """Run the cell of a node in the present state. Returns an empty text or what was different, and its changes."""
    cell = record.cell
    if cell is None:
        return "its code is not known", ()
    supervisor.settle(worker)
    order = make_order(supervisor.spec, supervisor.memory_mb, request(cell))
    result = supervisor.run(worker, order, stop, record.id)
    if supervisor.live is not worker:
        return "the session was lost", ()
    if result.rolled_back:
        return f"had to be ended ({result.status})", ()
    ended = "ok" if result.ok else "error"
    if (ended == "ok") != (cell.status == "ok"):
        return f"ended with {result.status}, unlike the first time", ()
    return "", result.changes


def request(cell: CellText) -> CellRequest:
    """Return the request to run a cell again; it cannot ask for input."""
    return CellRequest(
        code=cell.code,
        timeout=cell.timeout_s,
        number=cell.number,
        memory_mb=cell.memory_mb,
        cpu_seconds=cell.cpu_seconds,
        output_bytes=cell.output_bytes,
    )


def _return(supervisor: WorkerSupervisor, worker: JailedWorker, left: int, start: int) -> str:
    """Go back to where the session was; where that fails, say where it is."""
    if supervisor.live is not worker:
        return "the session was started anew"
    with contextlib.suppress(SandboxError):
        supervisor.settle(worker)
        supervisor.go_to(worker, left, "the way back")
        return "the session is as it was"
    return f"the session is at node {worker.tree.present}"
