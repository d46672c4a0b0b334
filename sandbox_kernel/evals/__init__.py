"""Scores programs that models wrote: drop-in ``check_correctness`` of HumanEval, and ``code_eval`` of ``evaluate``.

Each candidate runs in a jail of its own, in another process than its tests. Callers: evaluation harnesses. Read
``verdict.py`` first.
"""

from sandbox_kernel.evals.scores import check_correctness, check_samples, code_eval, estimate_pass_at_k
from sandbox_kernel.evals.verdict import EvalVerdict, judge_program

__all__ = [
    "EvalVerdict",
    "check_correctness",
    "check_samples",
    "code_eval",
    "estimate_pass_at_k",
    "judge_program",
]
