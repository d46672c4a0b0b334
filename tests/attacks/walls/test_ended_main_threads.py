"""Hostile programs that end their main thread and go on in another: they are counted and ended like all others."""

import asyncio

import pytest

from sandbox_kernel import ExecRequest, ExecResult, Limits, Status
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.model import NoteKind
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session
from tests.jail.headless import END_MAIN_THREAD
from tests.jail.walls_and_groups import TIERS, Tier

pytestmark = pytest.mark.usefixtures("nothing_left")

#: ``BODY`` runs in ``CHILDREN`` children whose main threads have ended; the program then waits to be ended, or ends.
PROGRAM = (
    END_MAIN_THREAD
    + """
import threading, time
def work():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z": time.sleep(0.001)
    BODY
    time.sleep(30); os._exit(0)
for _ in range(CHILDREN):
    if os.fork() == 0:
        threading.Thread(target=work).start()
        end_main_thread()
time.sleep(SECONDS)
"""
)


def program(body: str, children: int = 1, seconds: float = 30) -> str:
    return PROGRAM.replace("BODY", body).replace("CHILDREN", str(children)).replace("SECONDS", str(seconds))


@pytest.fixture(params=TIERS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ProcessBackend:
    tier: Tier = request.param
    tier.enter(monkeypatch)
    return ProcessBackend(ProcessConfig(pool_size=0), tier.enforcer)


def run(backend: ProcessBackend, code: str, **limits: object) -> ExecResult:
    return asyncio.run(backend.execute(ExecRequest(language="python", code=code, timeout=25, **limits)))


@pytest.mark.one_case
def test_memory_of_processes_whose_main_threads_have_ended_is_limited(backend: ProcessBackend) -> None:
    hold = "x = bytearray(60 << 20); x[::4096] = b'x' * len(x[::4096])"
    result = run(backend, program(hold, 4), memory_limit_mb=128)
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "memory"), result


@pytest.mark.one_case
@pytest.mark.slow
def test_deleted_files_of_a_process_whose_main_thread_has_ended_count_as_disk(backend: ProcessBackend) -> None:
    fill = (
        "held = [os.open(f'f{i}', os.O_CREAT | os.O_RDWR) for i in range(40)]\n"
        "    [os.unlink(f'f{i}') for i in range(40)]\n"
        "    try:\n"
        "        for fd in held: os.write(fd, b'x' * (1 << 20)); time.sleep(0.01)\n"
        "        open('held', 'w')\n"
        "    except OSError: pass"
    )
    code = program(fill, 1, 5) + "print('held 40 MB' if os.path.exists('held') else 'less')"
    result = run(backend, code, limits=Limits(disk_mb=8))
    assert result.limit == "disk", result
    assert "held 40 MB" not in result.stdout


@pytest.mark.one_case
def test_a_process_whose_main_thread_has_ended_ends_with_its_run(backend: ProcessBackend) -> None:
    assert run(backend, program("pass", 3, 0.3)).status is Status.OK
    # ``nothing_left`` looks for what is left of it.


@pytest.mark.slow
def test_a_process_whose_main_thread_has_ended_does_not_survive_the_rollback_of_its_cell(
    backend: ProcessBackend,
) -> None:
    count = """
import os
def name(pid):
    try: return open(f"/proc/{pid}/comm").read()
    except OSError: return ""
sum(name(pid) == "survivor\\n" for pid in os.listdir("/proc") if pid.isdigit())
"""
    with open_session(backend, "python") as session:
        session.run("kept = 1")
        ended = session.run(program("ctypes.CDLL(None).prctl(15, b'survivor', 0, 0, 0)", 2), timeout=2)
        assert (ended.status, ended.rolled_back) == (Status.TIMEOUT, True), ended
        after = session.run(count)
        assert after.displays[0].data["text/plain"] == "0"


@pytest.mark.one_case
def test_a_worker_that_ends_its_own_main_thread_is_ended_with_its_cell(backend: ProcessBackend) -> None:
    hide = END_MAIN_THREAD + (
        "import threading, time\n"
        "def work():\n"
        "    x = [bytearray(1 << 20) for _ in range(200)]\n"
        "    time.sleep(30)\n"
        "threading.Thread(target=work).start()\nend_main_thread()"
    )
    with open_session(backend, "python", memory_mb=128) as session:
        session.run("kept = 1")
        ended = session.run(hide, timeout=10)
        # Where memory is refused and not counted, the thread ends of that, and the worker with it.
        assert ended.status in (Status.MEMORY_EXCEEDED, Status.KILLED), ended
        if not kept(session):
            # The kernel does not see a process without a main thread when it looks for one to end, and takes another: a
            # checkpoint, or all of the sandbox (docs/security.md). The result says what is lost.
            told = {note.kind for note in ended.notes}
            assert told & {NoteKind.STATE_LOST, NoteKind.ROLLED_BACK, NoteKind.ROLLED_BACK_FURTHER}, ended


@pytest.mark.one_case
def test_a_cell_whose_worker_has_no_main_thread_any_more_is_not_waited_for(backend: ProcessBackend) -> None:
    hide = f"{END_MAIN_THREAD}import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\nend_main_thread()"
    with open_session(backend, "python") as session:
        session.run("kept = 1")
        ended = session.run(hide, timeout=300)
        assert (ended.status, ended.rolled_back) == (Status.KILLED, True), ended
        assert kept(session)


def kept(session: Session) -> bool:
    return session.run("print(globals().get('kept'))").stdout == "1\n"
