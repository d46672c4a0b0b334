"""Which tests ``make test`` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiers

MEASURED = {
    "tests/a.py::test_quick[1]": 0.01,
    "tests/a.py::test_quick[2]": 0.02,
    "tests/a.py::test_many[x]": 0.4,
    "tests/a.py::test_many[y]": 0.3,
    "tests/a.py::test_long": 9.0,
}


@pytest.mark.parametrize(
    ("test", "runs"),
    [
        ("tests/a.py::test_quick[1]", True),
        ("tests/a.py::test_quick[2]", True),
        ("tests/a.py::test_many[x]", False),
        ("tests/a.py::test_many[y]", True),
        ("tests/a.py::test_long", False),
        ("tests/a.py::test_that_was_never_measured", True),
        ("tests/browser/test_a.py::test_that_was_never_measured", False),
    ],
)
def test_of_a_long_function_only_the_cheapest_case_is_quick(
    test: str, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "BUDGET_S", 5)
    assert tiers.is_quick(test, tiers.summarise(MEASURED)) is runs


@pytest.mark.parametrize(("budget", "runs"), [(9.4, True), (9.2, False)])
def test_as_many_of_the_longest_functions_wait_as_the_budget_of_time_needs(
    budget: float, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "BUDGET_S", budget)
    record = tiers.summarise(MEASURED)
    assert tiers.is_quick("tests/a.py::test_long", record) is runs
    assert record.quick_files == ({"tests/a.py": 9.3} if runs else {})


def test_a_record_of_pytest_is_read_by_the_names_that_pytest_uses(tmp_path: Path) -> None:
    record = tmp_path / "junit.xml"
    record.write_text(
        '<testsuites><testsuite><testcase classname="tests.jail.test_a" name="test_b[c]" time="1.5"/>'
        '<testcase classname="tests.jail.test_a.TestOfAClass" name="test_b" time="2.5"/>'
        '<testcase classname="tests.jail.test_a" name="test_skipped" time="0"><skipped/></testcase></testsuite></testsuites>'
    )
    assert tiers.read_junit([str(record)]) == {
        "tests/jail/test_a.py::test_b[c]": 1.5,
        "tests/jail/test_a.py::TestOfAClass::test_b": 2.5,
    }
