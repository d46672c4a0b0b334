"""Checkpoints that are too many: with cells back to back they look and end in the next pause, and nothing is lost."""

import asyncio

import pytest

from sandbox_kernel.session.background import BackgroundListener
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.session.cell.front_end import FrontEnd
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker.gate_client import GateClient
from sandbox_kernel.session.worker.jailed_worker import LOOKS_AT_ONCE, JailedWorker
from tests.session.conftest import Open
from tests.waiting import until

CELLS = 12


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
    until(lambda: not (live.tree.surplus > 0 or live._uncopied or live._freezing))
    with session._supervisor.turn():  # the last ones may still say what they know
        gone = [record for record in live.tree.records.values() if not record.pid]
    assert gone, "none was given up: the test needs more cells"
    assert all(record.looked for record in gone)
    assert added(session) == ALL


@pytest.mark.parametrize("counted", [True, False])
def test_what_cells_changed_is_known_without_a_pause_and_after_a_rollback(
    counted: bool, open_one: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a host without control groups no checkpoint waits.
    monkeypatch.setattr("sandbox_kernel.session.worker.jailed_worker.counts_processes", lambda: counted)
    monkeypatch.setattr(BackgroundListener, "_tidy", lambda self, supervisor: None)  # however long the cells take
    session = open_one(checkpoints=1)
    live = cells_back_to_back(session)
    with session._supervisor.turn():
        assert (live.tree.surplus > 0) is counted
    assert session.run("import os; os._exit(1)").rolled_back
    assert session.run("v3").ok
    assert added(session)[:CELLS] == ALL


SLOW = "import time\nclass Slow:\n    def __reduce__(self): return time.sleep(0.2) or (int, (1,))\nslow = Slow()"


@pytest.mark.parametrize("crashes", [False, True])
def test_more_cells_than_may_wait_end_checkpoints_without_a_pause_and_without_a_fork_for_each(
    open_one: Open, monkeypatch: pytest.MonkeyPatch, crashes: bool
) -> None:
    monkeypatch.setattr("sandbox_kernel.session.worker.jailed_worker.MOST_WAITING", 2)
    monkeypatch.setattr(BackgroundListener, "_tidy", lambda self, supervisor: None)
    order, looks = GateClient.order, list[object]()
    monkeypatch.setattr(GateClient, "order", lambda *a, **more: (looks.append(more.get("last")), order(*a, **more)))
    session = open_one(checkpoints=1)
    assert session.run(SLOW).ok  # so that some still look when the worker dies
    live = cells_back_to_back(session)
    with session._supervisor.turn():
        assert 0 <= live.tree.surplus < 2 + LOOKS_AT_ONCE
        assert live._looking
    if crashes:
        assert session.run("import os; os._exit(1)").rolled_back
    assert True in looks and False not in looks
    assert added(session)[1 : 1 + CELLS] == ALL


@pytest.mark.parametrize("counted", [True, False])
def test_the_beginning_stays_while_other_checkpoints_end(
    open_one: Open, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    monkeypatch.setattr("sandbox_kernel.session.worker.jailed_worker.MOST_WAITING", 2)
    monkeypatch.setattr("sandbox_kernel.session.worker.jailed_worker.counts_processes", lambda: counted)
    monkeypatch.setattr(BackgroundListener, "_tidy", lambda self, supervisor: False)
    session = open_one(checkpoints=1)
    live = cells_back_to_back(session)
    with session._supervisor.turn():
        assert live.tree.living()[0].id == 0


def test_a_cell_that_nobody_could_look_at_says_so(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.session.worker.jailed_worker.counts_processes", lambda: True)
    monkeypatch.setattr(BackgroundListener, "_tidy", lambda self, supervisor: None)
    session = open_one(checkpoints=1)
    cells_back_to_back(session)
    with session._supervisor.turn() as live:
        monkeypatch.setattr(live.memory, "is_crowded", lambda: live.tree.living_count > 3)
        live._make_room()
        gone = [record.id for record in live.tree.records.values() if not record.pid]
        assert gone
    told = {node.id: node.changed for node in session.history()}
    assert all(told[node].unknown and not told[node].added for node in gone)
