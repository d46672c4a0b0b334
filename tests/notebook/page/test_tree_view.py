"""The tree of a session as lines of text."""

from __future__ import annotations

from sandbox_kernel.model import FsChange
from sandbox_kernel.notebook.page.views import changed_words, line_of, tree_lines
from sandbox_kernel.session.tree.node import Changes, Node


def node(id: int, parent: int | None, code: str = "", **fields: object) -> Node:
    known: dict[str, object] = {
        "name": "",
        "number": id,
        "time": 0.0,
        "changed": Changes(),
        "memory_bytes": None,
        "alive": True,
        "present": False,
    }
    return Node(id=id, parent=parent, code=code, **{**known, **fields})  # type: ignore[arg-type]


def test_the_line_of_the_present_state_is_straight_and_others_stand_beside_it() -> None:
    nodes = (
        node(0, None),
        node(1, 0, "x = 1"),
        node(2, 1, "x = 2", alive=False),
        node(3, 2, "x = 3"),
        node(4, 1, "y = 1", present=True, name="best"),
        node(5, 1, "z = 1"),
    )
    assert tree_lines(nodes) == [
        "○ 0  the beginning",
        "○ 1  [1] x = 1",
        "├─· 2  [2] x = 2",
        "│ ○ 3  [3] x = 3",
        "├─○ 5  [5] z = 1",
        "● 4  'best'  [4] y = 1",
    ]


def test_a_long_history_is_drawn_without_recursion() -> None:
    chain = [node(0, None), *(node(number, number - 1, "pass") for number in range(1, 5000))]
    assert len(tree_lines(chain)) == 5000


def test_a_line_says_what_changed_and_cuts_long_cells() -> None:
    changes = Changes(
        added=("a", "b"), changed=("c",), removed=("d",), files=(FsChange(path="out.csv", kind="created"),)
    )
    assert list(changed_words(changes)) == ["+a +b ~c -d", "1 file"]
    many = Changes(added=tuple("abcdefgh"))
    assert list(changed_words(many)) == ["+a +b +c +d +e +f and 2 more"]
    assert line_of(node(1, 0, "\n\n" + "x" * 100)) == f"1  [1] {'x' * 47}…"
