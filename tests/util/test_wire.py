"""Messages that cross a boundary: how they are cut, counted, and checked against what was declared."""

from __future__ import annotations

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
from sandbox_kernel.util.wire import MAX_PARTS, BadMessage, Frames, TooManyParts, decode, frame, parse_json

#: A letter that holds the byte of a quotation mark in UTF-16 and UTF-32, then more lists than are parsed.
HIDDEN = '["\u0122' + '", [], "' * MAX_PARTS + '"]'


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-8-sig"])
def test_a_text_in_another_encoding_than_utf_8_is_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json('{"op": "ready"}'.encode(encoding))
    with pytest.raises(ValueError, match=r"."):
        parse_json(HIDDEN.encode(encoding))


def test_as_many_parts_as_are_allowed_are_parsed_and_one_more_is_not() -> None:
    most = "[" + ",".join(["1"] * MAX_PARTS) + "]"
    assert len(parse_json(most.encode())) == MAX_PARTS
    with pytest.raises(TooManyParts):
        parse_json(most.replace("1", "1,1", 1).encode())


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
        (b"{", "."),
        (b"[" * 100_000, "."),
        (b"[" + b"1," * MAX_PARTS + b"1]", "more than"),
    ],
)
def test_a_message_that_is_not_as_declared_is_refused_and_the_field_is_named(sent: bytes, says: str) -> None:
    with pytest.raises(BadMessage, match=says):
        decode(sent, _Greeting)
