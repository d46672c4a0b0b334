"""Between cells: what the next cell would wait for is done while the caller shows the result."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.model import ExecResult, Status
from sandbox_kernel.model.notes import NoteKind
from sandbox_kernel.session.background import BackgroundListener
from sandbox_kernel.session.cell import displays
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.session.cell.front_end import FrontEnd
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.supervisor import WorkerSupervisor
from sandbox_kernel.session.worker import jailed_worker as worker_module
from sandbox_kernel.session.worker.channel import WorkerChannel
from sandbox_kernel.session.worker.messages import Answer, CellDone, FromWorker, Frozen
from tests.jail.walls_and_groups import Tier
from tests.session.conftest import Value
from tests.session.worker.test_hostile_worker import FIND


def settled(session: Session) -> None:
    """Wait until the session's thread has nothing left to do."""
    assert session._threads is not None
    session._threads[1].submit(lambda: None).result(60)


def lives(session: Session) -> bool:
    worker = session._supervisor.live
    assert worker is not None
    return worker.tree.here.pid > 0 and not worker._freezing


def test_the_checkpoint_of_a_cell_is_taken_in_before_the_next_cell_comes(session: Session) -> None:
    asyncio.run(session.arun("x = 1"))
    settled(session)
    assert lives(session)


def test_the_state_of_every_cell_is_kept_when_cells_follow_each_other(session: Session, value: Value) -> None:
    async def many() -> None:
        for number in range(12):
            await session.arun(f"x = {number}")

    asyncio.run(many())
    session.undo(3)
    assert value(session, "x") == "8"


@pytest.mark.slow
def test_another_thread_that_has_the_turn_makes_the_worker_ready_itself(session: Session) -> None:
    with session._supervisor.lock():
        session._supervisor.make_ready()
    assert session.run("1").ok


@pytest.mark.parametrize("turn", ["the state is kept", "a question is answered"])
def test_a_cell_that_waits_for_its_session_is_stopped_at_once(session: Session, turn: str) -> None:
    async def main() -> ExecResult | None:
        stop = asyncio.Event()
        if turn == "the state is kept":
            await session.arun("import os, time\nos.register_at_fork(before=lambda: time.sleep(1000))")
        with contextlib.nullcontext() if turn == "the state is kept" else session._supervisor.lock():
            waiting = asyncio.ensure_future(session.arun("print('ran')", cancel=stop))
            asyncio.get_running_loop().call_soon(stop.set)
            await asyncio.wait({waiting}, timeout=10)
            in_time = waiting.done()
        return await waiting if in_time else None

    result = asyncio.run(main())
    assert result is not None and (result.status, result.stdout) == (Status.INTERRUPTED, "")
    assert [note.kind for note in result.notes] == [NoteKind.NOT_RUN]


def test_a_checkpoint_that_wakes_and_makes_none_itself_is_given_up(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.run("x = 1")
    worker = session._supervisor.live
    assert worker is not None
    worker.prepare()
    monkeypatch.setattr(worker_module, "WORKER_START_S", 1.0)
    monkeypatch.setattr(worker, "_order_checkpoint", lambda room=0: setattr(worker, "_freezing", True))
    os.kill(worker.channel.speaker, signal.SIGKILL)
    assert readable(worker.gate.jail.control.fileno(), 30)  # the gate tells of its end
    with pytest.raises(SessionError, match="its state is lost; it was started anew"):
        session.run("1")
    assert session.run("print('goes on')").stdout == "goes on\n"


def test_what_goes_wrong_between_cells_is_told_to_the_next_cell(session: Session) -> None:
    asyncio.run(session.arun("x = 1"))
    settled(session)
    worker = session._supervisor.live
    assert worker is not None
    os.kill(worker.channel.speaker, signal.SIGKILL)
    worker._ran(by_cell=False)
    worker.keep_state()  # as after a cell, to a worker that is dead
    session._supervisor.make_ready()
    assert session._supervisor._unready is not None
    result = session.run("print(x)")
    assert result.stdout == "1\n"
    assert [note.kind for note in result.notes] == [NoteKind.WORKER_REPLACED]
    assert session._supervisor._unready is None


def test_a_session_that_is_closed_meanwhile_stays_closed(session: Session) -> None:
    asyncio.run(session.arun("x = 1"))
    session.close()
    session._supervisor.make_ready()
    with pytest.raises(SessionError, match="is closed"):
        session.run("x")


class Heard:
    """A front end that hears what comes after the end of its cell."""

    def __init__(self) -> None:
        self.texts = threading.Semaphore(0)

    def text(self, stream: str, text: str) -> None:
        self.texts.release()

    def display(self, display: SessionDisplay) -> None:
        pass

    def cut(self) -> None:
        pass


@pytest.mark.parametrize(("most_s", "heard_on"), [(displays.MAX_WORK_S, True), (0.0, False)])
@pytest.mark.slow
def test_threads_of_a_program_are_heard_between_cells_until_the_host_has_worked_enough(
    session: Session, monkeypatch: pytest.MonkeyPatch, most_s: float, heard_on: bool
) -> None:
    monkeypatch.setattr(displays, "MAX_WORK_S", most_s)
    monkeypatch.setattr(displays, "WORK_SHARE", 0.0)
    late = Heard()
    code = "import threading, time\ngo = lambda: [(time.sleep(0.05), print('late', flush=True)) for _ in range(200)]\n"
    front_end = FrontEnd(on_reply=lambda reply: None, late=late)
    asyncio.run(session.arun(f"{code}threading.Thread(target=go, daemon=True).start()", front_end=front_end))
    heard = 0
    while heard < 20 and late.texts.acquire(timeout=60 if heard_on else 5):  # the program says 200 in ten seconds
        heard += 1
    assert (heard == 20) is heard_on
    assert session.run("1").ok


def test_a_worker_that_floods_the_channel_with_nonsense_is_read_no_more_until_the_next_cell_tells_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    stopped, hear = threading.Event(), BackgroundListener._hear

    def count(listener: BackgroundListener, supervisor: WorkerSupervisor) -> None:
        hear(listener, supervisor)
        reads.append(listener._reads)
        if listener._fd < 0:
            stopped.set()

    monkeypatch.setattr(BackgroundListener, "_hear", count)
    flood = "def flood():\n    go.wait()\n    while True: send(b'{not json')\nthreading.Thread(target=flood, daemon=True).start()"
    front_end = FrontEnd(on_reply=lambda reply: None, late=Heard())
    asyncio.run(session.arun(f"{FIND}\nimport threading; go = threading.Event()\n{flood}", front_end=front_end))
    asyncio.run(session.arun("threading.Timer(0.3, go.set).start()", front_end=front_end))
    assert stopped.wait(60)
    assert len(reads) < 10
    assert NoteKind.WORKER_ENDED in [note.kind for note in session.run("1").notes]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_front_end_that_fails_between_cells_loses_no_state(session: Session) -> None:
    class Failing(Heard):
        def text(self, stream: str, text: str) -> None:
            self.texts.release()
            raise RuntimeError("the page is gone")

    late = Failing()
    front_end = FrontEnd(on_reply=lambda reply: None, late=late)
    code = "import threading\nx = 2\nthreading.Timer(0.3, lambda: print('late', flush=True)).start()"
    asyncio.run(session.arun(code, front_end=front_end))
    assert late.texts.acquire(timeout=60)
    result = session.run("print(x)")
    assert (result.stdout, result.notes) == ("2\n", ())


def test_messages_that_wait_for_the_next_cell_are_gone_through_once() -> None:
    ours, theirs = socket.socketpair()
    channel = WorkerChannel(ours)
    with theirs:
        kept: list[FromWorker] = [Frozen(cell=number, pid=0, threads=0, reason="") for number in (1, 2)]
        channel.put_back(kept[:1])
        assert channel.read_new() == []
        channel.put_back(kept[1:])
        assert channel.read() == kept
    ours.close()


LARGE = Frozen(cell=1, pid=0, threads=0, reason="", size=20 << 20)


@pytest.mark.parametrize("kept", [CellDone(id=2, status="ok"), Answer(id=2, answer={}), LARGE])
def test_a_worker_replies_to_no_later_request_and_what_it_says_early_counts_until_it_is_taken(kept: FromWorker) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SessionError, match="more between cells than a worker has to say"):
        channel = WorkerChannel(ours)
        channel.put_back([kept])
        channel.put_back([*channel.read(), kept])
        channel.read()


#: A child that waits for a word of the test, and then takes what it is told to.
LEFT = """
import os
x = 1
if os.fork() == 0:
    while not os.path.exists("go"): pass
    held = bytearray({size})
    for place in range(0, {size}, 4096): held[place] = 1
    while True: pass
"""


#: The same, with connections to itself that nobody accepts.
LEFT_CONNECTIONS = """
import os, socket
x = 1
if os.fork() == 0:
    while not os.path.exists("go"): pass
    server = socket.create_server(("127.0.0.1", 0), backlog=4000)
    for _ in range(2500): socket.create_connection(server.getsockname()).close()
    while True: pass
"""


@pytest.mark.parametrize(
    ("enforcer", "counted_by", "left", "memory_mb"),
    # Another size with groups: no later test gets a spare that has one.
    [
        ("bubblewrap", "no groups", LEFT, 128),
        ("landlock", "no groups", LEFT, 128),
        ("bubblewrap", "groups", LEFT_CONNECTIONS, 192),
    ],
)
def test_processes_of_earlier_cells_have_limits_that_only_the_host_watches(
    monkeypatch: pytest.MonkeyPatch, enforcer: str, counted_by: str, left: str, memory_mb: int
) -> None:
    Tier(enforcer, counted_by).enter(monkeypatch)
    brought = threading.Event()
    keep = WorkerSupervisor.keep_limits
    monkeypatch.setattr(
        WorkerSupervisor,
        "keep_limits",
        lambda own, live, *, anew: (found := keep(own, live, anew=anew)) and (brought.set() or found),
    )
    with Sandbox() as box, box.session("python", memory_mb=memory_mb) as session:
        # Two of them: each alone is below what the kernel lets one process have.
        for _ in range(2):
            assert session.run(left.replace("{size}", str(100 << 20))).ok
        session.write_file("go", b"")
        assert brought.wait(60)
        after = session.run("x")
        assert after.ok and [note.kind for note in after.notes] == [NoteKind.WORKER_REPLACED]
        assert "more memory than they may" in str(after.notes[0])


AGAIN = """
import asyncio, os
async def again():
    while True:
        for _ in range(2):
            if os.fork() == 0:
                held = bytearray(100 << 20)
                for place in range(0, len(held), 4096): held[place] = 1
                while True: pass
        await asyncio.sleep(0.2)
task = asyncio.create_task(again())
"""


@pytest.mark.slow
def test_a_task_that_uses_too_much_again_and_again_is_ended_with_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    Tier("bubblewrap", "no groups").enter(monkeypatch)
    anew = threading.Event()
    again = WorkerSupervisor.again
    monkeypatch.setattr(WorkerSupervisor, "again", lambda own: (again(own), anew.set())[0])
    with Sandbox() as box, box.session("python", memory_mb=128) as session:
        session.run(AGAIN)
        assert anew.wait(120)
        with pytest.raises(SessionError, match="started anew"):
            session.run("1")
        assert session.run("print('again' in globals())").stdout == "False\n"


HUNGRY = """
import os, time
class Hungry:
    def grow(self):
        for _ in range(2):
            if os.fork() == 0:
                held = bytearray(100 << 20)
                for place in range(0, len(held), 4096): held[place] = 1
                time.sleep(600)
        time.sleep(600)
    def __dir__(self): self.grow()
    def __reduce__(self): self.grow()
x, hungry = 1, Hungry()
"""


@pytest.mark.parametrize("what", ["save", "complete"])
@pytest.mark.one_case
def test_what_answers_questions_has_the_limits_of_cells_without_a_control_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    Tier("bubblewrap", "no groups").enter(monkeypatch)
    with Sandbox() as box, box.session("python", memory_mb=128) as session:
        assert session.run(HUNGRY).ok
        if what == "save":
            with pytest.raises(SessionError, match=r"more memory than it may|worker is gone"):
                session.save(tmp_path / "s")
        else:
            session.complete("hungry.", 7)
        after = session.run("print(x)")
        assert after.ok and after.stdout == "1\n"
