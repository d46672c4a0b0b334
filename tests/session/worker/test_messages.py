"""Messages of a worker, read as if it were hostile."""

import contextlib
import importlib
import json
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sandbox_kernel.guest
from sandbox_kernel.errors import SessionError
from sandbox_kernel.session.worker import messages
from sandbox_kernel.session.worker.messages import (
    MAX_FRAME,
    MAX_LINE,
    MAX_LINES,
    MAX_TEXT,
    CellDone,
    DisplayShown,
    parse,
)
from sandbox_kernel.util import wire as json_parts

DISPLAY = {
    "op": "display", "id": 1, "question": 0, "kind": "display", "data": {"text/plain": "x"}, "metadata": {},
    "display_id": None,
}  # fmt: skip
DONE = {"op": "done", "id": 1, "status": "ok"}


def raw(message: object) -> bytes:
    return json.dumps(message).encode()


def framed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def test_a_display_keeps_its_bundle_and_its_name() -> None:
    shown = parse(raw({**DISPLAY, "display_id": "it", "metadata": {"image/png": {"width": 3}}}))
    assert isinstance(shown, DisplayShown)
    assert (shown.kind, shown.data, shown.display_id) == ("display", {"text/plain": "x"}, "it")
    assert shown.metadata == {"image/png": {"width": 3}}


def test_the_end_of_a_cell_carries_the_users_error() -> None:
    error = {"ename": "E", "evalue": "v", "traceback": ["a", "b"]}
    done = parse(raw({**DONE, "status": "error", "exit_code": 1, "error": error, "limit": "disk"}))
    assert isinstance(done, CellDone)
    assert done.error is not None
    assert (done.status, done.exit_code, done.limit) == ("error", 1, "disk")
    assert (done.error.ename, done.error.evalue, done.error.traceback) == ("E", "v", ("a", "b"))


@pytest.mark.parametrize(
    ("message", "change"),
    [
        (DISPLAY, {"op": None}),
        (DISPLAY, {"op": "run"}),
        (DISPLAY, {"id": -1}),
        (DISPLAY, {"id": True}),
        (DISPLAY, {"id": 1.5}),
        (DISPLAY, {"id": 1 << 60}),
        (DISPLAY, {"id": None}),
        (DISPLAY, {"kind": "script"}),
        (DISPLAY, {"data": []}),
        (DISPLAY, {"data": {"text": "x"}}),
        (DISPLAY, {"data": {"../x": "x"}}),
        (DISPLAY, {"data": {"text/plain\n": "x"}}),
        (DISPLAY, {"data": {f"text/{n}": "x" for n in range(33)}}),
        (DISPLAY, {"metadata": None}),
        (DISPLAY, {"display_id": 5}),
        (DISPLAY, {"display_id": ""}),
        (DISPLAY, {"display_id": "x" * 201}),
        (DISPLAY, {"display_id": "a\nb"}),
        (DISPLAY, {"question": "0"}),
        (DONE, {"status": "killed"}),
        (DONE, {"id": "2"}),
        (DONE, {"exit_code": 256}),
        (DONE, {"exit_code": -1}),
        (DONE, {"exit_code": True}),
        (DONE, {"limit": "patience"}),
        (DONE, {"error": "E"}),
        (DONE, {"error": {"ename": "E", "evalue": "v"}}),
        (DONE, {"error": {"ename": "E", "evalue": "v", "traceback": [1]}}),
        (DONE, {"error": {"ename": "E", "evalue": "v", "traceback": [""] * 1001}}),
        (DONE, {"error": {"ename": "E", "evalue": "v" * (65 << 10), "traceback": []}}),
    ],
)
def test_a_display_or_an_end_with_one_wrong_field_is_refused(
    message: dict[str, object], change: dict[str, object]
) -> None:
    with pytest.raises(SessionError, match="the worker sent"):
        parse(raw({**message, **change}))


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[" * 100_000,
        b"null",
        b'"done"',
        b"[1]",
        *(raw(DISPLAY).replace(b'"x"', each) for each in (b"1e999", b"NaN", b"-Infinity", b'"\\ud800"', b'"\xff"')),
    ],
)
def test_what_is_no_object_of_json_is_refused(data: bytes) -> None:
    with pytest.raises(SessionError, match="the worker sent"):
        parse(data)


def test_metadata_without_measure_is_left_out() -> None:
    shown = parse(raw({**DISPLAY, "metadata": {"x": "y" * (257 << 10)}}))
    assert isinstance(shown, DisplayShown)
    assert shown.metadata == {}


@pytest.mark.parametrize("key", ["data", "metadata"])
@pytest.mark.parametrize("around", ["[%s]", '{"a": %s}'])
@pytest.mark.one_case
def test_a_value_that_is_nested_without_end_is_refused_and_ends_no_host(key: str, around: str) -> None:
    for depth in (json_parts.MAX_DEPTH, 300, 480, 700, 5000, 200_000):
        before, _, after = around.partition("%s")
        nested = before * depth + "1" + after * depth
        text = json.dumps({**DISPLAY, key: {"application/json": "@"}}).replace('"@"', nested)
        with pytest.raises(SessionError):
            parse(text.encode())


def test_a_value_that_is_nested_as_people_do_is_taken() -> None:
    value: object = 1
    for _ in range(json_parts.MAX_DEPTH - 1):
        value = [value]
    assert isinstance(parse(raw({**DISPLAY, "data": {"application/json": value}})), DisplayShown)


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["ready", "began", "display", "clear", "input", "done", "frozen", "restored", "answer", "x"]),
    st.dictionaries(st.sampled_from([*DISPLAY, *DONE, "pid", "cell", "answer", "prompt", "error", "wait"]), values),
)
@pytest.mark.slow
def test_whatever_comes_is_a_message_or_a_session_error(op: str, fields: dict[str, object]) -> None:
    with contextlib.suppress(SessionError):
        parse(raw({**fields, "op": op}))


@pytest.mark.attack("O05", "session")
def test_a_frame_of_millions_of_parts_is_refused() -> None:
    with pytest.raises(
        SessionError, match=r"^the worker sent a message that cannot be taken: it holds more than \d+ texts"
    ):
        parse(b'{"op": "answer", "id": 1, "answer": {"x": [' + b"[]," * 5_000_000 + b"0]}}")


@pytest.fixture(scope="module")
def channel() -> Iterator[Any]:
    """The worker's end, under the name by which its neighbours know it inside a jail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "sandbox_guest", sandbox_kernel.guest)
        yield importlib.import_module("sandbox_guest.session.worker_channel")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


@settings(derandomize=True, deadline=None, max_examples=200, database=None)
@given(JSON_VALUES, st.booleans())
@pytest.mark.slow
def test_the_worker_never_counts_fewer_parts_than_the_host(channel: Any, value: object, readable: bool) -> None:
    text = json.dumps({"x": value}, ensure_ascii=readable).encode("utf-8", "surrogatepass")
    counted = sum(1 for _ in json_parts._PART.finditer(text))
    assert counted <= channel.parts({"x": value})
    assert (channel.MAX_PARTS, channel.MAX_FRAME) == (json_parts.MAX_PARTS, messages.MAX_FRAME)


def test_what_a_worker_sends_is_strict_json_whatever_a_cell_shows(channel: Any) -> None:
    shown = {"text/plain": [float("inf"), -float("inf"), float("nan"), 1e3, {"k\udfff": "a\ud800b😀"}]}
    found = parse(channel.as_json({**DISPLAY, "data": shown}))
    assert isinstance(found, DisplayShown)
    assert found.data == {"text/plain": [None, None, None, 1000.0, {"k?": "a?b😀"}]}


@pytest.mark.attack("O05", "session")
def test_no_float_takes_the_host_much_longer_than_any_other() -> None:
    took: list[float] = []
    for number in ("0.1", "1.7976931348623157e308"):
        numbers = f"[{','.join([number] * 75_000)}]"
        begin = time.thread_time()
        parse(raw({**DISPLAY, "data": {"a/b": "@"}}).replace(b'"@"', numbers.encode()))
        took.append(time.thread_time() - begin)
    assert took[1] < 15 * took[0]  # msgspec's own reading: a hundred times, and no other thread ran meanwhile


@pytest.mark.parametrize(("entries", "length"), [(32, MAX_TEXT), (33, MAX_LINE), (MAX_LINES, MAX_LINE)])
def test_a_traceback_is_a_few_megabytes_at_most(entries: int, length: int) -> None:
    lines = ["x" * min(length + 1, MAX_FRAME // entries - 100)] * entries
    error = {"ename": "E", "evalue": "", "traceback": lines}
    done = parse(json.dumps({"op": "done", "id": 1, "status": "error", "error": error}).encode())
    assert isinstance(done, CellDone)
    assert done.error is not None
    assert {len(line) for line in done.error.traceback} == {length}
