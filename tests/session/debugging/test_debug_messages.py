"""What a debugger inside a session, and a page, may send."""

import json

import pytest

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.session.debugging.debug_messages import (
    MAX_EVENT,
    MAX_THREADS,
    DebugEvent,
    DebugReply,
    read_message,
    read_request,
)


def raw(**message):
    return json.dumps(message).encode()


def test_replies_and_events_are_read():
    reply = read_message(raw(type="response", request_seq=3, success=True, body={"a": 1}))
    assert reply == DebugReply(3, True, {"a": 1}, "")
    event = read_message(raw(type="event", event="stopped", body={"threadId": 1, "sandboxStopped": [1, 2, "x"]}))
    assert event == DebugEvent("stopped", {"threadId": 1}, (1, 2))


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        raw(type="response", success=True),
        raw(type="response", request_seq=True),
        b"[" * 5000 + b"]" * 5000,
        raw(type="response", request_seq=1, body=[[]] * 200_000),
    ],
)
def test_malformed_messages_end_the_link(data):
    with pytest.raises(SessionError):
        read_message(data)


def test_events_that_are_unknown_or_large_reach_no_page():
    assert read_message(raw(type="event", event="output", body={"output": "x"})) is None
    assert read_message(raw(type="event", event="terminated")) is None
    assert read_message(raw(type="event", event="module", body={"x": "y" * MAX_EVENT})) is None


def test_threads_that_stand_are_few_and_their_numbers_are_those_of_a_page():
    numbers = [*range(MAX_THREADS - 2), (1 << 53) - 1, 1 << 53, MAX_THREADS]
    event = read_message(raw(type="event", event="stopped", body={"sandboxStopped": numbers}))
    assert event.stopped == (*range(MAX_THREADS - 2), (1 << 53) - 1)
    assert read_message(raw(type="event", event="stopped", body={"threadId": -1})).stopped == ()


def test_texts_are_encodable_and_success_is_only_true():
    reply = read_message(b'{"type": "response", "request_seq": 1, "success": "yes", "body": {"t": "\\ud800"}}')
    assert (reply.success, reply.body) == (False, {"t": "\ufffd"})


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"seq": 1},
        {"command": "x", "seq": "1"},
        {"command": "x", "seq": 1, "arguments": []},
        {"command": "x", "seq": 1, "arguments": {"a": "b" * (3 << 20)}},
    ],
)
def test_a_malformed_request_of_a_page_is_refused(content):
    with pytest.raises(InvalidRequest):
        read_request(content)
