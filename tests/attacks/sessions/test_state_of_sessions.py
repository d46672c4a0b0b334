"""The state of a session survives cells that attack the session itself, and the host answers in time."""

import shutil
from collections.abc import Iterator

import pytest

from sandbox_kernel import Limits, ProcessConfig, Sandbox, SessionError, Status
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker import gate_client
from tests.attacks.sessions.cells import CELLS, KEPT_AT_ONCE, WORKER
from tests.conftest import need

#: How each language keeps a value, and how it is asked for it.
STATE = {
    "python": ("kept = 41", "print('kept', kept)"),
    "command": ("kept=41", "echo kept $kept"),
    "javascript": ("globalThis.kept = 41", "console.log('kept', kept)"),
}
ALL = [(language, name) for language, cells in CELLS.items() for name in cells]


@pytest.fixture
def session(request: pytest.FixtureRequest, nothing_left: None) -> Iterator[Session]:
    language = getattr(request, "param", "python")
    if language == "javascript":
        need(shutil.which("node"), "node is not installed")
    with Sandbox(config=ProcessConfig(pool_size=0)) as box:
        # V8 alone reserves more than a Python worker uses.
        memory_mb = 512 if language == "javascript" else 256
        with box.session(language, memory_mb=memory_mb, limits=Limits(disk_mb=32, processes=32)) as opened:
            assert opened.run(STATE[language][0]).ok
            yield opened


@pytest.mark.parametrize(("session", "name"), ALL, indirect=["session"], ids=[f"{a} that {b}" for a, b in ALL])
@pytest.mark.one_case
def test_the_session_has_its_state_after_a_cell(session: Session, name: str) -> None:
    language = str(session.language)
    code, taken_back = CELLS[language][name]
    # Only cells that may be taken back may hang; the others have time on a busy machine.
    result = session.run(code, timeout=3 if True in taken_back else 30)
    assert result.rolled_back in taken_back, (result.status, result.notes, result.stderr[-500:])
    tell = STATE[language][1]
    assert any(told(session, tell) for _ in range(3)), "the state is lost"


def told(session: Session, tell: str) -> bool:
    """Whether the value is there; if not, what the cell left is taken back, together with this very question."""
    try:
        again = session.run(tell, timeout=5)
        if again.stdout.endswith("kept 41\n"):
            return True
        if not again.rolled_back:
            session.undo(2)
    except SessionError:  # what the cell left could not be worked with, and was taken back
        return False
    return False


@pytest.mark.parametrize("then", ["", "\ntime.sleep(100)"], ids=["and ends", "and waits"])
@pytest.mark.slow
def test_a_cell_that_shuts_the_channel_down_for_everybody_is_not_waited_for(
    then: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who waits for an answer that cannot come any more does so for longer than any test may take.
    monkeypatch.setattr(gate_client, "PATIENCE_S", 3600.0)
    result = session.run(WORKER + "worker.channel._socket.shutdown(socket.SHUT_RDWR)" + then, timeout=1000)
    assert result.status is Status.KILLED
    assert any("state is lost" in note for note in result.notes), result.notes
    assert session.run("print('a new one')", timeout=20).stdout == "a new one\n"


@pytest.mark.parametrize("name", KEPT_AT_ONCE)
@pytest.mark.one_case
def test_the_session_goes_on_with_its_state_after_a_cell_that(name: str, session: Session) -> None:
    code, taken_back = KEPT_AT_ONCE[name]
    result = session.run(code, timeout=3)
    assert result.rolled_back is taken_back, (result.status, result.notes, result.stderr[-500:])
    again = session.run("print('kept', kept)", timeout=20)
    assert again.stdout.endswith("kept 41\n"), (again.status, again.notes, again.stderr[-500:])


@pytest.mark.parametrize("cell", ["import os\nos.kill(-1, 15)", "import os\nos.kill(-1, 1)\nos.kill(-1, 12)"])
@pytest.mark.one_case
def test_what_was_sent_to_a_frozen_state_does_not_end_it_when_it_wakes(cell: str, session: Session) -> None:
    session.run(cell)
    session.undo()
    for _ in range(2):
        assert session.run("print('kept', kept)").stdout == "kept 41\n"


@pytest.mark.slow
def test_going_back_to_a_state_that_the_cell_has_killed_loses_nothing(session: Session) -> None:
    assert session.run("import os\nos.kill(-1, 9)\nnewer = 42").ok
    with pytest.raises(SessionError, match=r"is gone.*nothing was taken back, and the session is as it was"):
        session.undo()
    assert session.run("print(kept, newer)").stdout == "41 42\n"
    assert session.undo().rolled_back
    assert session.run("print(kept, newer)").stdout == "41 42\n"


@pytest.mark.parametrize(
    "cell",
    [
        "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (1, 1))",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
        "import sys\nsys.modules.clear()",
    ],
)
@pytest.mark.one_case
def test_a_worker_that_cannot_freeze_any_more_is_not_waited_for(cell: str, session: Session) -> None:
    session.run(cell)
    try:
        session.run("1", timeout=20)
    except SessionError as error:
        assert "did not answer" not in str(error)
        assert session.run("print('kept', kept)").stdout == "kept 41\n"
    else:
        session.undo(2)
        assert session.run("print('kept', kept)").stdout == "kept 41\n"
