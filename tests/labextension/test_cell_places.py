"""Which cell the output of a request belongs to, in a page that did not send it."""

from tests.labextension.conftest import Evaluate

CELLS = [{"id": "a", "source": "x"}, {"id": "b", "source": "y"}, {"id": "c", "source": "x"}, {"id": "d", "source": "z"}]
OTHERS = [{**cell, "id": cell["id"] * 2} for cell in CELLS]


def test_of_two_cells_with_the_same_source_the_one_that_ran_is_found(evaluate: Evaluate) -> None:
    noted = "withPlace(values[0], 'd', withPlace(values[0], 'a', withPlace(values[0], 'c', [])))"
    assert evaluate("past-outputs.js", noted, CELLS) == [["a", 0, 2], ["c", 1, 2]]
    find = "values[2].map(([cell, code]) => findCell(values[1], {cell, code}, " + noted + ")?.id ?? '')"
    asked = [["a", "x"], ["c", "x"], ["e", "x"], ["d", "z"], ["e", "y"], ["e", "gone"]]
    assert evaluate("past-outputs.js", find, CELLS, OTHERS, asked) == ["aa", "cc", "", "dd", "bb", ""]
    assert evaluate("past-outputs.js", find, CELLS, CELLS, asked) == ["a", "c", "", "d", "b", ""]


def test_a_place_is_not_believed_when_the_notebook_has_other_cells_by_now(evaluate: Evaluate) -> None:
    find = "findCell(values[0], {cell: 'a', code: 'x'}, [['a', 0, 2], ['b', 7, 2], 'a', null].filter(Array.isArray))"
    assert evaluate("past-outputs.js", f"({find}) ?? null", [*OTHERS, {"id": "n", "source": "x"}]) is None


def test_of_several_runs_of_a_cell_the_newest_is_shown(evaluate: Evaluate) -> None:
    runs = [{"cell": cell, "code": "", "count": count} for count, cell in enumerate(["a", "b", "a", "gone", "a"], 1)]
    newest = "newestRuns(values[0], values[1], []).map(([{ id }, { count }]) => [id, count])"
    assert evaluate("past-outputs.js", newest, CELLS, runs) == [["a", 5], ["b", 2]]
