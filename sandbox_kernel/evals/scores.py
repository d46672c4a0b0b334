"""Scores: ``check_correctness`` of HumanEval, with many samples, and ``code_eval`` of Hugging Face's ``evaluate``.

Both have the arguments and results of the originals; each candidate runs in a sandbox.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from statistics import fmean
from typing import TypedDict

from sandbox_kernel.box.runs import check_workers, run_each
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.evals.verdict import box_for, judge_program


class Checked(TypedDict):
    """The result of one completion, with the names that HumanEval gives it."""

    task_id: object
    passed: bool
    result: str
    completion_id: int | None


def check_correctness(
    problem: Mapping[str, str],
    completion: str,
    timeout: float,
    completion_id: int | None = None,
    *,
    box: Sandbox | None = None,
) -> Checked:
    """Run the tests of a HumanEval problem on a completion, in a sandbox.

    Args:
        problem: A problem with ``task_id``, ``prompt``, ``test`` and ``entry_point``.
        completion: What the model added to the prompt.
        timeout: Seconds that the tests may take.
        completion_id: Is passed on to the result.
        box: The sandbox to use; None for one of our own.

    Returns:
        ``task_id``, ``passed``, ``result`` (``passed``, ``timed out`` or ``failed: …``) and ``completion_id``.

    """
    _check(problem)
    verdict = judge_program(
        problem["prompt"] + completion,
        f"{problem['test']}\ncheck({problem['entry_point']})",
        timeout,
        prompt=problem["prompt"],
        entry_point=problem["entry_point"],
        box=box,
    )
    return Checked(
        task_id=problem["task_id"], passed=verdict.passed, result=verdict.result, completion_id=completion_id
    )


def _check(problem: Mapping[str, str]) -> None:
    missing = [name for name in ("task_id", "prompt", "test", "entry_point") if name not in problem]
    if missing:
        raise InvalidRequest(
            f"the problem has no {missing[0]!r}; a HumanEval problem has task_id, prompt, test, entry_point"
        )


def check_samples(
    problems: Mapping[str, Mapping[str, str]],
    samples: Iterable[Mapping[str, str]],
    *,
    timeout: float = 3.0,
    max_workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    box: Sandbox | None = None,
    backend: str | None = None,
) -> list[Checked]:
    """Check many completions, several at once.

    Args:
        problems: HumanEval problems by their ``task_id``.
        samples: Completions: ``task_id`` and ``completion`` of each.
        timeout: Seconds that the tests of one may take.
        max_workers: How many run at the same time; 4 by default.
        progress: Called as ``progress(done, total)`` after each result.
        box: The sandbox to use; None for one of our own.
        backend: Where programs run instead: ``dask`` for the cluster that is connected. A worker that dies loses
            nothing, because Dask gives its programs to others.

    Returns:
        One result for each sample, in their order.

    """
    where = box_for(box, backend)
    count: Counter[str] = Counter()
    numbered = []
    for sample in samples:
        if missing := [name for name in ("task_id", "completion") if name not in sample]:
            raise InvalidRequest(f"a sample has no {missing[0]!r}; each has task_id and completion; nothing was run")
        task = sample["task_id"]
        if task not in problems:
            raise InvalidRequest(f"there is no problem {task!r:.80} for this sample; nothing was run")
        _check(problems[task])
        numbered.append((problems[task], sample["completion"], timeout, count[task]))
        count[task] += 1
    return run_each(
        lambda sample, _: check_correctness(*sample, box=where), numbered, check_workers(max_workers), progress
    )


def code_eval(
    references: Sequence[str],
    predictions: Sequence[Sequence[str]],
    k: Sequence[int] = (1, 10, 100),
    num_workers: int = 4,
    timeout: float = 3.0,
    *,
    progress: Callable[[int, int], None] | None = None,
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
        progress: Called as ``progress(done, total)`` after each candidate.
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

    def check(job: tuple[int, int, str, str], _: object) -> Checked:
        task, number, candidate, test = job
        verdict = judge_program(candidate, test, timeout, box=where)
        return Checked(task_id=task, passed=verdict.passed, result=verdict.result, completion_id=number)

    found = run_each(check, tasks, check_workers(num_workers), progress)
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
