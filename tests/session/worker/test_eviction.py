"""Checkpoints that were evicted: with cells back to back they look and end in the next pause, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import cast

import pytest

from sandbox_kernel.session.background import BackgroundListener
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.session.cell.front_end import FrontEnd
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker.gate_client import GateClient
from sandbox_kernel.session.worker.worker import LOOKS_AT_ONCE, EvictedCheckpoints, JailedWorker
from tests.session.conftest import Open

CELLS = 9


class Orders:
    """Writes down the orders that a gate would get."""

    def __init__(self) -> None:
        self.given: list[tuple[str, list[int]]] = []

    def let_go(self, cells: Sequence[int]) -> None:
        self.given.append(("let_go", list(cells)))

    def look(self, cells: list[int], *, last: bool) -> None:
        assert last
        if cells:
            self.given.append(("look", cells))

    def drop(self, cells: list[int], *, wait: bool = False) -> None:
        self.given.append(("drop", cells))


def evicted() -> tuple[EvictedCheckpoints, Orders]:
    orders = Orders()
    hear = lambda nodes: orders.given.append(("hear", list(nodes)))  # noqa: E731
    return EvictedCheckpoints(cast(GateClient, orders), hear), orders


def test_a_checkpoint_waits_for_a_pause_and_only_its_files_are_forgotten_at_once() -> None:
    going, orders = evicted()
    going.add([1], 2)
    going.add([2], 2)
    assert orders.given == [("let_go", [1]), ("let_go", [2])]
    going.step()
    going.step()
    assert orders.given[2:] == [("look", [1, 2]), ("hear", [1, 2]), ("drop", [1, 2])]
    assert going.nodes() == ()


def test_the_oldest_go_when_too_many_wait() -> None:
    going, orders = evicted()
    going.add([1, 2], 2)
    going.add([3], 2)
    assert ("look", [1]) in orders.given
    assert going.nodes() == (1, 2, 3)
    going.add([4], 0)
    assert orders.given[-3:] == [("hear", [1]), ("drop", [1]), ("look", [2, 3, 4])]


def test_few_look_at_once_and_only_a_strict_rollback_ends_them() -> None:
    going, orders = evicted()
    going.add(range(10), 10)
    going.step()
    assert orders.given[-1] == ("look", list(range(LOOKS_AT_ONCE)))
    assert going.stay(strict=False) == going.nodes() == tuple(range(10))
    assert going.stay(strict=True) == going.nodes() == tuple(range(LOOKS_AT_ONCE, 10))
    going.forget(5)
    assert 5 not in going.nodes()
    going.end()
    assert going.nodes() == ()
    assert orders.given[-1] == ("drop", [4, 6, 7, 8, 9])


class Page:
    """A front end that shows nothing."""

    def text(self, stream: str, text: str) -> None: ...

    def display(self, display: SessionDisplay) -> None: ...

    def cut(self) -> None: ...


def cells_back_to_back(session: Session) -> JailedWorker:
    """Run cells as a kernel does, each with a variable of its own."""
    front_end = FrontEnd(expressions={}, on_reply=lambda reply: None, late=Page())

    async def many() -> None:
        for number in range(CELLS):
            assert (await session.arun(f"v{number} = {number}", front_end=front_end)).ok

    asyncio.run(many())
    live = session._supervisor.live
    assert live is not None
    return live


def added(session: Session) -> list[tuple[str, ...]]:
    return [node.changed.added for node in session.history()][1:]


ALL = [(f"v{number}",) for number in range(CELLS)]


def test_old_checkpoints_end_in_a_pause_and_every_cell_says_what_it_changed(open_one: Open) -> None:
    session = open_one(checkpoints=1)
    live = cells_back_to_back(session)
    deadline = time.monotonic() + 120
    while live.evicted.nodes() or live._uncopied or live._freezing:
        assert time.monotonic() < deadline, "nobody let the old checkpoints go"
        time.sleep(0.01)
    gone = [record for record in live.tree.records.values() if record.checkpoint is None]
    assert gone, "none was given up: the test needs more cells"
    assert all(record.looked for record in gone)
    assert added(session) == ALL


def test_what_cells_changed_is_known_without_a_pause_and_after_a_rollback(open_one: Open) -> None:
    session = open_one(checkpoints=1)
    cells_back_to_back(session)
    assert session.run("import os; os._exit(1)").rolled_back
    assert session.run("v3").ok
    assert added(session)[:CELLS] == ALL
    assert not session._supervisor.live.evicted.nodes()  # type: ignore[union-attr]


def test_a_look_that_a_rollback_meets_is_kept_where_no_checkpoint_waits(
    open_one: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a host without control groups: a checkpoint that is given up looks at once, beside the next cell.
    monkeypatch.setattr("sandbox_kernel.session.worker.worker.counts_processes", lambda: False)
    monkeypatch.setattr(BackgroundListener, "_end_evicted", lambda self, present: None)  # however long the cells take
    session = open_one(checkpoints=1)
    cells_back_to_back(session)
    assert session._supervisor.live.evicted.nodes()  # type: ignore[union-attr]
    assert session.run("import os; os._exit(1)").rolled_back
    assert added(session)[:CELLS] == ALL


def test_a_cell_that_nobody_could_look_at_says_so(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackgroundListener, "_end_evicted", lambda self, present: None)  # however long the cells take
    session = open_one(checkpoints=1)
    cells_back_to_back(session)
    with session._supervisor.turn() as live:
        gone = live.evicted.nodes()
        assert gone
        live._end_evicted_at_once()
    told = {node.id: node.changed for node in session.history()}
    assert all(told[node].unknown and not told[node].added for node in gone)
