"""Values: our quick ``dataclass`` keeps every promise of the library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sandbox_kernel.util.values import dataclass

Maker = Callable[..., Any]


@dataclass(frozen=True)
class Point:
    """A value with every kind of field."""

    x: int
    name: str = "here"
    tags: list[str] = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", compare=False, repr=False)
    seen: int = dataclasses.field(default=7, init=False)
    depth: int = dataclasses.field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what no point has."""
        if self.x < 0:
            raise ValueError("x must not be negative")


@dataclass(frozen=True, kw_only=True)
class Named(Point):
    """A value of a value."""

    first: str
    last: str = ""


@dataclass
class Counter:
    """A record that can be changed."""

    count: int = 0


def test_fields_are_given_by_position_by_name_and_by_default() -> None:
    point = Point(1, "there", depth=2)
    assert (point.x, point.name, point.tags, point.seen, point.depth) == (1, "there", [], 7, 2)
    assert Point(1).tags is not Point(1).tags
    assert [parameter.kind.name for parameter in inspect.signature(Point).parameters.values()][-1] == "KEYWORD_ONLY"


@pytest.mark.parametrize("wrong", [{}, {"x": 1, "y": 2}, {"x": 1, "seen": 1}])
def test_wrong_fields_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        Point(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Named("a", 1)  # type: ignore[call-arg, arg-type]


def test_values_are_checked_compared_shown_and_frozen_as_the_librarys_are() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            Point(-1)
    point = Point(1)
    assert point == Point(1, note="b") != Point(2)
    assert Named(x=1, first="a") != point
    assert point.__eq__(1) is NotImplemented
    assert repr(point).endswith("Point(x=1, name='here', tags=[], seen=7, depth=0)")
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    counter = Counter()
    counter.count = 3
    assert counter == Counter(3)


def test_a_frozen_value_has_a_hash_and_a_record_has_none() -> None:
    @dataclass(frozen=True)
    class Key:
        a: int
        b: tuple[int, ...] = ()

    assert len({Key(1), Key(1), Key(2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter())


def test_the_library_knows_our_values() -> None:
    named = Named(x=1, first="a")
    assert [field.name for field in dataclasses.fields(Named)][-2:] == ["first", "last"]
    assert dataclasses.replace(named, last="b") == Named(x=1, first="a", last="b")
    assert dataclasses.asdict(Counter(2)) == {"count": 2}
    assert dataclasses.is_dataclass(Named)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_are_equal(again: Maker) -> None:
    assert again(Point(1, tags=["a"])) == Point(1, tags=["a"])


def test_methods_that_a_class_has_itself_are_kept() -> None:
    @dataclass(frozen=True)
    class Own:
        a: int

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "own"

    assert hash(Own(1)) == 5
    assert repr(Own(1)) == "own"


def test_the_first_objects_may_be_made_by_many_threads() -> None:
    @dataclass(frozen=True)
    class Fresh:
        a: int
        b: str = "x"

    made: list[Fresh] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        made.append(Fresh(1))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [Fresh(1)] * 8


def test_the_signature_of_a_public_class_shows_its_fields_before_any_object_was_made() -> None:
    code = (
        "import inspect; from sandbox_kernel import ExecRequest, Limits; "
        "print(list(inspect.signature(ExecRequest).parameters)[:3]); print(inspect.signature(Limits))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith(
        "['language', 'code', 'timeout']\n(*, cpu_seconds: 'float | None' = None, processes: 'int' = 64"
    )
