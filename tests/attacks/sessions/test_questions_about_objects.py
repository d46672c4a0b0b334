"""Completion and inspection of objects that attack whoever looks at them: the session answers and keeps its state."""

from collections.abc import Iterator

import pytest

from sandbox_kernel import Limits, ProcessConfig, Sandbox
from sandbox_kernel.errors import SessionError
from sandbox_kernel.session.session import Session


@pytest.fixture
def session(nothing_left: None) -> Iterator[Session]:
    with Sandbox(config=ProcessConfig(pool_size=0)) as box:
        with box.session(memory_mb=256, limits=Limits(disk_mb=32, processes=32)) as opened:
            assert opened.run("kept = 41").ok
            yield opened


QUESTIONS = {
    "answers with names that are none": "class A:\n  def __dir__(self): return ['\\x1b[2J', '\\u202e', 'a\\nb', '\\udcff', '<b>']\na = A()",
    "never answers": "class A:\n  def __dir__(self):\n    while True: pass\n  def __getattr__(self, n):\n    while True: pass\na = A()",
    "answers with a million names": "class A:\n  def __dir__(self): return ['n%d' % i + 'x' * 100 for i in range(10**6)]\na = A()",
    "ends its worker": "import os\nclass A:\n  def __dir__(self): os._exit(3)\na = A()",
    "has documentation without end": "class A:\n  @property\n  def __doc__(self):\n    while True: pass\na = A()",
    "has documentation of 100 MB": "class A: pass\nA.__doc__ = 'x' * (100 << 20)\na = A()",
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.one_case
def test_a_question_about_an_object_is_answered_or_not_when_it(name: str, session: Session) -> None:
    assert session.run(QUESTIONS[name]).ok
    for answer in (session.complete("a.", 2), session.inspect("a", 1), session.complete("a.b.", 4)):
        assert len(str(answer)) < 32 << 20
    assert session.run("print('kept', kept)", timeout=20).stdout.endswith("kept 41\n")


def test_a_process_that_a_question_forked_takes_no_cell(session: Session) -> None:
    assert session.run("import os\nclass A:\n  def __dir__(self): return ['x%d' % bool(os.fork())]\na = A()").ok
    session.complete("a.", 2)
    for number in range(8):
        result = session.run(f"print({number})", timeout=5)
        assert result.ok and result.stdout == f"{number}\n", result


ENDS_CHECKPOINTS = """
import os, signal
class A:
    def __dir__(self):
        for name in os.listdir('/proc'):
            if name.isdigit() and int(name) not in (1, os.getpid()):
                os.kill(int(name), signal.SIGKILL)
        os._exit(3)
a = A()
"""


def test_a_state_that_is_lost_while_a_question_is_answered_is_told_to_the_next_cell(session: Session) -> None:
    assert session.run(ENDS_CHECKPOINTS).ok
    assert session.complete("a.", 2)["matches"] == []
    assert session.complete("kept.", 5)["matches"] == []  # nobody reads what it might raise
    with pytest.raises(SessionError, match="its state is lost; it was started anew"):
        session.run("print(kept)")
    assert session.run("print('goes on')").stdout == "goes on\n"
