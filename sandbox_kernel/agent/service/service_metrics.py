"""What the service counts, as text for Prometheus."""

from __future__ import annotations

import threading
from collections import Counter

_BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


class ServiceMetrics:
    """Counts requests. ``ended`` may be called on any thread."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0
        self.refused = 0
        self._lock = threading.Lock()
        self._ended: Counter[str] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0

    def ended(self, status: str, seconds: float) -> None:
        """Count a program that ended."""
        with self._lock:
            self._ended[status] += 1
            self._seconds += seconds
            for bound in _BUCKETS_S:
                if seconds <= bound:
                    self._buckets[bound] += 1

    def text(self) -> str:
        """Return all values in Prometheus' text format."""
        with self._lock:
            total = self._ended.total()
            lines = [
                "# HELP sandbox_runs_total Programs that ended, by status.",
                "# TYPE sandbox_runs_total counter",
                *(f'sandbox_runs_total{{status="{name}"}} {count}' for name, count in sorted(self._ended.items())),
                "# HELP sandbox_run_seconds Time from the start of a request to its result.",
                "# TYPE sandbox_run_seconds histogram",
                *(f'sandbox_run_seconds_bucket{{le="{bound:g}"}} {self._buckets[bound]}' for bound in _BUCKETS_S),
                f'sandbox_run_seconds_bucket{{le="+Inf"}} {total}',
                f"sandbox_run_seconds_sum {self._seconds:.6f}",
                f"sandbox_run_seconds_count {total}",
                "# HELP sandbox_running Programs that run now.",
                "# TYPE sandbox_running gauge",
                f"sandbox_running {self.running}",
                "# HELP sandbox_waiting Requests that wait for a place.",
                "# TYPE sandbox_waiting gauge",
                f"sandbox_waiting {self.waiting}",
                "# HELP sandbox_refused_total Requests that were refused because the queue was full.",
                "# TYPE sandbox_refused_total counter",
                f"sandbox_refused_total {self.refused}",
            ]
        return "\n".join(lines) + "\n"
