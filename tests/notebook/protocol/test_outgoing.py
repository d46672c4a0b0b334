"""Outgoing messages are what ``jupyter_client.session`` would send, made with fewer steps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session, json_packer

from sandbox_kernel.notebook.protocol.outgoing import Outgoing, pack

Pair = tuple[Any, Any]


@pytest.fixture
def pair() -> Iterator[Pair]:
    context = zmq.Context()
    left, right = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    left.bind("inproc://outgoing")
    right.connect("inproc://outgoing")
    yield left, right
    left.close(0)
    right.close(0)
    context.term()


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"text": "ä\udc80\x00 ", "n": [1, 2.5, None, True]},
        {"at": datetime(2026, 1, 2, tzinfo=UTC), "raw": b"12"},
        {1: "a"},
    ],
)
def test_a_part_is_packed_as_the_library_packs_it(part: dict[object, object]) -> None:
    assert pack(part) == json_packer(part)


def test_a_part_that_is_no_json_is_cleaned_as_the_library_does() -> None:
    with pytest.warns(UserWarning, match="Message serialization failed"):
        assert pack({"x": float("nan")}) == b'{"x": "nan"}'


def test_the_library_reads_and_believes_what_is_sent(pair: Pair) -> None:
    session = Session(key=b"secret")
    outgoing, parent = Outgoing(session), session.msg("execute_request", {"code": "1"})
    large = b"\x00" * 100_000
    for number, buffers in enumerate(([], [b"ab", memoryview(b"cd")], [large])):
        outgoing.send(pair[0], "status", {"n": number}, parent, [b"to", b"whom"], {"m": 1}, buffers)
    ids = set()
    for number, buffers in enumerate(([], [b"ab", b"cd"], [large])):
        idents, frames = session.feed_identities(pair[1].recv_multipart())
        message = session.deserialize(frames)
        assert (idents, message["content"], message["metadata"]) == ([b"to", b"whom"], {"n": number}, {"m": 1})
        assert message["msg_type"] == "status"
        assert message["parent_header"]["msg_id"] == parent["header"]["msg_id"]
        assert [bytes(buffer) for buffer in message["buffers"]] == buffers
        assert message["header"].keys() == parent["header"].keys()
        ids.add(message["msg_id"])
    assert len(ids) == 3


def test_a_message_without_a_request_has_an_empty_parent_also_after_one_that_had_one(pair: Pair) -> None:
    session = Session(key=b"secret")
    outgoing = Outgoing(session)
    for parent in (session.msg("a"), None, {}, session.msg("b")):
        outgoing.send(pair[0], "status", {}, parent, b"topic", None, None)
        idents, frames = session.feed_identities(pair[1].recv_multipart())
        found = session.deserialize(frames)["parent_header"].get("msg_type")
        assert (idents, found) == ([b"topic"], parent["msg_type"] if parent else None)
