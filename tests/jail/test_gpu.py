"""A real accelerator behind the walls. Skipped where there is none; ``tests/from_wheels.sh`` runs it where there is."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest

from sandbox_kernel import Limits, Sandbox, SandboxPolicy, Status
from sandbox_kernel.jail.meter.gpu_meter import Nvml, open_counts

pytestmark = pytest.mark.skipif(
    not os.path.exists("/dev/nvidia0") or importlib.util.find_spec("torch") is None,
    reason="this machine has no NVIDIA card with torch in its Python",
)

#: The memory of the process besides the card's: torch and its CUDA context.
ROOM_MB = 16_000
HOLD = "import torch\nx = torch.empty({mb} << 18, device='cuda'); x.zero_(); torch.cuda.synchronize()\n"


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox(SandboxPolicy.preset("gpu")) as made:
        yield made


def counts() -> Nvml:
    found = open_counts()
    assert isinstance(found, Nvml), found
    return found


def test_a_program_without_the_right_sees_no_card() -> None:
    with Sandbox() as box:
        result = box.run("import os; print([n for n in os.listdir('/dev') if 'nvidia' in n])", "python", timeout=60)
        assert result.stdout == "[]\n"


def test_torch_computes_on_the_card(box: Sandbox) -> None:
    code = "import torch\na = torch.ones(512, 512, device='cuda')\nprint((a @ a).sum().item())"
    result = box.run(code, "python", timeout=120, memory_mb=ROOM_MB)
    assert result.stdout == f"{512.0**3}\n", result.stderr[-2000:]
    assert result.peak_gpu_memory_bytes is not None


def test_a_program_beyond_the_cards_limit_is_ended(box: Sandbox) -> None:
    code = HOLD.format(mb=4096) + "print('held', flush=True)\nimport time; time.sleep(60)"
    result = box.run(code, "python", timeout=120, memory_mb=ROOM_MB, limits=Limits(gpu_memory_mb=2048))
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "gpu_memory"), result.stderr[-2000:]
    assert (result.peak_gpu_memory_bytes or 0) > 2048 << 20
    assert not counts().by_process()


def test_a_program_below_the_cards_limit_lives(box: Sandbox) -> None:
    code = HOLD.format(mb=1024) + "import time; time.sleep(0.5); print('fine')"
    result = box.run(code, "python", timeout=120, memory_mb=ROOM_MB, limits=Limits(gpu_memory_mb=4096))
    assert result.stdout == "fine\n", result.stderr[-2000:]
    assert 1024 << 20 < (result.peak_gpu_memory_bytes or 0) < 4096 << 20


def test_nothing_is_left_on_the_card_after_a_timeout(box: Sandbox) -> None:
    result = box.run(HOLD.format(mb=2048) + "while True: x += 1", "python", timeout=20, memory_mb=ROOM_MB)
    assert result.status is Status.TIMEOUT, result.stderr[-2000:]
    assert (result.peak_gpu_memory_bytes or 0) > 2048 << 20
    assert not counts().by_process()
