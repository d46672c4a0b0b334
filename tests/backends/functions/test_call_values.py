"""Values of host functions on their way: both sides agree, and what is hostile is refused."""

import json
import math
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.backends.functions import call_values
from sandbox_kernel.backends.functions.call_values import CallMessage, bind_message
from sandbox_kernel.backends.functions.host_function import make_function
from sandbox_kernel.guest.functions.calling import Calls
from sandbox_kernel.util.wire import BadMessage

_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(1 << 1000), max_value=1 << 1000)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda part: st.lists(part) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), part),
    max_leaves=20,
)


def mirrored(value: list[object]) -> Any:
    """Return the arguments of a call as the host reads them and writes them back."""

    def exchange(data: bytes) -> bytes:
        message, raw = call_values.load(data)
        value = [call_values.decode(item, raw) for item in message.args or ()]
        text = json.dumps({"value": call_values.encode(value, back := [])}).encode()
        return b"\n".join((text, b"".join(back)))

    return Calls(exchange).call("f", value, {})


@given(_PLAIN)
def test_a_value_arrives_at_the_host_and_comes_back(value: object) -> None:
    assert mirrored([value]) == [value]


def test_dicts_that_look_like_bytes_and_numbers_that_json_lacks_arrive_in_both_directions() -> None:
    values: list[object] = [{"$bytes": "AA=="}, {"$object": {"$float": "nan"}}, {"$x": 1, "y": 2}, math.inf, -math.inf]
    assert mirrored(values) == values
    assert math.isnan(mirrored([math.nan])[0])


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        {"$bytes": "not base64!"},
        {"$bytes": 3},
        {"$bytes": -1},
        {"$bytes": 1 << 70},
        {"$float": "1.5"},
        {"$object": []},
        {"$other": 1},
        {"$bytes": "", "more": 1},
        1 << 2000,
        math.inf,
        nested(100),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_value_that_no_client_of_ours_sends_is_refused(value: object) -> None:
    with pytest.raises(BadMessage):
        call_values.decode(value, BytesIO(b"ab"))


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'{"call":[' + b"[]," * 300_000 + b"0]}",
        b'{"call": 3}',
        b'{"call": "f", "args": {}}',
        b'{"call": "f", "kwargs": []}',
        b'{"next": "x"}',
        b'{"drop": []}',
    ],
    ids=lambda data: repr(data[:12]),
)
def test_a_message_that_is_no_bounded_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        call_values.load(data)


@pytest.mark.parametrize(
    ("value", "message"),
    [({1, 2}, "set"), (object(), "object"), ({1: 2}, "key that is not text"), (nested(100), "nested deeper")],
)
def test_a_result_that_cannot_be_sent_says_why(value: object, message: str) -> None:
    with pytest.raises(BadMessage, match=message):
        call_values.encode(value)


def test_the_record_of_a_call_keeps_short_values_and_cuts_long_ones() -> None:
    assert [call_values.shortened(value) for value in (None, True, 3, 0.5, "a")] == [None, True, 3, 0.5, "a"]
    assert call_values.shortened(b"abc") == "<3 bytes>"
    assert call_values.shortened([1, "b"]) == "[1, 'b']"
    for large in ("x" * 1000, ["x"] * 100_000, {str(n): n for n in range(10_000)}, 10**500, [["y" * 10**6]]):
        assert len(str(call_values.shortened(large))) <= 200


def test_keys_without_utf8_arrive_as_text_that_can_be_written_down() -> None:
    found = call_values.decode({"\ud800": 1, "b": {"$object": {"$\udfff": 2}}}, BytesIO())
    assert found == {"?": 1, "b": {"$?": 2}}


@pytest.mark.parametrize(
    "message",
    [
        b'{"call": "a", "call": "b"}',
        b'{"call": "a", "args": [{"x": 1, "x": 2}]}',
        b'{"kwargs": {"a": {"b": 1, "b": 1}}}',
    ],
)
def test_a_key_that_stands_twice_is_refused(message: bytes) -> None:
    with pytest.raises(BadMessage, match="stands twice"):
        call_values.load(message)
    assert bound(anything, words=[message.decode()]) == {"value": message.decode()}, "no JSON, so it is text"
    assert call_values.load(b'{"call": "a", "args": [{"x": 1}, {"x": 2}]}')[0].call == "a"


def save(data: dict[str, Any]) -> None: ...
def put(name: str, data: dict[str, Any], flag: bool = False) -> None: ...
def search(query: str, limit: int = 5) -> None: ...
def anything(value: object = None, *rest: int, **named: str) -> None: ...
def only(*, key: str) -> None: ...


def bound(call: Any, **message: object) -> dict[str, object]:
    return dict(bind_message(make_function("f", call), CallMessage(**message), BytesIO()).arguments)  # type: ignore[arg-type]


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
    assert bound(anything, words=["9" * 400]) == {"value": "9" * 400}, "a number is no larger than in an argument"
    with pytest.raises(TypeError, match="Expected `int`, got `str`"):
        bound(search, words=["x", "limit=" + "9" * 400])
    with pytest.raises(TypeError, match="'limit' twice"):
        bound(search, words=["x", "limit=1", "limit=2"])
    with pytest.raises(TypeError, match="argument 'limit': Expected `int`, got `str`"):
        bound(search, words=["x", "limit=many"])
    with pytest.raises(TypeError, match="missing a required argument: 'query'"):
        bound(search, words=[])
    with pytest.raises(BadMessage, match="nested"):
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
    with pytest.raises(BadMessage, match="more than 320000"):
        bound(anything, words=words)


def test_a_long_word_that_is_text_stays_text() -> None:
    table = "name,age\n" * 200_000
    assert bound(search, words=[table]) == {"query": table}


@pytest.mark.parametrize("other", ["args", "kwargs"])
def test_words_beside_other_arguments_are_refused(other: str) -> None:
    with pytest.raises(BadMessage, match="not both"):
        bound(search, words=["x"], **{other: ["y"] if other == "args" else {"query": "y"}})


@pytest.mark.parametrize("sent", [{"\ud800": 1, "?": 2}, {"$object": {"\ud800": 1, "?": 2}}])
def test_keys_that_become_one_are_refused(sent: dict[str, object]) -> None:
    with pytest.raises(BadMessage, match="same as UTF-8"):
        bound(anything, args=[sent])
