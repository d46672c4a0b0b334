"""Cells that go for their session's own parts: whatever they do, the host answers in time and the state comes back."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from further_cells import CELLS, WORKER

from sandbox_kernel import Limits, ProcessConfig, Sandbox, SessionError, Status
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker import worker
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
def test_the_session_has_its_state_after_a_cell(session: Session, name: str) -> None:
    language = str(session.language)
    code, taken_back = CELLS[language][name]
    result = session.run(code, timeout=3)
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
def test_a_cell_that_shuts_the_channel_down_for_everybody_is_not_waited_for(
    then: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who waits for an answer that cannot come any more does so for longer than any test may take.
    monkeypatch.setattr(worker, "PATIENCE_S", 3600.0)
    result = session.run(WORKER + "worker.channel._socket.shutdown(socket.SHUT_RDWR)" + then, timeout=1000)
    assert result.status is Status.KILLED
    assert any("state is lost" in note for note in result.notes), result.notes
    assert session.run("print('a new one')", timeout=20).stdout == "a new one\n"


QUESTIONS = {
    "never answers": "class A:\n  def __dir__(self):\n    while True: pass\n  def __getattr__(self, n):\n    while True: pass\na = A()",
    "answers with a million names": "class A:\n  def __dir__(self): return ['n%d' % i + 'x' * 100 for i in range(10**6)]\na = A()",
    "answers with names that are none": "class A:\n  def __dir__(self): return ['\\x1b[2J', '\\u202e', 'a\\nb', '\\udcff', '<b>']\na = A()",
    "ends its worker": "import os\nclass A:\n  def __dir__(self): os._exit(3)\na = A()",
    "has documentation without end": "class A:\n  @property\n  def __doc__(self):\n    while True: pass\na = A()",
    "has documentation of 100 MB": "class A: pass\nA.__doc__ = 'x' * (100 << 20)\na = A()",
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_about_an_object_is_answered_or_not_when_it(name: str, session: Session) -> None:
    assert session.run(QUESTIONS[name]).ok
    for answer in (session.complete("a.", 2), session.inspect("a", 1), session.complete("a.b.", 4)):
        assert len(str(answer)) < 32 << 20
    assert session.run("print('kept', kept)", timeout=20).stdout.endswith("kept 41\n")
