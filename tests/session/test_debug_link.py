"""The link to a debugger whose other end may do anything. Real sockets, a thread as the session."""

import json
import socket
import struct
import threading

import pytest

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.session.debug_link import (
    MAX_EVENT,
    MAX_THREADS,
    DebugEvent,
    DebuggerGone,
    DebugLink,
    DebugReply,
    PauseClock,
    read_message,
    read_request,
)


def frame(**message):
    data = json.dumps(message).encode()
    return struct.pack(">I", len(data)) + data


@pytest.fixture
def ends():
    """A link, the session's end of it, its clock, its events, and an event that is set when one came."""
    ours, theirs = socket.socketpair()
    events, came, clock = [], threading.Event(), PauseClock()

    def on_event(event):
        events.append(event)
        came.set()

    link = DebugLink(ours, clock, on_event)
    yield link, theirs, clock, events, came
    link.close()
    theirs.close()


def answers(theirs, *frames):
    """Let the session send these after it got a request."""

    def serve():
        theirs.recv(1 << 16)
        for data in frames:
            theirs.sendall(data)

    threading.Thread(target=serve, daemon=True).start()


def test_a_reply_finds_its_request_and_forged_ones_find_none(ends):
    link, theirs, *_ = ends
    answers(theirs, frame(request_seq=7, success=True), frame(request_seq=1, success=True, body={"x": 1}))
    assert link.request("threads", {}, 30).body == {"x": 1}


def test_a_session_that_does_not_answer_does_not_hold_the_host(ends):
    link, *_ = ends
    with pytest.raises(SessionError, match="did not answer 'threads'"):
        link.request("threads", {}, 0.05)
    assert link.alive


def test_a_session_that_does_not_read_does_not_hold_the_host(ends, monkeypatch):
    monkeypatch.setattr("sandbox_kernel.session.debug_link.SEND_S", 0.05)
    link, *_ = ends
    with pytest.raises(SessionError, match="takes no more requests"):
        link.request("evaluate", {"expression": "x" * (1 << 21)}, 1)


@pytest.mark.parametrize("data", [struct.pack(">I", 1 << 31), struct.pack(">I", 2) + b"[]"])
def test_a_message_that_is_too_large_or_malformed_ends_the_debugger(ends, data):
    link, theirs, *_ = ends
    answers(theirs, data)
    with pytest.raises(DebuggerGone):
        link.request("threads", {}, 30)
    assert not link.alive


def test_the_clock_stands_from_a_stop_to_the_request_that_lets_it_go_on(ends):
    link, theirs, clock, events, came = ends
    theirs.sendall(frame(type="event", event="stopped", body={"threadId": 1}))
    assert came.wait(30)
    assert events[0].stopped == (1,)
    threading.Event().wait(0.02)
    assert 0 < clock.seconds() < clock.seconds()
    answers(theirs, frame(request_seq=1, success=True))
    link.request("continue", {}, 30)
    assert clock.seconds() == clock.seconds()


def test_the_time_that_a_cell_may_stand_is_bounded():
    clock = PauseClock(limit_s=0.01)
    clock.stand()
    threading.Event().wait(0.05)
    assert clock.seconds() == 0.01
    clock.begin_cell()
    assert clock.seconds() == 0


def test_a_closed_link_lets_its_cell_go_on(ends):
    link, theirs, clock, _, came = ends
    theirs.sendall(frame(type="event", event="stopped", body={"threadId": 1}))
    assert came.wait(30)
    link.close()
    assert clock.seconds() == clock.seconds()
    with pytest.raises(DebuggerGone):
        link.request("threads", {}, 30)


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
        b"[]",
        raw(type="response", success=True),
        raw(type="response", request_seq=True),
        raw(type="response", request_seq=1, success="yes"),
        raw(type="response", request_seq=1, body=[]),
        raw(type="event", event=["stopped"]),
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


def test_texts_that_have_no_utf_8_are_refused():
    with pytest.raises(SessionError, match="another form"):
        read_message(b'{"type": "response", "request_seq": 1, "message": "\\ud800", "body": {}}')


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
