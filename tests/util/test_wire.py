"""Messages that cross a boundary: how they are cut, counted, and checked against what was declared."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest

from sandbox_kernel.agent.run_service import read_request
from sandbox_kernel.backends.functions.call_values import load
from sandbox_kernel.backends.wasm.wasm_job import read_report
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.gate_messages import question
from sandbox_kernel.session.debug_link import read_message
from sandbox_kernel.session.worker.messages import parse
from sandbox_kernel.util.wire import MAX_PARTS, BadMessage, Frames, decode, frame, parse_json

#: A letter that holds the byte of a quotation mark in UTF-16 and UTF-32, then more lists than are parsed.
HIDDEN = '["\u0122' + '", [], "' * MAX_PARTS + '"]'


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-8-sig"])
@pytest.mark.one_case
def test_a_text_in_another_encoding_than_utf_8_is_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json('{"op": "ready"}'.encode(encoding))
    with pytest.raises(ValueError, match=r"."):
        parse_json(HIDDEN.encode(encoding))


def test_as_many_parts_as_are_allowed_are_parsed_and_one_more_is_not() -> None:
    most = "[" + ",".join(["1"] * MAX_PARTS) + "]"
    assert len(parse_json(most.encode())) == MAX_PARTS
    with pytest.raises(BadMessage, match="more than"):
        parse_json(most.replace("1", "1,1", 1).encode())


BOMBS = {
    "lists": b"[" + b"[]," * 5_000_000 + b"0]",
    "objects": b"[" + b"{}," * 5_000_000 + b"0]",
    "short texts": b"[" + b'"ab",' * 3_000_000 + b"0]",
    "lone surrogates": b"[" + b'"\\ud800",' * 1_500_000 + b"0]",
    "names": b"{" + b",".join(b'"%x":0' % n for n in range(1_000_000)) + b"}",
}


@pytest.mark.parametrize("what", BOMBS)
@pytest.mark.one_case
def test_millions_of_parts_are_refused_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    with pytest.raises(BadMessage, match="more than"):
        parse_json(b'{"op": "answer", "x": ' + BOMBS[what] + b"}")


def test_a_text_that_is_never_closed_is_read_once_and_not_once_for_each_of_its_quotation_marks() -> None:
    # Read anew from each mark, this takes hours, in which no other thread of the host runs.
    with pytest.raises(ValueError, match=r"."):
        parse_json(b'{"a":"' + b"," * 400_000 + b'\\"' * 2_000_000)


@pytest.mark.parametrize(
    "value",
    [',[{"\\' * 1_000_000, list(range(100_000)), {str(n): "text" for n in range(100_000)}, [["x"]] * 50_000],
    ids=["a text full of commas and quotes", "numbers", "names and texts", "lists"],
)
@pytest.mark.one_case
def test_what_a_page_may_be_given_is_parsed(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize("taker", [parse, read_message, load, read_request], ids=lambda taker: taker.__module__)
def test_no_door_takes_parts_that_another_encoding_hides(taker: Callable[[bytes], object]) -> None:
    raw = json.dumps({"op": "x"}).encode("utf-16-le")
    with pytest.raises((SandboxError, BadMessage)):
        taker(raw)


def test_reports_and_prompts_in_another_encoding_are_not_read() -> None:
    assert read_report('{"end": "exit", "code": 0}\n'.encode("utf-16-le")) is None
    assert question(b'{"ask": "name? "}\n') == "name? "
    assert question(b'{"ask": [' + b"[]," * MAX_PARTS + b"[]]}\n") is None


def test_a_stream_is_split_into_its_messages_however_it_was_cut() -> None:
    sent = b"".join(map(frame, (b"one", b"", b"three")))
    for size in range(1, len(sent) + 1):
        frames = Frames(5)
        parts = [sent[at : at + size] for at in range(0, len(sent), size)]
        assert [message for part in parts for message in frames.feed(part)] == [b"one", b"", b"three"]


def test_the_largest_message_is_taken_and_one_byte_more_is_refused_before_it_is_read() -> None:
    assert list(Frames(5).feed(frame(b"12345"))) == [b"12345"]
    with pytest.raises(BadMessage, match="6 bytes; at most 5"):
        list(Frames(5).feed(frame(b"123456")[:4]))


def test_the_size_of_each_message_is_told_once_and_before_it_is_read() -> None:
    told: list[int] = []
    frames = Frames(9, told.append)
    first, second = frame(b"1234"), frame(b"123456")
    assert [frames.next(first[:3]), frames.missing, told] == [None, 0, []]
    assert [frames.next(first[3:5]), frames.missing, told] == [None, 3, [4]]
    assert [frames.next(first[5:] + second[:6]), frames.missing, told] == [b"1234", 0, [4]]
    assert [frames.next(), frames.missing, frames.next(second[6:]), told] == [None, 4, b"123456", [4, 6]]


@dataclass(frozen=True)
class _Greeting:
    name: str
    times: Annotated[int, msgspec.Meta(ge=0, lt=10)] = 1


def test_a_message_becomes_the_value_that_was_declared() -> None:
    assert decode(b'{"name": "you", "times": 9}', _Greeting) == _Greeting("you", 9)
    assert decode(b'{"name": "you"}', _Greeting) == _Greeting("you")


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b'{"times": 1}', "name"),
        (b'{"name": 1}', "name"),
        (b'{"name": "you", "times": true}', "times"),
        (b'{"name": "you", "times": 10}', "times"),
        (b"[]", "object"),
        (b"", "."),
        (b"{", "."),
        (b"\xff", "."),
        (b"[" * 100_000, "."),
        (b'{"name":' * 100_000, "."),
        (b'{"times":' + b"9" * 10_000 + b"}", "."),
        (b"[" + b"1," * MAX_PARTS + b"1]", "more than"),
    ],
)
def test_a_message_that_is_not_as_declared_is_refused_and_the_field_is_named(sent: bytes, says: str) -> None:
    with pytest.raises(BadMessage, match=says):
        decode(sent, _Greeting)
