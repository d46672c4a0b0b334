"""The result of a probe of a kernel, and the probed features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.kernel_client import RunningKernel
from benchmarks.kernel_programs import Programs


@dataclass(frozen=True)
class Finding:
    """One cell of the table: a mark (✓ works, ~ in part, ✗ does not, – does not apply) and what was seen."""

    mark: str
    seen: str = ""

    def __str__(self) -> str:
        return f"{self.mark} {self.seen}".strip()


def works(good: bool, seen: str = "") -> Finding:
    """Return a finding that is either ✓ or ✗."""
    return Finding("✓" if good else "✗", seen)


@dataclass(frozen=True)
class Feature:
    """One row of the table. ``ends_kernel``: the kernel cannot be used after this probe."""

    title: str
    probe: Callable[[RunningKernel, Programs], Finding]
    ends_kernel: bool = False
