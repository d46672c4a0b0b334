"""Which states there are and which of them live, without any process."""

import itertools
from typing import Any

import pytest

from sandbox_kernel.errors import CheckpointGone, InvalidRequest, SessionError
from sandbox_kernel.model import Language
from sandbox_kernel.session.cell.request import CellRequest
from sandbox_kernel.session.tree import state_tree
from sandbox_kernel.session.tree.state_tree import StateRecord, StateTree, check_name, living_bound


def hold(tree: StateTree) -> list[int]:
    node = tree.present
    tree.hold(node, 100 + node)
    dropped: list[int] = []
    while tree.surplus > 0 and (node := tree.evict(for_memory=False)) is not None:
        dropped.append(node)
    return dropped


def grown(keep: int, cells: int) -> StateTree:
    tree = StateTree(keep)
    hold(tree)
    for _ in range(cells):
        step(tree)
    return tree


def step(tree: StateTree, code: str = "pass") -> int:
    node = tree.grow(CellRequest(language=Language.PYTHON, code=code, timeout=1.0))
    hold(tree)
    return node


def living(tree: StateTree) -> list[int]:
    return [item.id for item in tree.living()]


def test_undo_reaches_as_many_cells_back_as_are_kept() -> None:
    tree = grown(3, 10)
    assert [item.depth for item in tree.reachable()] == [9, 8, 7]
    assert tree.back(3) == 7
    with pytest.raises(SessionError, match="of 4 cells is not possible here; possible are: 1, 2, 3; session"):
        tree.back(4)
    with pytest.raises(SessionError, match="redo of 1 cell is not possible here: there is nothing to redo"):
        tree.forward(1)


def test_the_line_that_was_left_stays_as_a_branch() -> None:
    tree = grown(5, 3)
    tree.go_to(1)
    side = step(tree)
    assert (side, tree.line()) == (4, [4, 1, 0])
    assert tree.line(3) == [3, 2, 1, 0]
    assert living(tree) == [0, 1, 2, 3, 4]


def test_redo_follows_the_branch_that_was_left_last() -> None:
    tree = grown(5, 3)
    tree.go_to(1)
    assert tree.forward(2) == 3
    step(tree)
    with pytest.raises(SessionError, match="there is nothing to redo"):
        tree.forward(1)
    tree.go_to(0)
    assert tree.forward(2) == 4
    tree.go_to(3)
    tree.go_to(1)
    assert tree.forward(1) == 2


def test_named_states_tips_and_the_beginning_outlive_others_which_are_spaced_ever_wider() -> None:
    tree = grown(3, 2)
    tree.name_node("early", tree.present)
    step(tree)
    tip = step(tree)
    tree.go_to(1)
    for _ in range(100):
        step(tree)
    kept = living(tree)
    assert len(kept) == living_bound(3) + 1
    assert {0, 2, tip} <= set(kept), "the beginning, the named one, the tip of the branch that was left"
    assert kept[-4:] == [101, 102, 103, 104], "those that undo reaches"
    far = [node for node in kept[:-4] if node > tip]
    gaps = [later - earlier for earlier, later in itertools.pairwise(far)]
    assert gaps[0] > gaps[-1], "wider into the past"


def test_for_memory_all_but_the_present_state_can_be_given_up_and_named_ones_and_the_beginning_go_last() -> None:
    tree = grown(3, 2)
    tree.name_node("keep me", tree.present)
    step(tree)
    step(tree)
    order = []
    while (node := tree.evict(for_memory=True)) is not None:
        order.append(node)
    assert order == [1, 3, 2, 0], "from the beginning every other one can be made again"
    assert living(tree) == [4]


def test_a_killed_state_is_said_and_those_around_it_stay() -> None:
    tree = grown(5, 3)
    assert tree.remove({2, 9}) == (2,)
    with pytest.raises(CheckpointGone, match="the checkpoint 1 cell back is gone"):
        tree.back(1)
    assert [tree.here.depth - item.depth for item in tree.reachable()] == [2, 3]


def test_what_has_to_run_again_begins_after_the_nearest_living_state() -> None:
    tree = grown(5, 4)
    tree.remove({2, 3, 4})
    assert tree.replayed(4) == [2, 3, 4]
    assert tree.replayed(1) == []
    tree.all_ended()
    hold(tree)
    assert (tree.present, tree.replayed(2)) == (0, [1, 2])
    with pytest.raises(SessionError, match="no state before it lives either"):
        tree.remove({0})
        tree.replayed(3)


def test_a_state_is_found_by_node_number_and_name() -> None:
    tree = grown(5, 2)
    tree.name_node("two", tree.present)
    node = tree.node(tree.records[2], {102: 7})
    assert (node.name, node.memory_bytes, node.alive, node.present, node.number) == ("two", 7, True, True, 2)
    assert {tree.find(where) for where in (node, 2, "2", "two")} == {2}
    tree.go_to(1)
    tree.name_node("two", tree.present)
    assert tree.find("two") == 1, "a name means one state"
    for wrong in ("three", 9):
        with pytest.raises(SessionError, match=r"there is no state .* named ones are: 'two'"):
            tree.find(wrong)
    with pytest.raises(InvalidRequest, match="given as a node, its number or its name"):
        tree.find(1.5)  # type: ignore[arg-type]


def test_a_name_is_a_short_text_and_no_number() -> None:
    assert check_name(" before training ") == "before training"
    for wrong in ("", " ", "7", "x" * 101, "a\nb", None):
        with pytest.raises(InvalidRequest, match="a state's name must"):
            check_name(wrong)


def test_a_history_is_bounded_and_says_what_cannot_be_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_tree, "MAX_NODES", 30)
    tree = grown(2, 100)
    assert len(tree.records) == 30
    dead = next(record.id for record in tree.records.values() if not record.pid)
    for node in living(tree):
        if node < dead:
            tree.remove({node})
    with pytest.raises(SessionError, match="the cells before it were forgotten"):
        tree.replayed(dead)


class Counted(dict[int, StateRecord]):
    """The records of a tree, which count how many of them are looked at."""

    looks = 0

    def __getitem__(self, node: int) -> StateRecord:
        self.looks += 1
        return super().__getitem__(node)

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()


def looks_of_a_cell(cells: int) -> int:
    tree = grown(5, 0)
    for number in range(cells):
        step(tree)
        tree.looked(tree.present, {"x": ("int", str(number), str(number))})
    tree.records = records = Counted(tree.records)
    step(tree)
    tree.looked(tree.present, {"x": ("int", "-1", "-1")})
    assert tree.variables_at(tree.present) == {"x": ("int", "-1", "-1")}
    assert tree.nearest() is not None
    assert len(tree.reachable()) == 5
    tree.remove({living(tree)[0]})
    return records.looks


def test_a_cell_late_in_a_long_history_looks_at_no_more_nodes_than_an_early_one() -> None:
    assert looks_of_a_cell(2000) == looks_of_a_cell(200) < 200


def test_the_variables_of_a_state_stay_known_when_the_cell_that_made_them_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_tree, "MAX_NODES", 10)
    tree = grown(2, 0)
    made = {"early": ("int", "1", "1")}
    for number in range(20):
        step(tree)
        made = {**made, "late": ("int", str(number), str(number))}
        tree.looked(tree.present, made)
    oldest = next(node for node in tree.records if node)
    assert oldest > 1
    assert tree.variables_at(oldest)["early"] == ("int", "1", "1")
    assert tree.variables_at(tree.present) == made


def test_the_variables_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_tree, "MAX_VARIABLES", 1000)
    tree = grown(2, 0)
    for number in range(50):
        step(tree)
        tree.looked(tree.present, {f"v{name}": ("int", str(number), "") for name in range(99)})
    assert [node for node in tree.records if node and tree.variables(node) is not None] == list(range(41, 51))
