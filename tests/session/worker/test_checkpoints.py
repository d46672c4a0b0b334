"""Which checkpoints there are, without any process."""

from __future__ import annotations

import pytest

from sandbox_kernel.errors import SessionError
from sandbox_kernel.session.worker.checkpoints import Checkpoint, CheckpointShelf


def point(cell: int, pid: int | None = None) -> Checkpoint:
    return Checkpoint(cell=cell, pid=pid if pid is not None else 100 + cell, time=0.0)


def shelf(keep: int, cells: int) -> CheckpointShelf:
    made = CheckpointShelf(keep)
    for cell in range(cells + 1):
        made.add(point(cell))
    return made


def cells(found: tuple[Checkpoint, ...]) -> list[int]:
    return [item.cell for item in found]


def test_undo_reaches_as_many_cells_back_as_are_kept() -> None:
    full = shelf(3, 10)
    assert cells(full.all()) == [7, 8, 9, 10]
    assert cells(full.reachable(10)) == [9, 8, 7]
    assert full.before(3, 10).cell == 7
    with pytest.raises(SessionError, match="undo of 4 cells is not possible here; possible are: 1, 2, 3"):
        full.before(4, 10)


def test_a_new_checkpoint_names_those_that_it_displaces() -> None:
    full = shelf(2, 2)
    assert cells(full.add(point(3))) == [0]
    assert full.newest() == point(3)


def test_a_second_checkpoint_of_the_same_state_replaces_the_first() -> None:
    full = shelf(2, 2)
    assert cells(full.add(point(2, pid=7))) == [2]
    assert full.newest() == point(2, pid=7)


def test_the_one_that_takes_over_leaves_with_all_later_ones() -> None:
    full = shelf(5, 4)
    assert full.taken_over(full.before(2, 4)) == (0, 1)
    assert cells(full.all()) == [0, 1]


def test_the_newest_is_never_dropped_for_memory() -> None:
    full = shelf(5, 1)
    dropped = full.drop_oldest()
    assert dropped is not None
    assert dropped.cell == 0
    assert full.drop_oldest() is None
    assert cells(full.all()) == [1]


def test_a_gap_is_said_when_a_step_in_between_is_missing() -> None:
    full = shelf(5, 3)
    assert full.remove({2, 9}) == (2,)
    with pytest.raises(SessionError, match="undo of 1 cells is not possible here; possible are: 2, 3"):
        full.before(1, 3)


def test_an_empty_shelf_has_nothing_to_go_back_to() -> None:
    empty = CheckpointShelf(5)
    assert empty.newest() is None
    with pytest.raises(SessionError, match="nothing can be undone"):
        empty.before(1, 0)
