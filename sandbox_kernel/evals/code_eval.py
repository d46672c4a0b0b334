"""``code_eval`` of Hugging Face's ``evaluate``: the same arguments and results, each candidate in a sandbox."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from statistics import fmean

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.evals.human_eval import Checked
from sandbox_kernel.evals.verdict import Progress, box_for, check_each, judge_program


def code_eval(
    references: Sequence[str],
    predictions: Sequence[Sequence[str]],
    k: Sequence[int] = (1, 10, 100),
    num_workers: int = 4,
    timeout: float = 3.0,
    *,
    progress: Progress = None,
    box: Sandbox | None = None,
    backend: str | None = None,
) -> tuple[dict[str, float], dict[int, list[tuple[int, Checked]]]]:
    """Estimate pass@k of candidates, as ``evaluate.load("code_eval").compute`` does.

    Args:
        references: One test program for each task.
        predictions: The candidates of each task.
        k: For which k to estimate; a k that is larger than the candidates of some task is left out.
        num_workers: How many candidates run at the same time.
        timeout: Seconds that one candidate may run.
        progress: Called as ``progress(done, total)`` after each candidate; True shows a bar.
        box: The sandbox to use; None for one of our own.
        backend: Where candidates run instead: ``dask`` for the cluster that is connected.

    Returns:
        pass@k for each k, and the results of each task by its number.

    """
    tasks = [
        (task, number, candidate, test)
        for task, (candidates, test) in enumerate(zip(predictions, references, strict=False))
        for number, candidate in enumerate(candidates)
    ]
    where = box_for(box, backend)

    def check(place: int) -> Checked:
        task, number, candidate, test = tasks[place]
        verdict = judge_program(candidate, test, timeout, box=where)
        return Checked(task_id=task, passed=verdict.passed, result=verdict.result, completion_id=number)

    found = check_each(check, range(len(tasks)), num_workers, progress)
    results: dict[int, list[tuple[int, Checked]]] = defaultdict(list)
    for (task, number, *_), checked in zip(tasks, found, strict=True):
        results[task].append((number, checked))
    total = [len(each) for each in results.values()]
    correct = [sum(checked["passed"] for _, checked in each) for each in results.values()]
    scores = {
        f"pass@{each}": fmean(estimate_pass_at_k(total, correct, each)) for each in k if total and min(total) >= each
    }
    return scores, results


def estimate_pass_at_k(num_samples: Sequence[int], num_correct: Sequence[int], k: int) -> list[float]:
    """Return the estimate of pass@k for each task: the chance that one of k candidates, drawn at random, is correct."""
    return [
        1.0 if samples - correct < k else 1.0 - prod(1.0 - k / n for n in range(samples - correct + 1, samples + 1))
        for samples, correct in zip(num_samples, num_correct, strict=True)
    ]
