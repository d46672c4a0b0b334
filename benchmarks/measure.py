"""Measures cases in turns and prints medians, 95th percentiles and ratios to the first row."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(cases: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each case. Each round runs every case once, so that load affects all of them."""
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
    """Return the 95th percentile."""
    return sorted(values)[max(0, round(len(values) * 0.95) - 1)]


def table(title: str, times: Mapping[str, list[float]], *, base: str | None = None, note: str = "") -> str:
    """Return a Markdown table: median, 95th percentile, smallest, and the ratio of medians to the base row."""
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
    """Return one line about this machine."""
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{platform.machine()}, {os.cpu_count()} cores, {system}, load {os.getloadavg()[0]:.1f}"
