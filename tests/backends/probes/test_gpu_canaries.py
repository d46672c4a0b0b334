"""The lines of the report about accelerators, with made-up answers; ``tests/jail/test_gpu.py`` has a real card."""

import json
from collections.abc import Callable

import pytest

from sandbox_kernel.backends.probes import capabilities
from sandbox_kernel.backends.probes.canaries import Measurement
from sandbox_kernel.model import ExecRequest, ExecResult, Status
from sandbox_kernel.policy.gpu import FoundGpu, GpuRule

CARDS = ("/dev/card0", "/dev/card1", "/dev/shared")


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {None: (), GpuRule((0,)): ("/dev/card0", "/dev/shared"), GpuRule(): CARDS}
    monkeypatch.setattr(capabilities, "gpu_devices", lambda: CARDS)
    monkeypatch.setattr(capabilities, "find_gpu", lambda rule: FoundGpu(allowed[rule]))
    monkeypatch.setattr(capabilities.os, "access", lambda path, mode: True)


def opens(*reached: str) -> Callable[[ExecRequest], ExecResult]:
    def run(request: ExecRequest) -> ExecResult:
        asked = json.loads(request.args[0]) if request.args else []
        return ExecResult(stdout=json.dumps({path: "" if path in reached else "No such file" for path in asked}))

    return run


def first(run: Callable[[ExecRequest], ExecResult], rule: GpuRule | None) -> Measurement:
    return capabilities.measure_gpu(run, rule, "walls")[0]


def test_a_machine_without_a_card_has_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "gpu_devices", lambda: ())
    assert capabilities.measure_gpu(opens(), None, "walls") == []


@pytest.mark.parametrize(
    ("rule", "reached", "enforced"),
    [
        (None, (), True),
        (None, ("/dev/card1",), False),
        (GpuRule((0,)), ("/dev/card0", "/dev/shared"), True),
        (GpuRule((0,)), CARDS, False),
        # The control fails: what is allowed cannot be opened, or nothing is forbidden.
        (GpuRule((0,)), (), None),
        (GpuRule(), CARDS, None),
    ],
)
def test_a_card_that_is_not_allowed_must_not_be_seen(
    cards: None, rule: GpuRule | None, reached: tuple[str, ...], enforced: bool
) -> None:
    assert first(opens(*reached), rule).enforced is enforced


def test_a_machine_whose_cards_are_all_allowed_has_nothing_to_forbid(cards: None) -> None:
    assert first(opens(*CARDS), GpuRule()).absent is True


def test_a_program_that_says_nothing_proves_nothing(cards: None) -> None:
    assert first(lambda request: ExecResult(status=Status.FAILED), None).enforced is None


def line(name: str, answer: Callable[[ExecRequest], ExecResult]) -> Measurement:
    found = capabilities.measure_gpu(answer, GpuRule(), "walls")
    return next(each for each in found if each.name == name)


@pytest.mark.parametrize(
    ("over", "below", "enforced"),
    [("gpu_memory", "ok", True), (None, "ok", False), ("gpu_memory", "failed", None)],
)
def test_the_limit_counts_only_if_less_is_allowed(cards: None, over: str | None, below: str, enforced: bool) -> None:
    def run(request: ExecRequest) -> ExecResult:
        return ExecResult(limit=over) if "hold(4096)" in request.code else ExecResult(status=Status(below))

    assert line("memory of the card", run).enforced is enforced


@pytest.mark.parametrize(("found", "enforced"), [("0", True), (str(256 << 20), False), ("", None)])
def test_what_another_program_left_must_not_be_read(cards: None, found: str, enforced: bool) -> None:
    def run(request: ExecRequest) -> ExecResult:
        return ExecResult(stdout=str(64 << 20) if "fill(place, 0x5A" in request.code else found)

    assert line("read what another program left on the card", run).enforced is enforced
