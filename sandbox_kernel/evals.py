"""Scores of programs that models wrote: ``check_correctness`` of HumanEval, and ``code_eval`` of ``evaluate``.

Both have the arguments and results of the originals. A candidate and its tests run in one jail, in two processes that
share values and nothing else: see ``guest/scripts/judge.py``. Each jail begins with the files of the sandbox as they
are, and none keeps any. As in HumanEval output is lost, nothing can be read from standard input, an alarm rings after
the time, and a candidate that ends its process counts as timed out.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import json
import os
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from statistics import fmean
from typing import TypedDict

from sandbox_kernel.box.runs import check_workers, run_each
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import check_timeout
from sandbox_kernel.model import Status
from sandbox_kernel.policy.sandbox_policy import AccessMode

#: The memory limit of one program in MB.
MEMORY_MB = 4096
#: How long a program may go on after its alarm, for one that catches it; HumanEval waits as long.
_AFTER_ALARM_S = 1.0
#: The longest verdict that is kept.
_MOST_TEXT = 10_000


def judge_program(
    candidate: str,
    test: str,
    timeout: float,
    *,
    prompt: str = "",
    entry_point: str = "",
    box: Sandbox | None = None,
    memory_mb: int = MEMORY_MB,
) -> str:
    """Run the tests of a candidate and return the verdict: ``passed``, ``timed out``, or ``failed:`` and why.

    ``test`` is Python that calls functions of the candidate by their names. It has the names of the ``prompt``, if that
    is a program by itself, as they are there, whatever the candidate made of them; the ``entry_point`` is the
    candidate's. A ``box`` of None is one of our own. Raises ``InvalidRequest`` for one in which a candidate could
    change files that the next one sees.
    """
    seconds = check_timeout(timeout)
    word = secrets.token_hex(16)
    first = json.dumps(candidate)
    given = {"word": word, "prompt": prompt, "entry": entry_point, "test": test, "timeout": seconds}
    runner = _shared_box("auto") if box is None else _checked(box)
    # Unlike ``run``, ``map`` keeps no files.
    (result,) = runner.map(
        _judge(), [f"{len(first):016}{first}{json.dumps(given)}"], timeout=seconds + _AFTER_ALARM_S, memory_mb=memory_mb
    )
    with contextlib.suppress(ValueError):  # the judge was ended while it wrote
        for line in reversed(result.stdout.splitlines()):
            if line.startswith(word):
                return str(json.loads(line[len(word) :]))[:_MOST_TEXT]
    if result.status is Status.MEMORY_EXCEEDED:
        return f"failed: memory limit of {memory_mb} MB exceeded"
    return "timed out"


def _checked(box: Sandbox) -> Sandbox:
    """Return a sandbox of the caller in which no candidate can leave something for the next. Raises for another."""
    policy = box.policy
    if (
        box.here is not None
        or box.describe_functions()
        or any(each.writable for each in policy.mounts)
        or any(each.mode is AccessMode.READ_WRITE for each in policy.allowed_paths)
    ):
        raise InvalidRequest(
            "candidates in this sandbox could change what the next candidate sees; give one without here=, without "
            "functions= and without writable folders"
        )
    if not policy.process_spawn:
        raise InvalidRequest("a candidate runs in a process of its own; allow_process_spawn() in the sandbox's policy")
    return box


@functools.cache
def _judge() -> str:
    return (importlib.resources.files("sandbox_kernel") / "guest" / "scripts" / "judge.py").read_text()


def box_for(box: Sandbox | None, backend: str | None) -> Sandbox | None:
    """Return the sandbox of a check: the given one, or a shared one on a backend; None for the default of a verdict."""
    if backend is not None and box is not None:
        raise InvalidRequest("give a sandbox or a backend, not both; a sandbox has its own: Sandbox(backend='dask')")
    return box if backend is None else _shared_box(backend)


@functools.lru_cache(maxsize=4)
def _shared_box(backend: str) -> Sandbox:
    return Sandbox(backend=backend)


os.register_at_fork(after_in_child=_shared_box.cache_clear)


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
    """Run the tests of a HumanEval problem on a completion (what the model added to the prompt), in a sandbox."""
    _check(problem)
    prompt, entry, test = (
        problem["prompt"],
        problem["entry_point"],
        f"{problem['test']}\ncheck({problem['entry_point']})",
    )
    verdict = judge_program(prompt + completion, test, timeout, prompt=prompt, entry_point=entry, box=box)
    return _checked_as(problem["task_id"], verdict, completion_id)


def _checked_as(task: object, verdict: str, completion_id: int | None) -> Checked:
    return Checked(task_id=task, passed=verdict == "passed", result=verdict, completion_id=completion_id)


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
    """Check many completions, several at once; returns one result for each sample, in their order.

    A sample has ``task_id`` and ``completion``. ``progress(done, total)`` is called after each result. Programs run in
    ``box``, in one of our own (None), or on a ``backend``: ``dask`` is the cluster that is connected, and gives the
    programs of a worker that dies to others.
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

    Returns pass@k for each ``k`` for which every task has enough candidates, and the results of each task by its
    number.
    """
    tasks = [
        (task, number, candidate, test)
        for task, (candidates, test) in enumerate(zip(predictions, references, strict=False))
        for number, candidate in enumerate(candidates)
    ]
    where = box_for(box, backend)

    def check(job: tuple[int, int, str, str], _: object) -> Checked:
        task, number, candidate, test = job
        return _checked_as(task, judge_program(candidate, test, timeout, box=where), number)

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
