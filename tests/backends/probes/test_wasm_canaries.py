"""A promise of the wasm backend is believed only with its control. The backend is a fake that can fail in every way."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sandbox_kernel.backends.base import EnforcedLimits
from sandbox_kernel.backends.probes import wasm_canaries
from sandbox_kernel.backends.probes.wasm_canaries import _INSIDE, _OUTSIDE, _TRIALS, measured
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import ExecRequest, ExecResult, Status
from sandbox_kernel.policy import SandboxPolicy

Answer = Callable[[ExecRequest], ExecResult]
POLICY = SandboxPolicy.preset("standard")


class Fake:
    """A backend that holds, but for what ``instead`` answers."""

    policy = POLICY
    enforcer = SimpleNamespace(name="fake")

    def __init__(self, instead: Callable[[ExecRequest], ExecResult | None] = lambda _: None) -> None:
        self.instead = instead
        self.runs = 0

    def run(self, request: ExecRequest) -> ExecResult:
        self.runs += 1
        return self.instead(request) or self.holds(request)

    def holds(self, request: ExecRequest) -> ExecResult:
        code = str(request.code)
        if '(func)) (func (export "_start"))' in code:
            raise InvalidRequest("no such call")
        if code == _OUTSIDE:
            return ExecResult(status=Status.FAILED, exit_code=4 * len(request.env))
        if code == _INSIDE:
            return ExecResult(status=Status.FAILED, exit_code=3)
        for trial in _TRIALS.values():
            if getattr(trial, "over", None) == request:
                return ended(request)
        return ExecResult(status=Status.OK, exit_code=0)


def ended(request: ExecRequest) -> ExecResult:
    """As a limit ends it, told by what the request limits."""
    if request.limits.cpu_seconds is not None:
        return ExecResult(status=Status.CPU_LIMIT, limit="cpu")
    if request.timeout < 1:
        return ExecResult(status=Status.TIMEOUT, limit="timeout")
    if request.memory_limit_mb == 1:
        return ExecResult(status=Status.OK, limit="memory")
    if request.limits.disk_mb == 1:
        return ExecResult(status=Status.OK, limit="disk")
    return ExecResult(status=Status.OK, limit="output", stdout_truncated=True)


def broken(promises: EnforcedLimits) -> list[str]:
    return [name for name, promise in promises.items() if not promise]


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm_canaries, "_found", {})


def test_a_backend_that_holds_keeps_every_promise() -> None:
    assert broken(measured(Fake())) == []


def test_a_backend_that_lets_everything_through_keeps_none() -> None:
    def through(request: ExecRequest) -> ExecResult:
        return ExecResult(status=Status.OK, exit_code=0xFF if request.code in (_OUTSIDE, _INSIDE) else 0)

    assert broken(measured(Fake(through))) == list(_TRIALS)


def test_a_limit_whose_control_fails_too_is_not_believed() -> None:
    def stops_all(request: ExecRequest) -> ExecResult | None:
        limits = ("timeout", "memory", "cpu", "disk", "output")
        below = [getattr(_TRIALS[name], "below", None) for name in limits]
        return ExecResult(status=Status.FAILED, exit_code=1) if request in below else None

    # The control of what is refused is the module that prints, too.
    calls = ["network_isolation", "processes", "syscall_filter"]
    assert set(broken(measured(Fake(stops_all)))) == {"timeout", "memory", "cpu", "disk", "output", *calls}


@pytest.mark.parametrize(
    ("program", "code", "missing"),
    [
        (_INSIDE, 0, ["filesystem_read_isolation", "filesystem_write_isolation"]),
        (_INSIDE, 1, ["filesystem_write_isolation"]),
        (_OUTSIDE, 0, ["environment_isolation"]),
    ],
)
def test_folders_that_nobody_could_use_and_an_environment_that_nobody_sees_prove_nothing(
    program: str, code: int, missing: list[str]
) -> None:
    def useless(request: ExecRequest) -> ExecResult | None:
        return ExecResult(exit_code=code) if request.code == program else None

    assert broken(measured(Fake(useless))) == missing


def test_it_is_tried_once_and_again_when_asked_and_tells_how_far_it_is() -> None:
    fake, heard = Fake(), []
    measured(fake, on_progress=lambda done, total: heard.append((done, total)))
    first = fake.runs
    measured(fake)
    assert fake.runs == first
    measured(fake, again=True)
    assert fake.runs == 2 * first
    assert heard == [(number, len(_TRIALS)) for number in range(1, len(_TRIALS) + 1)]
