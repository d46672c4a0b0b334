"""The text about host functions that a model gets."""

from __future__ import annotations

import ast
import enum
import math
from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from sandbox_kernel import InvalidRequest, Sandbox
from sandbox_kernel.backends.functions.describe import typescript_type


def search(query: str, kind: Literal["a", "b"] = "a", *, limit: int | None = None) -> list[dict[str, Any]]:
    """Search the catalogue.

    Finds everything.
    """
    return []


def rows(table: str) -> Iterator[bytes]:
    yield b""


def test_python_gets_signatures_that_parse() -> None:
    with Sandbox(functions={"search": search, "rows": rows}) as box:
        text = box.describe_functions()
    ast.parse(text)
    assert text.startswith("from host import search, rows\n")
    assert (
        "def search(query: str, kind: Literal['a', 'b'] = 'a', *, limit: int | None = None) -> list[dict[str, Any]]:"
        in text
    )
    assert '"""Search the catalogue.\n\n    Finds everything.\n    """' in text


def test_javascript_gets_types_and_the_shell_command_lines() -> None:
    with Sandbox(functions={"search": search, "rows": rows}) as box:
        types, lines = box.describe_functions("typescript"), box.describe_functions("command")
    wanted = 'search(query: string, options?: { kind?: "a" | "b"; limit?: number | null }): Array<Record<string, any>>;'
    assert wanted in types
    assert "rows(table: string): Iterable<Uint8Array>;" in types
    assert lines == ("host search QUERY [kind=KIND] [limit=LIMIT]  # Search the catalogue.\nhost rows TABLE\n")


def test_parameters_that_typescript_writes_otherwise_are_still_types() -> None:
    def joined(default: str, *new: int) -> str: ...
    def mixed(*parts: str, sep: str = "") -> None: ...

    with Sandbox(functions={"joined": joined, "mixed": mixed}) as box:
        types = box.describe_functions("typescript")
    assert "joined(default_: string, ...new_: Array<number>): string;" in types
    assert "mixed(...parts: Array<any>): null;" in types


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(TypedDict):
    x: int
    label: NotRequired[str]


class Shape(TypedDict):
    points: list[Point]
    colour: Colour


def draw(shape: Shape) -> Iterator[Point]:
    yield {"x": 1}


def test_classes_that_a_function_takes_are_told_with_it() -> None:
    with Sandbox(functions={"draw": draw}) as box:
        types, text = box.describe_functions("typescript"), box.describe_functions()
    point = "{ x: number; label?: string }"
    assert f'draw(shape: {{ points: Array<{point}>; colour: "red" | "blue" }}): Iterable<{point}>;' in types
    ast.parse(text)
    assert "class Point(TypedDict):\n    x: int\n    label: NotRequired[str]\n" in text
    assert "class Shape(TypedDict):\n    points: list[Point]\n    colour: Colour\n" in text
    assert "RED = 'red'" in text and "def draw(shape: Shape) -> Iterator[Point]:" in text


def test_a_sandbox_without_functions_describes_none() -> None:
    with Sandbox() as box:
        assert box.describe_functions() == ""


@pytest.mark.parametrize(
    ("hint", "shown"),
    [(tuple[int, str], "[number, string]"), (tuple[int, ...], "Array<number>"), (set, "Array<any>"), (object, "any"),
     (bool | None, "boolean | null"), (dict, "Record<string, any>")],
)  # fmt: skip
def test_types_have_their_counterparts(hint: object, shown: str) -> None:
    assert typescript_type(hint) == shown


class Tree(TypedDict):
    name: str
    children: list[Tree]


def quoted(colour: Colour = Colour.RED, most: float = math.inf) -> Tree:
    'Paint "it"'
    return {"name": "", "children": []}


def windows(*, path: str, deep: bool = False) -> None:
    r"""Read C:\users\new.

    Ends with \
    """


def slashed() -> None:
    "One line \\"


def test_python_gets_signatures_that_parse_whatever_defaults_and_documentation_hold() -> None:
    with Sandbox(functions={"quoted": quoted, "windows": windows, "slashed": slashed}) as box:
        text, lines = box.describe_functions(), box.describe_functions("command")
    functions = [each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef)]
    parsed = {each.name: (ast.get_docstring(each) or "").strip() for each in functions}
    assert parsed == {
        "quoted": 'Paint "it"', "windows": "Read C:\\users\\new.\n\nEnds with \\", "slashed": "One line \\"
    }  # fmt: skip
    assert "def quoted(colour: Colour = 'red', most: float = float('inf')) -> Tree:" in text
    assert "host windows path=PATH [deep=DEEP]" in lines


def test_a_dictionary_that_holds_itself_is_told_once_and_is_no_argument() -> None:
    with Sandbox(functions={"quoted": quoted}) as box:
        types, text = box.describe_functions("typescript"), box.describe_functions()
    assert "{ name: string; children: Array<any> };" in types
    assert text.count("class Tree(TypedDict):\n    name: str\n    children: list[Tree]\n") == 1

    def plant(tree: Tree) -> None: ...

    with pytest.raises(InvalidRequest, match="parameter 'tree' of plant: its type hint holds itself"):
        Sandbox(functions={"plant": plant})
