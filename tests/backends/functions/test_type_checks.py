"""Type hints of host functions: what meets them, what does not, and what the program is told."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict, TypeVar

import pytest

from sandbox_kernel.backends.functions.type_checks import Mismatch, UnknownHint, make_check


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
        (float, 3, 3),
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
        (Literal["a", 1], 1, 1),
        (Annotated[int, "positive"], 4, 4),
        (Colour, "red", Colour.RED),
        (Place, {"town": "Ulm"}, {"town": "Ulm"}),
    ],
)
def test_a_value_that_meets_its_hint_is_passed_on(hint: object, value: object, expected: object) -> None:
    found = make_check(hint)(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (int, "3", "must be int, got str"),
        (int, True, "must be int, got bool"),
        (float, True, "must be float, got bool"),
        (int, 1.0, "must be int, got float"),
        (str, None, "must be str, got None"),
        (bytes, "text", "must be bytes, got str"),
        (list[int], [1, "2"], "item 1 must be int, got str"),
        (list, {"a": 1}, "must be list, got dict"),
        (tuple[int, str], [1], "must be tuple[int, str], got list"),
        (set[int], [[1]], "item 0 must be int, got list"),
        (set, [[1]], "must be set, and holds a list or dict"),
        (dict[str, int], {"a": "b"}, "item 'a' must be int, got str"),
        (int | None, "x", "must be int | None, got str"),
        (Literal["a", 1], True, "must be Literal['a', 1], got bool"),
        (Colour, "blue", "must be one of 'red', got 'blue'"),
        (Place, {"street": "x"}, "must have the key 'town'"),
        (Place, {"town": "Ulm", "zip": "1"}, "has the unknown key 'zip'"),
        (Place, {"town": 1}, "item 'town' must be str, got int"),
        (Place, [], "must be Place, got list"),
    ],
)
def test_a_value_that_does_not_meet_its_hint_is_refused_in_words(hint: object, value: object, message: str) -> None:
    with pytest.raises(Mismatch) as caught:
        make_check(hint)(value)
    assert str(caught.value) == message


@pytest.mark.parametrize("hint", [Path, Callable[[], int], dict[int, str], list[Path], complex])
def test_a_hint_that_no_program_can_meet_is_an_error_at_once(hint: object) -> None:
    with pytest.raises(UnknownHint):
        make_check(hint)
