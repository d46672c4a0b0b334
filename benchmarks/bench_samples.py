"""Collects measurements and formats them: medians, 95th percentiles, ratios, and every failure with its reason."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from benchmarks.measure import p95

_MIB = 1 << 20


@dataclass
class Samples:
    """Measurements by case and kernel. ``baseline`` is the kernel that the ratios refer to."""

    baseline: str
    values: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    remarks: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, case: str, who: str, value: float) -> None:
        """Add a measurement: seconds, or bytes for the case ``memory``."""
        self.values[case, who].append(value)

    def fail(self, case: str, who: str, reason: str) -> None:
        """Add a failure: a measurement that was not possible, or a cell with a wrong result."""
        self.failures[case, who][reason] += 1

    def remark(self, case: str, who: str, text: str) -> None:
        """Add a note for readers of the table."""
        self.remarks[case, who] = text

    def text(self, case: str, who: str) -> str:
        """Return one entry of the table."""
        values = self.values.get((case, who), [])
        parts = []
        if values:
            middle = statistics.median(values)
            spread = f" / {_amount(case, p95(values))}" if case != "memory" else ""
            base = self.values.get((case, self.baseline), [])
            ratio = f" ({middle / statistics.median(base):.2f}×)" if base and who != self.baseline else ""
            parts.append(f"{_amount(case, middle)}{spread}{ratio}")
        attempts = len(values) + sum(self.failures[case, who].values())
        parts += [f"✗ {reason} ({count} of {attempts})" for reason, count in self.failures[case, who].items()]
        if remark := self.remarks.get((case, who)):
            parts.append(remark)
        return ", ".join(parts) or "–"


def _amount(case: str, value: float) -> str:
    if case == "memory":
        return f"{value / _MIB:.0f} MiB"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
