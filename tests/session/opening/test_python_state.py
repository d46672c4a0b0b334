"""Python sessions of processes: saved, loaded elsewhere, forked; what cannot be stored is made again or named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox, SandboxPolicy
from sandbox_kernel.errors import SessionError
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree.again import can_run_again

CELLS = (
    "import math, threading\nshared = [1]; holder = {'it': shared}; k = 3",
    "def f(x, *, more=shared):\n    'a sum'\n    return x + k + len(more)\nlater = lambda: shared",
    """
class P:
    def up(self): return 1
class Q(P):
    __slots__ = ('n',)
    def up(self): return super().up() * 10
q = Q(); q.n = 5
""",
    """
def counter():
    n = 0
    def step():
        nonlocal n
        n += 1
        return n
    return step
step = counter(); step()
""",
    "import array\nbig = array.array('d', [0.5]) * 1000; open('notes.txt', 'w').write('kept')",
    "doubled = (x * 2 for x in shared)",
    "import sys; frame = sys._getframe()",
)
SEEN = "holder['it'] is shared, f(1), f.__doc__, later() is shared, q.up(), q.n, step(), len(big), list(doubled)"
EXPECTED = "(True, 5, 'a sum', True, 10, 5, 2, 1000, [2])"


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox(SandboxPolicy().allow_process_spawn()) as made:
        yield made


def filled(box: Sandbox) -> Session:
    session = box.session()
    for code in CELLS:
        result = session.run(code)
        assert result.ok, result.stderr
    return session


def shown(session: Session, expression: str) -> str:
    result = session.run(expression)
    assert result.ok, result.stderr
    return str(result.displays[-1].data["text/plain"])


def test_a_saved_session_goes_on_in_another_sandbox(box: Sandbox, tmp_path: Path) -> None:
    session = filled(box)
    report = session.save(tmp_path / "s")
    assert report.recomputed == ("doubled",)
    assert list(report.lost) == ["frame"]
    assert "frame" in report.lost["frame"]
    assert {"shared", "holder", "f", "Q", "q", "step", "big", "math"} <= set(report.stored)
    assert shown(session, SEEN) == EXPECTED, "the session itself goes on"
    with Sandbox(SandboxPolicy().allow_process_spawn()) as other:
        again = other.load_session(tmp_path / "s")
        assert again.restored == report
        assert shown(again, SEEN) == EXPECTED
        assert again.read_file("notes.txt") == b"kept"
        again.run("k = 100; big[0] = 7.0")
        assert shown(again, "f(1), big[0]") == "(102, 7.0)", "functions see the session's own variables"
        again.undo(2)
        assert shown(again, "k, big[0]") == "(3, 0.5)"
        assert "k" in again.history()[2].changed.changed


def test_dataclasses_and_functions_that_a_library_wrapped_are_stored_whole(box: Sandbox) -> None:
    session = box.session()
    made = """
import contextlib, dataclasses
@dataclasses.dataclass
class Point:
    x: int
    y: list = dataclasses.field(default_factory=list)
@contextlib.contextmanager
def inside(): yield 'in'
point = Point(1)
"""
    assert session.run(made).ok
    assert session.run("point.x = 2").ok
    with session.fork() as other:
        assert not other.restored.lost, other.restored
        assert not other.restored.recomputed
        seen = "point, dataclasses.asdict(Point(3)), point == Point(2), [f.name for f in dataclasses.fields(point)]"
        assert shown(other, seen) == "(Point(x=2, y=[]), {'x': 3, 'y': []}, True, ['x', 'y'])"
        assert shown(other, "inside().__enter__()") == "'in'"


@pytest.mark.parametrize("change", ["lines.append(next(numbers))", "list(globals().values())[0]", "alias"])
def test_what_another_cell_may_have_changed_is_lost_and_not_made_again(box: Sandbox, change: str) -> None:
    session = box.session()
    assert session.run("lines = []; alias = numbers = (n for n in range(9))").ok
    assert session.fork().restored.recomputed == ("alias", "numbers")
    assert session.run(change).ok
    assert session.run("unrelated = 1").ok
    report = session.fork().restored
    assert report.recomputed == ()
    assert {"alias", "numbers"} <= set(report.lost)


def test_a_fork_is_a_second_session_of_the_same_state(box: Sandbox) -> None:
    session = filled(box)
    other = session.fork("second")
    assert other.name == "second"
    other.run("shared.append(9)")
    assert (shown(other, "len(shared)"), shown(session, "len(shared)")) == ("2", "1")
    session.close()
    assert shown(other, "holder") == "{'it': [1, 9]}"
    other.close()


def test_saving_runs_code_of_the_variables_and_leaves_no_trace(box: Sandbox, tmp_path: Path) -> None:
    session = box.session()
    session.run(
        "class Loud:\n    seen = []\n    def __reduce__(self): self.seen.append(1); return (list, ())\nx = Loud()"
    )
    session.save(tmp_path / "s")
    assert shown(session, "x.seen") == "[]"
    assert shown(session, "__import__('os').listdir()") == "[]"


def test_a_value_that_ends_the_process_that_saves_is_an_error_and_the_session_goes_on(
    box: Sandbox, tmp_path: Path
) -> None:
    session = box.session()
    session.run("import os\nclass Deadly:\n    def __reduce__(self): os._exit(3)\nx = Deadly(); y = 1")
    with pytest.raises(SessionError, match="could not be written: the process that saved was ended"):
        session.save(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    assert shown(session, "y") == "1"


@pytest.mark.parametrize("at", [0, 100, -1])
def test_a_damaged_file_is_refused_before_anything_is_made_of_it(box: Sandbox, tmp_path: Path, at: int) -> None:
    session = box.session()
    session.run("x = 1")
    session.save(tmp_path / "s")
    data = bytearray((tmp_path / "s").read_bytes())
    data[at] ^= 1
    (tmp_path / "s").write_bytes(data)
    with pytest.raises(InvalidRequest):
        box.load_session(tmp_path / "s")


def test_a_file_of_another_version_is_refused_by_the_jail(box: Sandbox, tmp_path: Path) -> None:
    session = box.session()
    session.run("import sandbox_guest.python.save_state as state; state.VERSION = 'cpython 2.7'")
    session.save(tmp_path / "s")
    with pytest.raises(InvalidRequest, match=r"saved by cpython 2\.7, and this is cpython"):
        box.load_session(tmp_path / "s")


def test_variables_of_a_saved_session_are_made_inside_the_jail_only(box: Sandbox, tmp_path: Path) -> None:
    session = box.session()
    session.run(
        "import os\nclass Where:\n    def __reduce__(self): return (eval, ('__import__(\"os\").getcwd()',))\nx = Where()"
    )
    session.save(tmp_path / "s")
    again = box.load_session(tmp_path / "s")
    assert shown(again, "x") == shown(again, "__import__('os').getcwd()")


@pytest.mark.parametrize("code", ["x = input()", "import time", "open('f')", "np.random.rand(3)", "x = ("])
def test_a_cell_that_reaches_outside_is_not_run_again_by_itself(code: str) -> None:
    assert not can_run_again(code)
    assert can_run_again("gen = (x * 2 for x in rows)\nlock = threading.Lock()")
