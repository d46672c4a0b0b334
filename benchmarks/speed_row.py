"""One row of the table of ``bench_speed``: what was measured, the figures, the goal, and whether it is reached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

HEAD = "| what | figures | result | goal | |\n|---|---|---|---|---|"


@dataclass(frozen=True)
class Row:
    """``result`` is a number as text, or empty when the row was not measured; ``at_least``: more is better."""

    what: str
    figures: str
    result: str
    goal: float
    unit: str = ""
    at_least: bool = False

    @classmethod
    def ratio(
        cls,
        what: str,
        ours: Sequence[float],
        theirs: Sequence[float],
        *,
        goal: float,
        unit: str = "ms",
        scale: float = 1e3,
    ) -> Row:
        """A ratio of medians; ``scale`` brings the samples into ``unit``."""
        mine, base = statistics.median(ours) * scale, statistics.median(theirs) * scale
        return cls(what, f"{mine:.1f} against {base:.1f} {unit}", f"{mine / base:.2f}", goal)

    @classmethod
    def absent(cls, what: str, goal: float, reason: str) -> Row:
        """A row that was not measured, with the reason."""
        return cls(what, f"not measured: {reason}", "", goal)

    def markdown(self) -> str:
        """Return the line of the table."""
        reached = ""
        if self.result:
            value = float(self.result)
            reached = "reached" if (value >= self.goal if self.at_least else value <= self.goal) else "**not reached**"
        unit = f" {self.unit}" if self.unit else ""
        sign = "≥" if self.at_least else "≤"
        shown = f"{self.result}{unit}" if self.result else ""
        return f"| {self.what} | {self.figures} | {shown} | {sign} {self.goal:g}{unit} | {reached} |"
