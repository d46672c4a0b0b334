"""How benchmarks here measure and print: interleaved rounds, medians, 95th percentiles, ratios to the first row."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(cases: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each case, one of each per round, so that a busy second hits all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        case()
    for _ in range(rounds):
        for name, case in cases.items():
            began = time.perf_counter()
            case()
            times[name].append((time.perf_counter() - began) * 1e3)
    return times


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[max(0, round(len(values) * 0.95) - 1)]


def table(title: str, times: Mapping[str, list[float]], *, base: str | None = None, note: str = "") -> str:
    """A Markdown table: median, 95th percentile, smallest, and the ratio of medians to the base row."""
    base = base or next(iter(times))
    whole = statistics.median(times[base])
    rows = [f"### {title}", "", f"| | median ms | p95 ms | min ms | ÷ {base} |", "|---|---|---|---|---|"]
    for name, values in times.items():
        median = statistics.median(values)
        rows.append(f"| {name} | {median:.2f} | {p95(values):.2f} | {min(values):.2f} | {median / whole:.2f} |")
    if note:
        rows += ["", note]
    return "\n".join(rows) + "\n"


def machine() -> str:
    """One line about where this ran."""
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{platform.machine()}, {os.cpu_count()} cores, {system}, load {os.getloadavg()[0]:.1f}"
