"""Functions that a caller gives to a sandbox: checked before anything runs, and described to a model."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import enum
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict, TypeVar

import pytest

from sandbox_kernel import FunctionLimits, InvalidRequest, Sandbox
from sandbox_kernel.backends.functions.host_function import (
    check_hint,
    convert,
    make_function,
    make_functions,
    plain_signature,
)


def search(query: str, *, limit: int = 10) -> list[str]:
    """Find things."""
    return [query] * limit


class Tool:
    def method(self, number: int) -> int:
        return number

    def __call__(self, text: str) -> str:
        return text


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ([], {}, "search() missing a required argument: 'query'"),
        (["a", 3], {}, "search() too many positional arguments"),
        (["a"], {"more": 1}, "search() got an unexpected keyword argument 'more'"),
        ([1], {}, "search() argument 'query': Expected `str`, got `int`"),
        (["a"], {"limit": "b"}, "search() argument 'limit': Expected `int`, got `str`"),
    ],
)
def test_wrong_arguments_are_told_as_python_tells_them(
    args: list[object], kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        make_function("search", search).bind(args, kwargs)
    assert str(caught.value) == message


def test_every_argument_of_a_variadic_function_is_checked() -> None:
    def total(*numbers: int, **named: float) -> float:
        return sum(numbers) + sum(named.values())

    made = make_function("total", total)
    bound = made.bind([1, 2], {"x": 0.5})
    assert total(*bound.args, **bound.kwargs) == 3.5
    with pytest.raises(TypeError, match="argument 'numbers': Expected `int`, got `str`"):
        made.bind([1, "2"], {})
    with pytest.raises(TypeError, match="argument 'y': Expected `float`, got `null`"):
        made.bind([], {"y": None})


def test_hints_of_methods_partials_and_callable_objects_are_checked() -> None:
    assert make_function("f", lambda a, b=None: a).bind([{"x": [1]}], {}).args == ({"x": [1]},), "it has no hints"
    for call, bad in ((Tool().method, "x"), (Tool(), 1), (functools.partial(search, limit=1), 1)):
        with pytest.raises(TypeError, match="Expected"):
            make_function("tool", call).bind([bad], {})


def no_hint(path: Path) -> None: ...


def late_hint(item: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([search], "dict of names"),
        ({"search": 3}, "must be a function"),
        ({"my search": search}, "no name for a function"),
        ({3: search}, "no name for a function"),
        ({"class": search}, "cannot be used inside"),
        ({"_private": search}, "cannot be used inside"),
        ({"HostError": search}, "cannot be used inside"),
        ({"f": no_hint}, "parameter 'path' of f: Path cannot be sent"),
        ({"f": late_hint}, "cannot be resolved"),
        ({f"f{number}": search for number in range(501)}, "at most 500"),
    ],
)
def test_functions_that_cannot_be_called_from_inside_are_refused(functions: object, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make_functions(functions)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"calls": 0}, {"calls": 1.5}, {"bytes": 0}, {"seconds": 0}, {"seconds": "x"}, {"seconds": float("nan")}]
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match=rf"function_limits\.{next(iter(wrong))}"):
        FunctionLimits(**wrong)  # type: ignore[arg-type]


def test_functions_of_a_session_are_added_to_those_of_the_sandbox() -> None:
    before = make_functions({"search": search}, FunctionLimits(calls=5))
    both = make_functions({"tool": Tool()}, before=before)
    assert both is not None
    assert (list(both.functions), both.limits.calls) == (["search", "tool"], 5)
    assert make_functions({}) is None


def test_the_listing_shows_signature_and_documentation() -> None:
    def odd(size: int = 3, where: object = object()) -> None: ...

    made = make_functions({"search": search, "odd": odd})
    assert made is not None
    assert made.listing() == [
        ["search", "(query: str, *, limit: int = 10) -> list[str]", "Find things."],
        ["odd", "(size: int = 3, where: object = ...) -> None", ""],
    ]
    assert plain_signature(made.functions["search"]).startswith("(query")


class Colour(enum.Enum):
    RED = "red"


class Place(TypedDict):
    town: str
    street: NotRequired[str]


Anything = TypeVar("Anything")
UserId = NewType("UserId", int)


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Any, {"a": [1]}, {"a": [1]}),
        (object, None, None),
        (Anything, 1, 1),
        (UserId, 7, 7),
        (None, None, None),
        (bool, True, True),
        (int, 3, 3),
        (float, 3, 3.0),
        (float, 0.5, 0.5),
        (str, "ä", "ä"),
        (bytes, b"\0", b"\0"),
        (list, [1, "a"], [1, "a"]),
        (list[int], [1, 2], [1, 2]),
        (Sequence[str], ["a"], ["a"]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (tuple, [1], (1,)),
        (set[str], ["a", "a"], {"a"}),
        (frozenset[int], [1], frozenset({1})),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Mapping[str, list[int]], {"a": [1]}, {"a": [1]}),
        (int | None, None, None),
        (str | bytes, b"a", b"a"),
        (Iterable[int], [1], [1]),
        (Literal["a", 1], 1, 1),
        (Annotated[int, "positive"], 4, 4),
        (Colour, "red", Colour.RED),
        (Place, {"town": "Ulm"}, {"town": "Ulm"}),
    ],
)
def test_a_value_that_meets_its_hint_is_passed_on(hint: object, value: object, expected: object) -> None:
    found = convert(value, hint)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (int, "3", "Expected `int`, got `str`"),
        (int, True, "Expected `int`, got `bool`"),
        (float, True, "Expected `float`, got `bool`"),
        (int, 1.0, "Expected `int`, got `float`"),
        (bytes, "AAAA", "Expected `bytes`, got `str`"),
        (list[int], [1, "2"], "Expected `int`, got `str` - at `$[1]`"),
        (tuple[int, str], [1], "Expected `array` of length 2, got 1"),
        (set, [[1]], "unhashable type: 'list'"),
        (dict[str, int], {"a": "b"}, "Expected `int`, got `str` - at `$[...]`"),
        (str | bytes, 1, "Expected `str | bytes`, got `int`"),
        (Literal["a", 1], True, "Expected `int | str`, got `bool`"),
        (Colour, "blue", "Invalid enum value 'blue'"),
        (Place, {"street": "x"}, "Object missing required field `town`"),
        (Place, {"town": 1}, "Expected `str`, got `int` - at `$.town`"),
    ],
)
def test_a_value_that_does_not_meet_its_hint_is_refused_in_words(hint: object, value: object, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        convert(value, hint)
    assert str(caught.value) == message


@dataclasses.dataclass
class Built:
    """Its code would run on the host, with what a program sends, before the call is counted."""

    text: str


@pytest.mark.parametrize(
    "hint",
    [Path, Callable[[], int], list[Path], complex, dict[str, str | bytes], Built, dict[int, str], list[datetime.date]],
)
def test_a_hint_that_no_program_can_meet_is_an_error_at_once(hint: object) -> None:
    with pytest.raises(TypeError, match="cannot be sent by a program"):
        check_hint(hint)


def find(query: str, kind: Literal["a", "b"] = "a", *, limit: int | None = None) -> list[dict[str, Any]]:
    """Search the catalogue.

    Finds everything.
    """
    return []


def rows(table: str) -> Iterator[bytes]:
    yield b""


def test_python_gets_signatures_that_parse_with_the_classes_that_they_take() -> None:
    with Sandbox(functions={"find": find, "rows": rows, "draw": draw}) as box:
        text = box.describe_functions()
    ast.parse(text)
    assert text.startswith("from host import find, rows, draw\n")
    assert (
        "def find(query: str, kind: Literal['a', 'b'] = 'a', *, limit: int | None = None) -> list[dict[str, Any]]:"
        in text
    )
    assert "\n# Search the catalogue.\n#\n# Finds everything.\ndef find(" in text
    assert "class Point(TypedDict):\n    x: int\n    label: NotRequired[str]\n" in text
    assert "class Shape(TypedDict):\n    points: list[Point]\n    colour: Colour\n" in text
    assert "RED = 'red'" in text and "def draw(shape: Shape) -> Iterator[Point]:" in text


def test_javascript_gets_names_with_signatures_and_the_shell_command_lines() -> None:
    with Sandbox(functions={"find": find, "rows": rows}) as box:
        names, lines = box.describe_functions("typescript"), box.describe_functions("command")
    assert names.startswith("declare const host: {\n  /// find(query: str, kind: Literal['a', 'b'] = 'a', ")
    assert "  /// rows(table: str) -> Iterator[bytes]\n  rows(...given: any[]): any;\n}" in names
    assert lines.startswith("# find(query: str, kind: Literal['a', 'b'] = 'a', *, limit: int | None = None) -> ")
    assert "\n# Search the catalogue.\n#\n# Finds everything.\nhost find [ARGUMENT | NAME=VALUE] ...\n" in lines


class Point(TypedDict):
    x: int
    label: NotRequired[str]


class Shape(TypedDict):
    points: list[Point]
    colour: Colour


def draw(shape: Shape) -> Iterator[Point]:
    yield {"x": 1}


class Tree(TypedDict, total=False):
    name: str
    children: list[Tree]


def quoted(colour: Colour = Colour.RED, most: float = math.inf) -> Tree:
    'Paint "it" \\'
    return {"name": "", "children": []}


def windows(*, path: str, deep: bool = False) -> None: ...


def test_python_gets_signatures_that_parse_whatever_defaults_and_documentation_hold() -> None:
    with Sandbox(functions={"quoted": quoted, "windows": windows}) as box:
        text, lines = box.describe_functions(), box.describe_functions("command")
    ast.parse(text)
    itself = "class Tree(TypedDict, total=False):\n    name: str\n    children: list[Tree]\n"
    assert text.count(itself) == 1, "a dictionary that holds itself is told once"
    declared = "def quoted(colour: Colour = 'red', most: float = float('inf')) -> Tree: ..."
    assert f'# Paint "it" \\\n{declared}\n' in text
    assert "# windows(*, path: str, deep: bool = False) -> None\nhost windows " in lines
