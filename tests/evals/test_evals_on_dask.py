"""Evaluation on a cluster: the same verdicts as here, also when a worker dies in the middle."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_kernel import InvalidRequest, Sandbox
from sandbox_kernel.evals import check_samples, code_eval
from tests.conftest import need

try:
    import distributed
except ImportError:  # the tests say so
    distributed = None

PROBLEM = {
    "task_id": "test/0",
    "prompt": "def add(a, b):\n",
    "entry_point": "add",
    "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n",
}
BODIES = [
    "return a + b",
    "return a - b",
    "return c",
    "while True: pass",
    "import os; os._exit(0)",
    "raise SystemExit(0)",
]
SAMPLES = [{"task_id": "test/0", "completion": f"    {body}"} for body in [*BODIES, *["return a + b"] * 6]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    need(distributed, "the package distributed is not installed: pip install distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as made:
        with distributed.Client(made):
            yield made


@pytest.mark.slow
def test_a_worker_that_dies_loses_nothing_and_verdicts_are_the_same(cluster: Any) -> None:
    killed: list[int] = []

    def kill_one(done: int, total: int) -> None:
        if not killed:
            killed.append(next(iter(cluster.workers.values())).process.process.pid)
            os.kill(killed[0], signal.SIGKILL)

    found = check_samples({"test/0": PROBLEM}, SAMPLES, timeout=3, max_workers=4, progress=kill_one, backend="dask")
    assert killed
    assert found == check_samples({"test/0": PROBLEM}, SAMPLES, timeout=3)


@pytest.mark.slow
def test_code_eval_has_the_same_scores_on_a_cluster(cluster: Any) -> None:
    given: dict[str, Any] = {
        "references": ["assert f() == 1"],
        "predictions": [["def f(): return 1", "def f(): pass"]],
        "k": [1],
    }
    assert code_eval(**given, backend="dask") == code_eval(**given)


@pytest.mark.slow
def test_a_sandbox_and_a_backend_together_are_refused() -> None:
    with Sandbox() as box, pytest.raises(InvalidRequest, match="not both"):
        check_samples({"test/0": PROBLEM}, SAMPLES[:1], box=box, backend="dask")
