"""Messages of a worker, read as if it were hostile."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import SessionError
from sandbox_kernel.session.worker import message_reader, messages
from sandbox_kernel.session.worker.message_reader import Cutter, clean, clean_text, parse
from sandbox_kernel.session.worker.messages import Done, Frozen, Question, Shown

DISPLAY = {
    "op": "display", "id": 1, "question": 0, "kind": "display", "data": {"text/plain": "x"}, "metadata": {},
    "display_id": None,
}  # fmt: skip
DONE = {"op": "done", "id": 1, "status": "ok", "names": 2}


def raw(message: object) -> bytes:
    return json.dumps(message).encode()


def framed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def test_a_display_keeps_its_bundle_and_its_name() -> None:
    shown = parse(raw({**DISPLAY, "display_id": "it", "metadata": {"image/png": {"width": 3}}}))
    assert isinstance(shown, Shown)
    assert (shown.kind, shown.data, shown.display_id) == ("display", {"text/plain": "x"}, "it")
    assert shown.metadata == {"image/png": {"width": 3}}


def test_the_end_of_a_cell_carries_the_users_error() -> None:
    error = {"ename": "E", "evalue": "v", "traceback": ["a", "b"]}
    done = parse(raw({**DONE, "status": "error", "exit_code": 1, "error": error, "limit": "disk"}))
    assert isinstance(done, Done)
    assert done.error is not None
    assert (done.status, done.exit_code, done.limit) == ("error", 1, "disk")
    assert (done.error.ename, done.error.evalue, done.error.traceback) == ("E", "v", ("a", "b"))


@pytest.mark.parametrize(
    "change",
    [
        {"op": None},
        {"op": "run"},
        {"id": -1},
        {"id": True},
        {"id": 1.5},
        {"id": 1 << 60},
        {"id": None},
        {"kind": "script"},
        {"data": []},
        {"data": {"text": "x"}},
        {"data": {"../x": "x"}},
        {"data": {"text/plain\n": "x"}},
        {"data": {f"text/{n}": "x" for n in range(33)}},
        {"metadata": None},
        {"display_id": 5},
        {"display_id": ""},
        {"display_id": "x" * 201},
        {"display_id": "a\nb"},
        {"question": "0"},
    ],
)
def test_a_display_with_one_wrong_field_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(SessionError, match="the worker sent"):
        parse(raw({**DISPLAY, **change}))


@pytest.mark.parametrize(
    "change",
    [
        {"status": "killed"},
        {"names": "2"},
        {"exit_code": 256},
        {"exit_code": -1},
        {"exit_code": True},
        {"limit": "patience"},
        {"error": "E"},
        {"error": {"ename": "E", "evalue": "v"}},
        {"error": {"ename": "E", "evalue": "v", "traceback": [1]}},
        {"error": {"ename": "E", "evalue": "v", "traceback": [""] * 1001}},
        {"error": {"ename": "E", "evalue": "v" * (65 << 10), "traceback": []}},
    ],
)
def test_an_end_with_one_wrong_field_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(SessionError, match="the worker sent"):
        parse(raw({**DONE, **change}))


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"null", b'"done"', b"1" * 5000, b"\xff\xfe", b"[1]"])
def test_what_is_no_object_of_json_is_refused(data: bytes) -> None:
    with pytest.raises(SessionError, match="the worker sent a frame that is no"):
        parse(data)


def test_numbers_that_json_does_not_have_become_nothing() -> None:
    shown = parse(raw({**DISPLAY, "data": {"application/json": [float("nan"), float("inf"), 1]}}))
    assert isinstance(shown, Shown)
    assert shown.data["application/json"] == [None, None, 1]


def test_metadata_without_measure_is_left_out() -> None:
    shown = parse(raw({**DISPLAY, "metadata": {"x": "y" * (257 << 10)}}))
    assert isinstance(shown, Shown)
    assert shown.metadata == {}


@pytest.mark.parametrize("key", ["data", "metadata"])
@pytest.mark.parametrize("around", ["[%s]", '{"a": %s}'])
def test_a_value_that_is_nested_without_end_is_refused_and_ends_no_host(key: str, around: str) -> None:
    for depth in (message_reader.MAX_DEPTH, 300, 480, 700, 5000, 200_000):
        before, _, after = around.partition("%s")
        nested = before * depth + "1" + after * depth
        text = json.dumps({**DISPLAY, key: {"application/json": "@"}}).replace('"@"', nested)
        with pytest.raises(SessionError):
            parse(text.encode())


def test_a_value_that_is_nested_as_people_do_is_taken() -> None:
    value: object = 1
    for _ in range(message_reader.MAX_DEPTH - 1):
        value = [value]
    assert isinstance(parse(raw({**DISPLAY, "data": {"application/json": value}})), Shown)


def test_lone_surrogates_become_readable_everywhere() -> None:
    assert clean_text("a\ud800b") == "a\ufffdb"
    assert clean({"k\udfff": ["\ud800", {"x": "😀"}]}) == {"k\ufffd": ["\ufffd", {"x": "😀"}]}
    asked = parse('{"op": "input", "id": 1, "question": 1, "prompt": "\ud800?", "password": false}'.encode(
        "utf-8", "surrogatepass"
    ))  # fmt: skip
    assert isinstance(asked, Question)
    assert asked.prompt == "\ufffd?"


def test_frames_are_cut_wherever_the_stream_is() -> None:
    stream = framed(raw(DONE)) + framed(raw({"op": "frozen", "cell": 1, "pid": 2, "threads": 0, "reason": ""}))
    cutter, found = Cutter(), []
    for position in range(len(stream)):
        found += cutter.feed(stream[position : position + 1])
    assert [type(message) for message in found] == [Done, Frozen]


def test_a_frame_that_is_too_large_is_refused_before_it_has_come() -> None:
    with pytest.raises(SessionError, match=r"a frame of 16777217 bytes; at most 16777216"):
        Cutter().feed(struct.pack(">I", message_reader.MAX_FRAME + 1))


def test_a_message_to_the_worker_is_one_frame() -> None:
    data = messages.encode({"op": "run", "id": 1, "code": "é"})
    assert struct.unpack(">I", data[:4])[0] == len(data) - 4
    assert json.loads(data[4:]) == {"op": "run", "id": 1, "code": "é"}


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
def test_whatever_comes_is_a_message_or_a_session_error(op: str, fields: dict[str, object]) -> None:
    try:
        parse(raw({**fields, "op": op}))
    except SessionError:
        pass


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_whatever_bytes_come_are_frames_or_a_session_error(data: bytes) -> None:
    try:
        Cutter().feed(data)
    except SessionError:
        pass
