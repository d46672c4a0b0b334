"""What the host keeps for a worker between cells, bounded."""

from __future__ import annotations

import pytest

from sandbox_kernel.session.worker import worker
from sandbox_kernel.session.worker.messages import DisplayShown
from sandbox_kernel.session.worker.worker import JailedWorker


@pytest.mark.attack("O05", "session")
def test_displays_of_background_threads_fill_no_more_than_one_frame_of_the_hosts_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "_MAX_STRAY_BYTES", 1000)
    kept = JailedWorker.__new__(JailedWorker)
    kept._strays = []
    for size in (400, 900, 400, 201, 200):
        kept._keep_stray(DisplayShown(0, 0, "display", {"text/plain": "x"}, {}, None, size))
    assert [stray.size for stray in kept.take_strays()] == [400, 400, 200]
    assert worker.MAX_FRAME == 16 << 20
