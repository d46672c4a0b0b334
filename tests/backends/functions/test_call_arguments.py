"""Which parameters the arguments of JavaScript and the words of a shell mean."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.backends.functions.call_arguments import bind_message
from sandbox_kernel.backends.functions.call_values import BadValue, RawBytes
from sandbox_kernel.backends.functions.host_function import make_function


def save(data: dict[str, Any]) -> None: ...
def put(name: str, data: dict[str, Any], flag: bool = False) -> None: ...
def search(query: str, limit: int = 5) -> None: ...
def anything(value: object = None, *rest: int, **named: str) -> None: ...
def only(*, key: str) -> None: ...


def bound(call: Any, **message: object) -> dict[str, object]:
    return dict(bind_message(make_function("f", call), message, RawBytes()).arguments)


@pytest.mark.parametrize(
    ("call", "args", "expected"),
    [
        (save, [{"a": 1}], {"data": {"a": 1}}),
        (save, [{"data": {"a": 1}}], {"data": {"data": {"a": 1}}}),
        (save, [{"a": 1}, {}], {"data": {"a": 1}}),
        (put, ["n", {"a": 1}], {"name": "n", "data": {"a": 1}}),
        (put, ["n", {"a": 1}, {"flag": True}], {"name": "n", "data": {"a": 1}, "flag": True}),
        (search, ["x", {"limit": 3}], {"query": "x", "limit": 3}),
        (search, [{"query": "x", "limit": 3}], {"query": "x", "limit": 3}),
        (anything, [{"value": 1}], {"value": 1}),
        (anything, [{"1": 1}], {"value": {"1": 1}}),
        (only, [{"key": "x"}], {"key": "x"}),
    ],
)
def test_an_object_behind_the_required_arguments_holds_keyword_arguments(
    call: object, args: list[object], expected: dict[str, object]
) -> None:
    assert bound(call, args=args, object=True) == expected


def test_an_object_that_fits_in_no_way_is_told_as_the_types_have_it() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'more'"):
        bound(search, args=["x", {"more": 3}], object=True)


@pytest.mark.parametrize(
    ("call", "words", "expected"),
    [
        (search, ["2024", "limit=3"], {"query": "2024", "limit": 3}),
        (search, ["true", "7"], {"query": "true", "limit": 7}),
        (search, ["query=null"], {"query": "null"}),
        (search, ["a=b"], {"query": "a=b"}),
        (search, ['"quoted"'], {"query": "quoted"}),
        (search, [""], {"query": ""}),
        (save, ['{"a": [1]}'], {"data": {"a": [1]}}),
        (anything, ["1", "2", "3", "x=4"], {"value": 1, "rest": (2, 3), "named": {"x": "4"}}),
        (anything, ["[" * 9999], {"value": "[" * 9999}),
        (only, ["key=a=b"], {"key": "a=b"}),
    ],
)
def test_a_word_is_json_where_that_fits_the_function_and_else_text(
    call: object, words: list[str], expected: dict[str, object]
) -> None:
    assert bound(call, words=words) == expected


def test_words_that_fit_in_no_way_are_told() -> None:
    with pytest.raises(TypeError, match="argument 'limit' must be int, got str"):
        bound(search, words=["x", "limit=many"])
    with pytest.raises(TypeError, match="missing a required argument: 'query'"):
        bound(search, words=[])
    with pytest.raises(BadValue, match="nested"):
        bound(anything, words=["[" * 100 + "]" * 100])


@pytest.mark.parametrize(
    "words",
    [
        ["[" + "[]," * 200_000 + "[]]"],
        ["value=[" + "[]," * 200_000 + "[]]"],
        [" [" + "[]," * 60_000 + "[]]"] * 4,
        ['{"a":[' + "1," * 400_000 + "1]}"],
    ],
    ids=["one", "by name", "several", "numbers"],
)
def test_a_word_that_becomes_too_many_values_is_refused_before_it_is_parsed(words: list[str]) -> None:
    with pytest.raises(BadValue, match="more than 320000"):
        bound(anything, words=words)


def test_a_long_word_that_is_text_stays_text() -> None:
    table = "name,age\n" * 200_000
    assert bound(search, words=[table]) == {"query": table}


def test_a_number_in_a_word_is_no_larger_than_one_in_an_argument() -> None:
    assert bound(anything, words=["9" * 400]) == {"value": "9" * 400}
    with pytest.raises(TypeError, match="must be int, got str"):
        bound(search, words=["x", "limit=" + "9" * 400])


def test_an_argument_that_is_given_twice_is_refused() -> None:
    with pytest.raises(TypeError, match="'limit' twice"):
        bound(search, words=["x", "limit=1", "limit=2"])


@pytest.mark.parametrize("other", ["args", "kwargs"])
def test_words_beside_other_arguments_are_refused(other: str) -> None:
    with pytest.raises(BadValue, match="not both"):
        bound(search, words=["x"], **{other: ["y"] if other == "args" else {"query": "y"}})


@pytest.mark.parametrize("sent", [{"\ud800": 1, "?": 2}, {"$object": {"\ud800": 1, "?": 2}}])
def test_keys_that_become_one_are_refused(sent: dict[str, object]) -> None:
    with pytest.raises(BadValue, match="same as UTF-8"):
        bound(anything, args=[sent])
