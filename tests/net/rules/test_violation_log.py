from __future__ import annotations

from sandbox_kernel.model import Violation
from sandbox_kernel.net.rules.violation_log import MAX_KEPT, ViolationLog


def test_each_refusal_is_kept_once_in_order_and_never_too_many():
    log = ViolationLog()
    for number in [0, 1, 0, *range(2 * MAX_KEPT)]:
        log.add(Violation(rule="domain_not_allowed", subject=f"host{number}", reason="x"))
    subjects = [violation.subject for violation in log.snapshot()]
    assert subjects == [f"host{number}" for number in range(MAX_KEPT)]
