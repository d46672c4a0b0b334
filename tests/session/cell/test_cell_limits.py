"""Limits of a single cell in a session that began with others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import InvalidRequest, Language, Limits, ProcessConfig, Sandbox, Session, SessionError, Status
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.languages.registry import availability
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


@pytest.mark.parametrize("memory_mb", [8, 10_000])
@pytest.mark.one_case
def test_memory_that_a_cell_cannot_have_is_refused_with_what_it_can(session: Session, memory_mb: int) -> None:
    with pytest.raises(InvalidRequest, match=rf"cannot have {memory_mb} MB: it began with 256 MB and takes 16 to"):
        session.run("kept.append(3)", memory_mb=memory_mb)
    assert session.run("len(kept)").displays[0].data["text/plain"] == "2"


@pytest.mark.parametrize(
    "wrong", [{"memory_mb": 0}, {"memory_mb": True}, {"cpu_seconds": -1}, {"output_bytes": -1}, {"output_bytes": 1.5}]
)
@pytest.mark.one_case
def test_a_limit_that_is_none_is_refused_before_anything_runs(session: Session, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
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
