"""Python sessions of processes: saved, loaded elsewhere, forked; what cannot be stored is made again or named."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox, SandboxPolicy
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree import variables
from sandbox_kernel.session.tree.variables import can_run_again

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


def run_all(session: Session, *codes: str) -> None:
    for code in codes:
        result = session.run(code)
        assert result.ok, result.stderr


def filled(box: Sandbox) -> Session:
    session = box.session()
    run_all(session, *CELLS)
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


def test_what_another_cell_may_have_changed_is_lost_and_not_made_again(box: Sandbox) -> None:
    session = box.session()
    run_all(session, "lines = []; alias = numbers = (n for n in range(9))")
    with session.fork() as other:
        assert other.restored.recomputed == ("alias", "numbers")
    for change in ("lines.append(next(numbers))", "list(globals().values())[0]", "alias"):
        run_all(session, change, "unrelated = 1")
        with session.fork() as other:
            assert other.restored.recomputed == (), change
            assert {"alias", "numbers"} <= set(other.restored.lost), change
        session.undo(2)


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


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("os._exit(3)", "Bad: the process that stored it ended, for its memory or by its code"),
        (
            "os.fork() or time.sleep(600); os._exit(3)",
            "Bad: the process that stored it ended, for its memory or by its code",
        ),
        ("while True: time.sleep(600)", "Bad: it took too long"),
    ],
)
@pytest.mark.one_case
def test_a_variable_that_ends_or_holds_up_the_process_that_saves_is_lost_and_the_others_are_stored(
    box: Sandbox, tmp_path: Path, code: str, why: str
) -> None:
    session = box.session()
    assert session.run("import sandbox_guest.python.saving as state; state.ALL_S = 10.0; del state").ok
    assert session.run(
        f"import os, time\nclass Bad:\n    def __reduce__(self):\n        {code}\ny = [1]; x = Bad(); z = y"
    ).ok
    assert session.run("x").ok, "another cell names it, so it is not made again"
    report = session.save(tmp_path / "s")
    assert report.lost == {"x": why}
    assert shown(session, "y") == "[1]"
    assert shown(box.load_session(tmp_path / "s"), "y, z is y") == "([1], True)"


def test_a_file_of_another_version_is_refused_by_the_jail(box: Sandbox, tmp_path: Path) -> None:
    session = box.session()
    session.run("import sandbox_guest.python.saving as state; state.VERSION = 'cpython 2.7'")
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


def test_a_long_cell_is_neither_parsed_nor_searched_when_variables_are_saved(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    for name in ("parse", "findall"):
        module = variables.ast if name == "parse" else variables.re
        original = getattr(module, name)

        def look(*given: str, original: Callable[..., object] = original, **more: object) -> object:
            looked.append(len(given[-1]))
            return original(*given, **more)

        monkeypatch.setattr(module, name, look)
    session.run("short = (i for i in range(3))")
    session.run("long = (i for i in range(3))\n" + "#" + "w " * variables.MOST_PARSED)
    with session.fork() as other:
        assert {"long"} <= set(other.restored.lost)
    assert max(looked, default=0) <= variables.MOST_PARSED


def test_nothing_is_looked_for_any_more_when_saving_is_stopped(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.session.python_state._MAKERS_S", -1.0)
    session.run("gen = (i for i in range(3))")
    with session.fork() as other:
        assert set(other.restored.lost) == {"gen"}


#: What a cell defines, each with an expression that is the same in a session that was loaded.
DEFINED = {
    "from enum import Enum\nclass Color(Enum):\n    RED = 1; ALSO = 1\n    def low(self): return self.name.lower()": (
        "Color.RED is red[0], Color.ALSO is Color.RED, Color(1).low(), red",
        "red = [Color.RED]",
    ),
    "import enum\nclass P(enum.Flag):\n    R = enum.auto(); W = enum.auto()": (
        "both, P.R in both, P(3) is both",
        "both = P.R | P.W",
    ),
    "from abc import ABC, abstractmethod\nclass B(ABC):\n    @abstractmethod\n    def f(self): ...\nclass D(B):\n"
    "    def f(self): return 7\nB.register(int)": (
        "d.f(), isinstance(d, B), isinstance(3, B), B.__abstractmethods__",
        "d = D()",
    ),
    "from typing import *\nT = TypeVar('T', bound=int)\nclass G(Generic[T]): pass\nclass Can(Protocol):\n    def f(self): ...": (
        "g.__orig_class__, G.__parameters__[0] is T, T.__bound__, Can.__name__",
        "g = G[int]()",
    ),
    "import functools\n@functools.lru_cache(maxsize=9)\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)": (
        "fib(30), part(), part.func is fib, fib.cache_info().maxsize",
        "part = functools.partial(fib, 3)",
    ),
    "import sys, pathlib\npathlib.Path('src').mkdir(); pathlib.Path('src/mymod.py').write_text('class K: n = 5')\n"
    "sys.path.append('src'); sys.path.insert(0, 'first')\nimport mymod": (
        "mymod.K.n, type(k) is mymod.K, sys.path[0], sys.path[-1]",
        "k = mymod.K()",
    ),
    "from typing import NamedTuple\nclass N(NamedTuple):\n    a: int\n    b: int = 2\n    def both(self): return self.a + self.b": (
        "n, n.both(), type(n) is N",
        "n = N(1)",
    ),
    "import functools\nclass W:\n    @property\n    def p(self): return 1\n    @functools.cached_property\n    def c(self): return 2": (
        "w.p, w.c, type(w) is W",
        "w = W()",
    ),
}


@pytest.mark.slow
def test_an_enum_an_abc_or_a_cache_does_not_make_a_saved_session_unloadable(box: Sandbox, tmp_path: Path) -> None:
    session = box.session()
    run_all(session, *DEFINED, *(value for _, value in DEFINED.values()), "keep = [1, 2]; also = keep")
    before = [shown(session, seen) for seen, _ in DEFINED.values()]
    report = session.save(tmp_path / "s")
    assert not report.lost, report
    assert not report.recomputed, report
    session.close()
    with Sandbox(SandboxPolicy().allow_process_spawn()) as other:
        again = other.load_session(tmp_path / "s")
        assert again.restored == report
        assert [shown(again, f"({seen})") for seen, _ in DEFINED.values()] == before
        assert shown(again, "keep, also is keep") == "([1, 2], True)"


#: What a cell makes, and why it is lost, by its name.
LOST = {
    "file": ("file = open('/dev/zero')", "it is an open file"),
    "m": ("import types, sys\nm = sys.modules['dyn'] = types.ModuleType('dyn')", "cannot import the module dyn"),
    "s": ("import ctypes\nclass S(ctypes.Structure): _fields_ = [('a', ctypes.c_int)]\ns = S()", "cannot pickle"),
    "A": (
        "class M(type):\n    def __new__(m, *a, k): return super().__new__(m, *a)\nclass A(metaclass=M, k=1): pass",
        "missing 1 required keyword-only argument",
    ),
    "once": (
        """class Once:
    n = 0
    def __reduce__(self):
        assert not Once.n, 'second'
        Once.n += 1
        return (list, ())
once = [Once()]""",
        "AssertionError: second",
    ),
    "named": (
        "class Named:\n    def __reduce__(self): return 'named'\nnamed = Named()",
        "only in the memory of this session",
    ),
}


def test_what_a_fresh_process_cannot_make_is_named_as_lost_and_never_as_stored(box: Sandbox) -> None:
    session = box.session()
    run_all(session, *(code for code, _ in LOST.values()), "keep = [1]; also = keep")
    run_all(session, "; ".join(LOST))  # another cell names them, so they are not made again
    with session.fork() as other:
        assert other.restored is not None
        for name, (_, why) in LOST.items():
            assert why in other.restored.lost[name], name
            assert name not in other.restored.stored
        assert shown(other, "keep, also is keep") == "([1], True)"


def test_a_variable_that_cannot_be_made_when_loading_does_not_take_the_others_along(
    box: Sandbox, tmp_path: Path
) -> None:
    session = box.session()
    code = """
open('/tmp/gone', 'w').write('x')
class R:
    def __init__(self, more): self.more = more
    def __setstate__(self, state): self.__dict__ = {**state, 'text': open('/tmp/gone').read()}
keep = [1]
r = R(keep); holder = {'in': (r,)}; shared = [keep, r.more]
def uses(x=r): return x
def fine(x=keep): return x
"""
    assert session.run(code).ok
    assert list(session.save(tmp_path / "s").lost) == ["tempfile.gettempdir"]
    session.close()
    with Sandbox(SandboxPolicy().allow_process_spawn()) as other:
        again = other.load_session(tmp_path / "s")
        assert again.restored is not None
        assert set(again.restored.lost) == {"r", "holder", "uses", "tempfile.gettempdir"}
        assert "No such file or directory: '/tmp/gone'" in again.restored.lost["r"]
        assert "refers to a value that could not be made" in again.restored.lost["holder"]
        assert shown(again, "R.__name__, keep, shared[0] is keep, shared[1] is keep, fine() is keep") == (
            "('R', [1], True, True, True)"
        )


# Variables that no file can hold are made again by their cell only where that makes the same value.


def test_a_variable_is_not_made_again_from_another_value_of_what_its_cell_read(box: Sandbox) -> None:
    session = box.session()
    run_all(session, "n = 5", "g = (i for i in range(n))", "m = 1")
    assert session.fork().restored.recomputed == ("g",)
    run_all(session, "n = 7")
    report = session.fork().restored
    assert not report.recomputed and list(report.lost) == ["g"]


def test_what_a_called_function_reads_belongs_to_it(box: Sandbox) -> None:
    session = box.session()
    run_all(
        session,
        "size = 5; sizes = [5]",
        "class Box: size = 5",
        "def many(): return size + sizes[0] + Box.size",
        "def more(): return many()",
        "g = (i for i in range(more()))",
    )
    with session.fork() as other:
        assert other.restored.recomputed == ("g",)
    for change in ("size = 7", "sizes[0] = 7", "def many(): return 7", "Box.size = 7"):
        run_all(session, change)
        with session.fork() as other:
            assert list(other.restored.lost) == ["g"], change
        session.undo()


def test_a_consumed_generator_that_another_one_reads_is_not_begun_anew(box: Sandbox) -> None:
    session = box.session()
    run_all(session, "first = (i for i in range(5))", "second = (i * 2 for i in first)", "seen = next(first)")
    assert sorted(session.fork().restored.lost) == ["first", "second"]


def test_what_one_cell_made_stays_together(box: Sandbox) -> None:
    session = box.session()
    run_all(session, "k = 2", "lines = []; one = two = (line * k for line in lines)")
    with session.fork() as other:
        assert other.restored.recomputed == ("one", "two")
        assert "lines" in other.restored.stored
        run_all(other, "lines.append(1); k = 100")
        assert shown(other, "one is two, list(one), lines, k") == "(True, [100], [1], 100)"
