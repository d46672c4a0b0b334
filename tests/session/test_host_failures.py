"""A session on a host in trouble: a typed error or the right result, and the state is never lost by it."""

import pytest

from benchmarks.soak_faults import empty_groups, without_descriptors
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.model import Status
from sandbox_kernel.session.cell.run_cell import Cell
from sandbox_kernel.session.open_session import open_session


def test_without_descriptors_a_cell_runs_or_is_refused_and_its_count_is_right(nothing_left: None) -> None:
    told, ran = [], 0
    with open_session(ProcessBackend(ProcessConfig(pool_size=0))) as session:
        session.run("x = 0")
        for left in range(8):
            with without_descriptors(left):
                try:
                    ran += session.run("x += 1").ok
                except SandboxError as error:
                    told.append(str(error))
        assert session.run("print(x)").stdout == f"{ran}\n"
    assert told
    assert [text for text in told if "Too many open files" not in text] == []


@pytest.mark.slow
def test_without_descriptors_a_cell_that_times_out_still_goes_back(nothing_left: None) -> None:
    with open_session(ProcessBackend(ProcessConfig(pool_size=0))) as session:
        session.run("x = 1")
        ended = 0
        for left in range(1, 4):
            with without_descriptors(left):
                try:
                    result = session.run("x = 2\nwhile True: pass", timeout=0.2)
                except BackendUnavailable:
                    continue
            assert (result.status, result.rolled_back) == (Status.TIMEOUT, True)
            ended += 1
        assert ended
        assert session.run("print(x)").stdout == "1\n"


@pytest.mark.slow
def test_without_descriptors_no_session_opens_and_the_reason_is_told(nothing_left: None) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))
    with without_descriptors(2), pytest.raises(SandboxError, match="Too many open files"):
        open_session(backend)
    open_session(backend).close()


def test_a_host_that_cannot_go_on_watching_takes_the_cell_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Cell) -> None:
        raise OSError(28, "No space left on device")

    with open_session(ProcessBackend()) as session:
        session.run("x = 1")
        with monkeypatch.context() as patch:
            patch.setattr(Cell, "at_tick", fails)
            with pytest.raises(BackendUnavailable, match="No space left on device"):
                session.run("x = 2\nwhile True: pass")
        assert session.run("print(x)").stdout == "1\n"


def test_an_error_of_the_callers_listener_passes_as_it_is() -> None:
    def on_output(stream: str, text: str) -> None:
        raise BrokenPipeError("my own")

    with open_session(ProcessBackend()) as session, pytest.raises(BrokenPipeError, match="my own"):
        session.run("print(1)", on_output=on_output)


@pytest.mark.slow
def test_a_host_that_cannot_find_out_who_speaks_does_not_wait_in_vain(
    monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("sandbox_kernel.session.worker.channel.inner_pid", refuse)
    with pytest.raises(BackendUnavailable, match="Too many open files"):
        open_session(ProcessBackend(ProcessConfig(pool_size=0)))


@pytest.mark.skipif(find_hierarchies() is None, reason="no control group can be made here")
@pytest.mark.slow
def test_a_session_whose_control_group_was_removed_is_begun_anew_and_says_why(nothing_left: None) -> None:
    with open_session(ProcessBackend(ProcessConfig(pool_size=0)), memory_mb=128) as session:
        session.run("x = 1")
        assert empty_groups() > 0
        result = session.run("y = bytearray(b'1') * (400 << 20)")
        assert (result.status, result.rolled_back) == (Status.KILLED, False)
        assert "removed the sandbox's control group" in result.notes[-1]
        assert session.run("bytearray(b'1') * (400 << 20)").status is Status.MEMORY_EXCEEDED
