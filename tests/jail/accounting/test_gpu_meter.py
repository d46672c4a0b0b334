"""The count of memory on accelerators, from a driver's list that the test writes."""

import pytest

from sandbox_kernel.errors import EnforcerUnavailable, InvalidRequest
from sandbox_kernel.jail.accounting import gpu_meter
from sandbox_kernel.jail.accounting.gpu_meter import GpuMeter, check_gpu_limit
from sandbox_kernel.limits import MIB
from sandbox_kernel.policy.gpu import GpuRule


class Listed:
    """A driver's list."""

    def __init__(self, held_mb: dict[int, int]) -> None:
        self.held_mb = held_mb

    def by_process(self) -> dict[int, int]:
        return {pid: held * MIB for pid, held in self.held_mb.items()}


@pytest.mark.parametrize(
    ("limit_mb", "held_mb", "exceeded", "peak_mb"),
    [
        (100, {1: 40, 2: 60, 9: 5000}, False, 100),
        (100, {1: 40, 2: 61}, True, 101),
        (None, {1: 40}, False, 40),
        (None, None, False, None),
    ],
    ids=["others do not count", "one megabyte more", "without a limit", "a driver that cannot be asked"],
)
def test_processes_of_the_sandbox_count_together_and_no_others(
    limit_mb: int | None,
    held_mb: dict[int, int] | None,
    exceeded: bool,
    peak_mb: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_meter, "open_counts", lambda: "no driver" if held_mb is None else Listed(held_mb))
    seen = GpuMeter(lambda: [1, 2, 3], limit_mb)
    assert seen.exceeded() is exceeded
    assert seen.peak_bytes == (None if peak_mb is None else peak_mb * MIB)


def test_a_limit_without_a_gpu_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidRequest, match=r"gpu_memory_mb=8 limits nothing.*--gpu"):
        check_gpu_limit(8, None)


def test_a_limit_that_cannot_be_held_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_meter, "open_counts", lambda: "the driver is deaf")
    with pytest.raises(EnforcerUnavailable, match="8 MB on the card cannot be held: the driver is deaf"):
        check_gpu_limit(8, GpuRule())
    check_gpu_limit(None, GpuRule())
