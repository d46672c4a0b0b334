"""The link to a debugger whose other end may do anything. Real sockets, a thread as the session."""

import json
import socket
import struct
import threading

import pytest

from sandbox_kernel.errors import SessionError
from sandbox_kernel.session.debugging.debug_link import DebuggerGone, DebugLink
from sandbox_kernel.session.debugging.pause_clock import PauseClock


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
    monkeypatch.setattr("sandbox_kernel.session.debugging.debug_link.SEND_S", 0.05)
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
