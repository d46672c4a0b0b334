"""No room of the package, no page and no list is heavier than its budget."""

import pytest

from tests.weigh import budgets, run_weights, weights


@pytest.mark.parametrize("weigh", [weights, pytest.param(run_weights, marks=pytest.mark.slow)])
def test_nothing_is_heavier_than_its_budget(weigh: object) -> None:
    most = budgets()
    assert callable(weigh)
    assert {name: weight for name, weight in weigh().items() if weight > most.get(name, 0)} == {}
