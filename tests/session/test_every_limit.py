"""Every limit holds for runs and for cells, behind every kind of walls, with and without control groups."""

import asyncio
from dataclasses import dataclass, field

import pytest

from sandbox_kernel import ExecRequest, ExecResult, Limits, Status
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.jail.ending import LIMITS, Ending
from sandbox_kernel.limits import Limit
from sandbox_kernel.session.open_session import open_session
from tests.jail.walls_and_groups import TIERS, Tier

pytestmark = pytest.mark.usefixtures("nothing_left")


@dataclass(frozen=True)
class Greedy:
    """A program that goes beyond a limit and holds on to what it has, and how it may end."""

    code: str
    ends: tuple[Status, ...]
    limits: Limits = field(default_factory=Limits)
    timeout: float = 20
    memory_mb: int = 256


GREEDY = {
    "timeout": Greedy("while True: pass", (Status.TIMEOUT,), timeout=0.5),
    "cpu": Greedy("while True: pass", (Status.CPU_LIMIT,), Limits(cpu_seconds=0.3)),
    "memory": Greedy("x = [bytearray(1 << 20) for _ in range(400)]", (Status.MEMORY_EXCEEDED,), memory_mb=96),
    # Threads count like processes. Where the kernel refuses one too many, the program is told so and lives on.
    "processes": Greedy(
        "import threading, time\nstop, said = threading.Event(), 'went beyond'\nthreading.stack_size(1 << 18)\ntry:\n"
        "  for _ in range(60): threading.Thread(target=stop.wait, daemon=True).start()\n"
        "except RuntimeError: said = 'refused'\n"
        "time.sleep(1); print(said); stop.set()",
        (Status.OK, Status.KILLED),
        Limits(processes=12),
    ),
    "disk": Greedy(
        "held = []\nimport time\nfor i in range(40):\n  f = open(f'f{i}', 'wb', 0); held.append(f); f.write(b'x' * (1 << 20))\n"
        "  time.sleep(0.005)",
        (Status.FAILED, Status.KILLED),
        Limits(disk_mb=8),
    ),
    "open_files": Greedy("held = [open('/dev/null') for _ in range(99)]", (Status.FAILED,), Limits(open_files=48)),
    "output": Greedy("print('x' * 5000)", (Status.OK,), Limits(output_bytes=1000)),
}


def test_every_limit_is_tried() -> None:
    # Fuel is a limit of WebAssembly alone, which the engine counts.
    assert GREEDY.keys() == set(Limit) - {"fuel", "gpu_memory"}
    # That of a GPU is tried where there is one: tests/jail/test_gpu.py.
    assert {ending.limit for ending in LIMITS} - {"gpu_memory"} <= GREEDY.keys()
    assert {ending.limit for ending in Ending} - {None} == {ending.value for ending in LIMITS}


@pytest.fixture(params=TIERS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ProcessBackend:
    tier: Tier = request.param
    tier.enter(monkeypatch)
    return ProcessBackend(ProcessConfig(pool_size=0), tier.enforcer)


def run(backend: ProcessBackend, program: Greedy) -> ExecResult:
    request = ExecRequest(
        language="python",
        code=program.code,
        timeout=program.timeout,
        memory_limit_mb=program.memory_mb,
        limits=program.limits,
    )
    return asyncio.run(backend.execute(request))


def cell(backend: ProcessBackend, program: Greedy) -> ExecResult:
    with open_session(backend, "python", memory_mb=program.memory_mb, limits=program.limits) as session:
        session.run("kept = 1")
        result = session.run(program.code, timeout=program.timeout)
        after = session.run("kept")
        assert after.ok and after.displays[0].data["text/plain"] == "1", after
        return result


@pytest.mark.parametrize("how", [run, cell])
@pytest.mark.parametrize("limit", GREEDY)
@pytest.mark.one_case
def test_a_limit_holds_and_is_named(backend: ProcessBackend, limit: str, how: object) -> None:
    program = GREEDY[limit]
    result = how(backend, program)  # type: ignore[operator]
    assert result.limit == limit, result
    assert result.status in program.ends, result
    assert "went beyond" not in result.stdout
