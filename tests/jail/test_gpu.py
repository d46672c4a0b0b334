"""A real accelerator behind the walls. Skipped where there is none; ``tests/from_wheels.sh`` runs it where there is."""

import importlib.util
import os
from collections.abc import Iterator

import pytest

from sandbox_kernel import Limits, Sandbox, SandboxPolicy, Status
from sandbox_kernel.jail.accounting.gpu_meter import Nvml, open_counts
from sandbox_kernel.model import NoteKind

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


def test_a_session_says_when_it_begins_to_use_the_card_and_goes_back_to_before_that(box: Sandbox) -> None:
    session = box.session("python", memory_mb=ROOM_MB)
    assert session.run("import torch; x = 1", timeout=120).ok
    used = session.run("y = torch.ones(8, device='cuda'); float(y.sum())", timeout=120)
    assert used.displays[-1].data["text/plain"] == "8.0", used.stderr[-2000:]
    assert [note.kind for note in used.notes] == [NoteKind.STATE_ON_GPU]
    assert session.run("y += 1; float(y.sum())", timeout=120).displays[-1].data["text/plain"] == "16.0"
    ended = session.run("import os; os.kill(os.getpid(), 9)", timeout=120)
    assert ended.rolled_back
    again = session.run("x, 'y' in globals(), float(torch.ones(8, device='cuda').sum())", timeout=120)
    assert again.displays[-1].data["text/plain"] == "(1, False, 8.0)", again.stderr[-2000:]
    assert not session.close()


def test_memory_of_the_card_that_another_program_left_is_not_read(box: Sandbox) -> None:
    """What the driver does with released memory, as seen from inside: fresh memory holds nothing of an earlier run."""
    write = "import torch\nx = torch.full((256 << 18,), 1234567.0, device='cuda'); torch.cuda.synchronize()"
    assert box.run(write, "python", timeout=120, memory_mb=ROOM_MB).ok
    read = "import torch\nx = torch.empty(1024 << 18, device='cuda')\nprint(int((x == 1234567.0).sum()))"
    result = box.run(read, "python", timeout=120, memory_mb=ROOM_MB)
    assert result.stdout == "0\n", result.stderr[-2000:]


def test_a_named_state_with_tensors_is_copied_and_comes_back(box: Sandbox) -> None:
    session = box.session("python", memory_mb=ROOM_MB, limits=Limits(disk_mb=4096))
    session.run("import torch", timeout=120)
    made = session.run(
        "model = torch.nn.Linear(64, 64).cuda(); rows = torch.arange(6.0, device='cuda'); part = rows[2:]", timeout=120
    )
    assert made.ok, made.stderr[-2000:]
    session.checkpoint("trained")
    assert session.run("total = float(model.weight.sum()); rows += 100", timeout=120).ok
    killed = session.run("import os; os.kill(os.getpid(), 9)", timeout=120)
    kinds = [note.kind for note in killed.notes]
    assert NoteKind.LOST_ON_GPU in kinds and NoteKind.COPY_LOADED in kinds, killed.notes
    back = session.run("part += 1; rows.tolist(), str(rows.device), next(model.parameters()).is_cuda", timeout=120)
    shown = back.displays[-1].data["text/plain"]
    assert shown == "([0.0, 1.0, 3.0, 4.0, 5.0, 6.0], 'cuda:0', True)", back.stderr[-2000:]
    session.close()


def test_the_report_measures_the_card(box: Sandbox) -> None:
    lines = {line.name: line for line in box.report(fresh=True).lines if line.area == "gpu"}
    assert len(lines) == 4
    for name in ("memory of the card", "read what another program left on the card", "stay on the card after the kill"):
        assert lines[name].enforced is True, lines[name]
    with Sandbox() as other:
        shut = [line for line in other.report(fresh=True).lines if line.area == "gpu"]
    assert [(line.name, line.enforced) for line in shut] == [("open a card that is not allowed", True)], shut
