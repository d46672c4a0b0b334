"""Limits of a single cell in a session that began with others."""

import contextlib
from collections.abc import Iterator

import pytest

from sandbox_kernel import (
    ExecResult,
    InvalidRequest,
    Language,
    Limits,
    ProcessConfig,
    Sandbox,
    Session,
    SessionError,
    Status,
)
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.languages.recipe import availability
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S
from sandbox_kernel.session.cell.request import CellEvents, LimitLift
from tests.conftest import need

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def session() -> Iterator[Session]:
    with Sandbox() as box, box.session("python", memory_mb=256) as opened:
        opened.run("kept = [1, 2]")
        yield opened


def test_a_cell_with_less_memory_is_rolled_back_and_the_next_has_the_sessions_again(session: Session) -> None:
    less = session.run("kept.append(3); x = [bytearray(1 << 20) for _ in range(100)]", memory_mb=64)
    assert (less.status, less.limit, less.memory_limit_mb) == (Status.MEMORY_EXCEEDED, "memory", 64)
    again = session.run("x = [bytearray(1 << 20) for _ in range(100)]; len(kept), len(x)")
    assert again.ok and again.memory_limit_mb == 256
    assert again.displays[0].data["text/plain"] == "(2, 100)"


def test_a_cell_shorter_than_a_tick_is_held_to_its_limits(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.session.cell.run_cell.TICK_S", 600.0)
    monkeypatch.setattr(session._supervisor.live.jail.meter, "too_many_processes", lambda: True)
    assert session.run("kept.append(3)").status is Status.KILLED


def test_a_cell_just_below_its_own_memory_limit_is_kept(session: Session) -> None:
    below = session.run("x = [bytearray(1 << 20) for _ in range(40)]; len(x)", memory_mb=96)
    assert below.ok, below.notes
    assert (session.memory_mb, session.usual_memory(64)) == (256, 64)


def test_a_state_that_is_larger_than_the_limit_of_a_cell_is_told_before_anything_runs(session: Session) -> None:
    session.run("x = [bytearray(1 << 20) for _ in range(100)]")
    with pytest.raises(SessionError, match=r"holds \d+ MB already, more than the 32 MB .*nothing was run"):
        session.run("kept.append(3)", memory_mb=32)
    assert session.run("len(kept), len(x)").displays[0].data["text/plain"] == "(2, 100)"


@pytest.mark.skipif(find_hierarchies() is None, reason="no control group counts memory here, so it cannot be raised")
@pytest.mark.slow
def test_memory_that_a_cell_was_given_is_the_sessions_from_then_on(session: Session) -> None:
    too_much = session.run("x = [bytearray(1 << 20) for _ in range(400)]")
    assert too_much.status is Status.MEMORY_EXCEEDED
    given = session.run("x = [bytearray(1 << 20) for _ in range(400)]", memory_mb=600)
    assert given.ok and "the session may use 600 MB from now on" in given.notes
    assert session.memory_mb == 600
    # What a cell had by name stays where less is usual; where more is, that holds.
    assert (session.usual_memory(64), session.usual_memory(700)) == (600, 700)
    later = session.run("len(x), len(kept)")
    assert later.displays[0].data["text/plain"] == "(400, 2)" and later.notes == ()
    session.restart()
    assert session.run("x = [bytearray(1 << 20) for _ in range(400)]").ok


_TAKES = "cannot have {memory_mb} MB: it began with 256 MB and takes 16 to"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"memory_mb": 8}, _TAKES), ({"memory_mb": 10_000}, _TAKES), ({"memory_mb": 0}, "."), ({"memory_mb": True}, "."),
     ({"cpu_seconds": -1}, "."), ({"output_bytes": -1}, "."), ({"output_bytes": 1.5}, ".")],
)  # fmt: skip
@pytest.mark.one_case
def test_a_limit_that_a_cell_cannot_have_is_refused_before_anything_runs(
    session: Session, wrong: dict[str, object], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says.format(**wrong)):
        session.run("kept.append(3)", **wrong)  # type: ignore[arg-type]
    assert session.run("len(kept)").displays[0].data["text/plain"] == "2"


@pytest.mark.slow
def test_a_cell_has_a_cpu_and_an_output_limit_of_its_own(session: Session) -> None:
    busy = session.run("while True: pass", cpu_seconds=0.3)
    assert (busy.status, busy.limit) == (Status.CPU_LIMIT, "cpu")
    short = session.run("print('x' * 5000)", output_bytes=1000)
    assert short.stdout_truncated and short.limit == "output"
    assert not session.run("print('x' * 5000)").stdout_truncated


@pytest.mark.slow
def test_a_session_with_a_cpu_limit_is_not_killed_for_what_its_cells_used_together() -> None:
    burn = "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.4: pass"
    with Sandbox() as box, box.session("python", limits=Limits(cpu_seconds=0.6)) as session:
        # The kernel's own limit for a process would be met after seven of them.
        assert [session.run(burn).status for _ in range(8)] == [Status.OK] * 8


def test_a_javascript_cell_may_have_less_and_not_more_because_its_heap_is_fixed() -> None:
    found = availability(ProcessConfig(), Language.JAVASCRIPT)
    need(found.available, found.reason)
    with Sandbox() as box, box.session("javascript", memory_mb=256) as session:
        session.run("let kept = 1")
        assert session.run("kept", memory_mb=128).memory_limit_mb == 128
        with pytest.raises(InvalidRequest, match="cannot have 512 MB"):
            session.run("kept", memory_mb=512)


#: Gives the running cell more at its first words.
ASKS = "print('give')\n"


def lifted(session: Session, code: str, timeout: float, *what: str) -> tuple[ExecResult, LimitLift]:
    lift, left = LimitLift(), list(what)

    def give(stream: str, text: str) -> None:
        while left:
            lift.give(left.pop())

    with contextlib.closing(Stop()) as stop:
        events = CellEvents(lift=lift, on_output=give)
        return session._run(session.request(ASKS + code, timeout), events, stop), lift


def test_a_person_gives_a_running_cell_more_time_and_its_result_says_how_much_it_had(session: Session) -> None:
    code = "import time; end = time.monotonic() + {0}\nwhile time.monotonic() < end: pass"
    result, _ = lifted(session, code.format(1.2), 1.0, *["time"] * 6)
    assert (result.status, result.timeout) == (Status.OK, 64.0)
    assert session.run("x = 1").timeout == DEFAULT_TIMEOUT_S
    assert lifted(session, code.format(60), 1.0)[0].status is Status.TIMEOUT


@pytest.mark.skipif(find_hierarchies() is None, reason="no control group may be made here: a session cannot grow")
def test_a_person_gives_a_running_cell_more_memory_which_its_session_keeps(session: Session) -> None:
    result, lift = lifted(session, "x = bytearray(b'1') * (400 << 20)", 60, "memory")
    assert (result.status, result.memory_limit_mb, session.memory_mb) == (Status.OK, 512, 512)
    assert "the session may use 512 MB from now on" in result.notes
    assert session.run("len(x) >> 20").displays[0].data["text/plain"] == "400"
    assert lift.next() == (0, 0)
    with pytest.raises(InvalidRequest, match="it has ended"):
        lift.give("memory")


def test_no_more_memory_is_given_than_a_session_can_grow_to() -> None:
    lift = LimitLift()
    lift.timeout_s, lift.memory_mb, lift.most_mb = 5, 400, 1000
    lift.give("memory")
    assert lift.next() == (5, 200)
    lift.give("memory")
    with pytest.raises(InvalidRequest, match="this session can have 1000 MB"):
        lift.give("memory")
    with pytest.raises(InvalidRequest, match="more disk"):
        lift.give("disk")
