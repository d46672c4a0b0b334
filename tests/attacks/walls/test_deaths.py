"""Attacks on the life of hosts, workers and neighbours: who dies, who must not, and whose result is whose."""

import asyncio
import os
import secrets
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from sandbox_kernel import ExecRequest, ExecResult, Language, ProcessBackend, ProcessConfig, Status
from sandbox_kernel.jail.rules.landlock import landlock_abi
from tests.attacks.harness import MARK, running

ROOT = Path(__file__).resolve().parents[3]

#: A host of its own: argv is the enforcer and the mark; what it runs leaves its session, and its output is handed on.
#: With spares it runs in one that a template forked, and others wait beside it.
HOST = f"""
import sys
from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.backends.base import RunContext
code, seconds = sys.argv[3], float(sys.argv[4])
request = ExecRequest(language=Language.PYTHON, code=code, timeout=seconds, env={{"{MARK}": sys.argv[2]}})
spares = int(sys.argv[5])
backend = ProcessBackend(ProcessConfig(pool_size=spares), sys.argv[1])
if spares:
    backend.warm(Language.PYTHON)
    while backend._pool.spares() < spares: pass
backend.run(request, RunContext(on_output=lambda stream, text: print(text, end="", flush=True)))
"""
DAEMON = "import os, time\nif os.fork() == 0: os.setsid()\nelse: print('up', flush=True)\ntime.sleep(60)"


def host(enforcer: str, mark: str, code: str, temporary: Path, spares: int = 0) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    argv = [sys.executable, "-c", HOST, enforcer, mark, code, "60", str(spares)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)


def ended(watches: list[int], seconds: float) -> bool:
    """Whether all of these processes (as pidfds) end within a time."""
    poll = select.poll()
    for watch in watches:
        poll.register(watch, select.POLLIN)
    waiting = set(watches)
    while waiting:
        found = poll.poll(seconds * 1000)
        if not found:
            return False
        for watch, _ in found:
            poll.unregister(watch)
            waiting.discard(watch)
            os.close(watch)
    return True


@pytest.mark.parametrize(
    ("enforcer", "spares"),
    [
        pytest.param("bubblewrap", 0, id="bubblewrap", marks=pytest.mark.attack("K08", "bubblewrap")),
        pytest.param("bubblewrap", 2, id="pool", marks=pytest.mark.attack("K08", "pool")),
        pytest.param(
            "landlock",
            0,
            id="landlock",
            marks=[
                pytest.mark.attack("K08", "landlock"),
                pytest.mark.skipif(landlock_abi() < 6, reason="needs a kernel whose Landlock keeps signals in (6.12)"),
            ],
        ),
    ],
)
@pytest.mark.one_case
def test_a_host_that_is_killed_takes_its_sandboxes_with_it(enforcer: str, spares: int, tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    mark = secrets.token_hex(8)
    with host(enforcer, mark, DAEMON, tmp_path, spares) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "up\n"
        inside = [process.pid for process in psutil.Process(killed.pid).children(recursive=True)]
        watches = [os.pidfd_open(pid) for pid in inside]
        assert len(watches) >= 3
        killed.send_signal(signal.SIGKILL)
    assert ended(watches, 20)
    assert running(mark, killed.pid) == []
    with host(enforcer, mark, "print('next')", tmp_path) as again:
        assert again.stdout is not None
        assert again.stdout.read() == "next\n"
    assert os.listdir(tmp_path) == [], "the next start did not sweep what the dead host left"


def request(code: str) -> ExecRequest:
    return ExecRequest(language=Language.PYTHON, code=code, timeout=60)


@pytest.mark.attack("K07", "pool")
def test_a_program_that_kills_itself_costs_no_neighbour_and_the_pool_goes_on() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=2))
    backend.warm(Language.PYTHON)

    def run(number: int) -> ExecResult:
        suicide = "import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
        return backend.run(request(suicide if number % 2 else f"print('alive', {number})"))

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(run, range(12)))
    for number, result in enumerate(results):
        if number % 2:
            assert (result.status, result.signal, result.stdout) == (Status.KILLED, 9, "last words\n"), result
        else:
            assert (result.status, result.stdout) == (Status.OK, f"alive {number}\n"), result


@pytest.mark.attack("O16", "pool")
def test_of_many_runs_at_once_half_are_cancelled_and_no_result_is_mixed_up() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=2))
    tokens = [secrets.token_hex(8) for _ in range(40)]

    async def one(number: int) -> ExecResult:
        cancel, token = asyncio.Event(), tokens[number]
        if number % 2:
            code = f"import time; print('{token}', flush=True); time.sleep(60)"
            return await backend.execute(request(code), on_output=lambda *_: cancel.set(), cancel=cancel)
        return await backend.execute(request(f"print('{token}')"))

    async def all_of_them() -> list[ExecResult]:
        return await asyncio.gather(*(one(number) for number in range(len(tokens))))

    for number, result in enumerate(asyncio.run(all_of_them())):
        assert result.stdout.strip() == tokens[number]
        assert result.status is (Status.INTERRUPTED if number % 2 else Status.OK), result
