"""The count of memory on accelerators, from a driver's list that the test writes."""

from __future__ import annotations

import pytest

from sandbox_kernel.errors import EnforcerUnavailable, InvalidRequest
from sandbox_kernel.jail.accounting import gpu_meter
from sandbox_kernel.jail.accounting.gpu_meter import GpuMeter, check_gpu_limit
from sandbox_kernel.limits import MIB
from sandbox_kernel.policy.gpu import GpuRule


class Listed:
    """A driver's list."""

    def __init__(self, **held: int) -> None:
        self.held = {int(pid.removeprefix("p")): mb * MIB for pid, mb in held.items()}

    def by_process(self) -> dict[int, int]:
        return self.held


def meter(limit_mb: int | None, **held: int) -> GpuMeter:
    return GpuMeter(lambda: [1, 2, 3], limit_mb, Listed(**held))


def test_processes_of_the_sandbox_count_together_and_no_others() -> None:
    seen = meter(100, p1=40, p2=60, p9=5000)
    assert not seen.exceeded()
    assert seen.peak_bytes == 100 * MIB


def test_one_megabyte_more_is_exceeded() -> None:
    assert meter(100, p1=40, p2=61).exceeded()


def test_without_a_limit_only_the_peak_is_seen() -> None:
    seen = meter(None, p1=40)
    assert not seen.exceeded()
    assert seen.peak_bytes == 40 * MIB


def test_a_driver_that_cannot_be_asked_counts_nothing() -> None:
    seen = GpuMeter(lambda: [1], None, None)
    assert not seen.exceeded()
    assert seen.peak_bytes is None


def test_a_limit_without_a_gpu_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidRequest, match=r"gpu_memory_mb=8 limits nothing.*--gpu"):
        check_gpu_limit(8, None)


def test_a_limit_that_cannot_be_held_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_meter, "open_counts", lambda: "the driver is deaf")
    with pytest.raises(EnforcerUnavailable, match="8 MB on the card cannot be held: the driver is deaf"):
        check_gpu_limit(8, GpuRule())
    check_gpu_limit(None, GpuRule())
