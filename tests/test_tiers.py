"""Which tests ``make test`` runs, and which of them one worker runs together."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import part, pytest_collection_modifyitems

TESTS = {
    "tests/a.py::test_plain": "",
    "tests/a.py::test_slow[1]": "slow",
    "tests/b.py::test_cases[1]": "one_case",
    "tests/b.py::test_cases[2]": "one_case",
    "tests/b.py::test_all_cases[1]": "",
    "tests/b.py::test_all_cases[2]": "",
    "tests/browser/c.py::test_page": "browser",
}


class Item:
    def __init__(self, nodeid: str, mark: str) -> None:
        self.nodeid, self.path, self.mark = nodeid, Path(nodeid.split("::")[0]), mark

    def get_closest_marker(self, name: str) -> bool:
        return name == self.mark


@pytest.mark.parametrize(("quick", "left_out"), [(True, (1, 3, 6)), (False, ())])
def test_quick_leaves_out_slow_tests_browsers_and_further_cases(quick: bool, left_out: tuple[int, ...]) -> None:
    items = [Item(name, mark) for name, mark in TESTS.items()]
    wanted = {item for number, item in enumerate(items) if number not in left_out}
    deselected: list[Item] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: deselected.extend(items))
    pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: quick, hook=hook), items)  # type: ignore[arg-type]
    assert set(items) == wanted
    assert len(deselected) == len(left_out)


def test_a_file_is_a_part_of_its_own_and_all_of_the_browser_is_one() -> None:
    assert [part(name) for name in TESTS][-2:] == ["tests/b.py", "tests/browser"]
    assert part("tests/browser/panel/d.py::test_x[a::b]") == "tests/browser"
    assert part("tests/browsers.py::test_y[a::b]") == "tests/browsers.py"
