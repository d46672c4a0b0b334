"""Nothing is left: no process, no descriptor, no control group, whichever way a session ends."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest

from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.jail.accounting.processes import tree
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session
from tests.waiting import until_gone

Open = Callable[..., Session]


def processes_of(session: Session) -> list[int]:
    live = session._supervisor.live
    assert live is not None
    return tree(live.jail.init_pid)


@pytest.mark.slow
def test_a_session_that_is_forgotten_ends_with_its_last_reference() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))
    session = open_session(backend)
    session.run("x = 1")
    pids = processes_of(session)
    del session
    gc.collect()
    until_gone(*pids)


@pytest.mark.attack("O16", "session")
@pytest.mark.slow
def test_twenty_sessions_at_once_keep_apart(backend: ProcessBackend) -> None:
    sessions = [open_session(backend, memory_mb=128, checkpoints=1) for _ in range(20)]
    found: dict[int, str] = {}

    def work(number: int) -> None:
        session = sessions[number]
        session.run(f"mine = {number}; open('mine', 'w').write('{number}')", timeout=120)
        session.run("mine = None; import os; os._exit(1)", timeout=120)
        found[number] = session.run("print(mine, open('mine').read())", timeout=120).stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session in sessions:
        session.close()
    assert found == {number: f"{number} {number}\n" for number in range(20)}


def run_host(program: str) -> subprocess.Popen[str]:
    code = textwrap.dedent(program)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


HOST = """
    from sandbox_kernel.backends.process import ProcessBackend
    from sandbox_kernel.session.open_session import open_session
    from sandbox_kernel.jail.accounting.processes import tree
    session = open_session(ProcessBackend())
    session.run("x = 1")
    print(*tree(session._supervisor.live.jail.init_pid), flush=True)
"""


#: In a process of its own: other tests of this one leave Jupyter clients, whose threads open and close sockets at any time.
CLOSED = """
    import gc, os, select, threading
    from sandbox_kernel.backends.process import ProcessBackend
    from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
    from sandbox_kernel.jail.accounting.processes import tree
    from sandbox_kernel.backends.process import ProcessConfig
    from sandbox_kernel.session.open_session import open_session

    def held():
        gc.collect()
        for each in threading.enumerate():  # a closed session's listener looks once a second whether it is closed
            if each.name == "sandbox-background": each.join(30)
        where = find_hierarchies()
        return len(os.listdir("/proc/self/fd")), where and os.listdir(where.memory)

    backend = ProcessBackend(ProcessConfig(pool_size=0, templates=False))
    open_session(backend).close()
    before = held()
    session = open_session(backend)
    session.run("import subprocess; p = subprocess.Popen(['setsid', 'sleep', '1000'])")
    session.run("import os; os._exit(1)")
    session.undo()
    session.run("import subprocess; p = subprocess.Popen(['setsid', 'sleep', '1000'])")
    processes = [os.pidfd_open(pid) for pid in tree(session._supervisor.live.jail.init_pid)]
    session.close()
    print("seen", len(processes) >= 4)
    print("ended", select.select(processes, [], [], 0)[0] == processes)
    for process in processes:
        os.close(process)
    print("left", held() != before, before, held())
"""


@pytest.mark.slow
def test_close_leaves_no_process_descriptor_or_group() -> None:
    said, _ = run_host(CLOSED).communicate(timeout=120)
    assert said.splitlines()[:2] == ["seen True", "ended True"]
    assert "left False" in said, said


def test_the_end_of_the_host_ends_its_sessions() -> None:
    host = run_host(HOST)
    said, _ = host.communicate(timeout=60)
    assert host.returncode == 0
    until_gone(*map(int, said.split()))


@pytest.mark.attack("K08", "session")
@pytest.mark.slow
def test_the_sudden_death_of_the_host_ends_its_sessions() -> None:
    host = run_host(HOST + "    input()")
    assert host.stdout is not None
    pids = [int(pid) for pid in host.stdout.readline().split()]
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.communicate()
    until_gone(*pids)


def test_a_fork_of_the_host_does_not_touch_the_parents_session(session: Session) -> None:
    session.run("x = 1")
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(3 if not session.alive else 4)
        finally:
            os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert session.run("x").displays[-1].data["text/plain"] == "1"
