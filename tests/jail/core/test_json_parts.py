"""JSON of programs: what is counted is what is parsed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sandbox_kernel.agent.service.run_code import read_request
from sandbox_kernel.backends.dask.dask_delivery import decode_capabilities
from sandbox_kernel.backends.functions.call_values import BadValue, load
from sandbox_kernel.backends.wasm.wasm_result import read_report
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.core.gate_messages import question
from sandbox_kernel.jail.core.json_parts import MAX_PARTS, TooManyParts, parse_json
from sandbox_kernel.session.debugging.debug_messages import read_message
from sandbox_kernel.session.worker.message_reader import parse

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


@pytest.mark.parametrize(
    "taker", [parse, read_message, load, read_request, decode_capabilities], ids=lambda taker: taker.__module__
)
def test_no_door_takes_parts_that_another_encoding_hides(taker: Callable[[bytes], object]) -> None:
    raw = json.dumps({"op": "x"}).encode("utf-16-le")
    with pytest.raises((SandboxError, BadValue)):
        taker(raw)


def test_reports_and_prompts_in_another_encoding_are_not_read() -> None:
    assert read_report('{"end": "exit", "code": 0}\n'.encode("utf-16-le")) is None
    assert question(b'{"ask": "name? "}\n') == "name? "
    assert question(b'{"ask": [' + b"[]," * MAX_PARTS + b"[]]}\n") is None
