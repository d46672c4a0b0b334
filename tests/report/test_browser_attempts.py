"""Lines of the report on the user's browser."""

from __future__ import annotations

import urllib.request

import pytest

from sandbox_kernel.report.browser_attempts import ATTEMPTS, LOAD, READ, BrowserListener, page_lines

NOTICED = ["control/fetch", "control/location"]
ALL = {"began": [f"frame/{name}" for attempts in ATTEMPTS.values() for name in attempts], "read": ["control/title"]}


def states(hits: list[str], answer: dict[str, object] | None) -> dict[str, bool | None]:
    return {line.name: line.enforced for line in page_lines(hits, answer)}


def test_frames_that_reach_nothing_are_enforced() -> None:
    assert set(states(NOTICED, ALL).values()) == {True}


@pytest.mark.parametrize("hit", ["frame/fetch", "frame/stylesheet", "frame/location"])
def test_one_attempt_that_gets_through_breaks_its_line(hit: str) -> None:
    assert sorted(map(str, states([*NOTICED, hit], ALL).values())) == ["False", "True", "True"]


def test_something_that_was_read_breaks_its_line() -> None:
    assert states(NOTICED, {**ALL, "read": ["control/title", "frame/storage"]})[READ] is False


def test_what_would_not_have_been_noticed_is_not_claimed() -> None:
    assert set(states([], {**ALL, "read": []}).values()) == {None}
    assert set(states(NOTICED, None).values()) == {None}


def test_an_attempt_that_did_not_begin_proves_nothing() -> None:
    answer = {**ALL, "began": [name for name in ALL["began"] if name != "frame/font"]}
    assert states(NOTICED, answer)[LOAD] is None


def test_listener_answer_only_to_who_knows_their_address() -> None:
    with BrowserListener() as listener:
        page = urllib.request.urlopen(listener.address, timeout=30).read().decode()
        assert "sendBeacon" in page
        other = listener.address.rsplit("/", 2)[0] + "/guess/frame/fetch"
        with pytest.raises(OSError, match="404"):
            urllib.request.urlopen(other, timeout=30)
        urllib.request.urlopen(listener.address.replace("/page", "/frame/fetch"), timeout=30).read()
        assert listener.hits == ["frame/fetch"]
