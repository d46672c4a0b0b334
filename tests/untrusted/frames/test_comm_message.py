"""Comm messages are checked in both directions."""

import base64

import pytest

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.frames import comm_message
from sandbox_kernel.untrusted.frames.comm_message import comm_of_page, comm_of_session

GOOD = {"msg_type": "comm_msg", "comm_id": "aa", "data": {}, "metadata": {}}
OPEN = {**GOOD, "msg_type": "comm_open", "target_name": "jupyter.widget"}


def test_a_message_keeps_its_parts() -> None:
    packed = base64.b64encode(b"\x01\x02").decode()
    message = comm_of_session({**OPEN, "buffers": [packed], "parent_id": "view-7"})
    assert (message.kind, message.buffers, message.message_id) == ("comm_open", (b"\x01\x02",), "view-7")
    assert comm_of_page({**GOOD, "msg_id": "v-1"}, [b"\x03"]).for_session()["buffers"] == ["Aw=="]


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, {**GOOD, "msg_type": "execute_request"}, {**GOOD, "comm_id": "../x"}, {**GOOD, "comm_id": 1}, {**GOOD, "comm_id": "a" * 65},
        {**GOOD, "data": []}, {**GOOD, "metadata": "x"}, {**GOOD, "buffers": "x"}, {**GOOD, "buffers": ["!"]}, {**GOOD, "buffers": [1]},
        {**GOOD, "buffers": [""] * 65}, {**GOOD, "data": {"x": "y" * (12 << 20)}}, {**OPEN, "target_name": "sandbox-kernel.frames"},
        {**OPEN, "target_name": "jupyter.widget.control"}, {**OPEN, "target_name": None},
    ],
)  # fmt: skip
def test_what_is_no_message_of_a_widget_is_refused(value: object) -> None:
    with pytest.raises(ContentRefused):
        comm_of_session(value)


@pytest.mark.parametrize("kind", ["comm_open", "comm_close", "x", None])
def test_a_page_sends_only_messages_of_comms_that_are_open(kind: object) -> None:
    with pytest.raises(ContentRefused):
        comm_of_page({**GOOD, "msg_type": kind}, [])


def test_a_widget_brings_the_program_of_a_large_library_and_a_page_sends_no_such_text() -> None:
    state = {"state": {"_esm": "x" * (5 << 20)}}  # plotly.graph_objects.FigureWidget
    assert comm_of_session({**OPEN, "data": state}).data == state
    with pytest.raises(ContentRefused):
        comm_of_page({**GOOD, "data": state}, [])


def test_what_a_page_says_can_be_sent_on_as_json_or_is_refused() -> None:
    said = {"state": {"value": "a\ud800", "\udfff": 1.5}}
    assert comm_of_page({**GOOD, "data": said}, []).data == {"state": {"value": "a?", "?": 1.5}}
    with pytest.raises(ContentRefused):
        comm_of_page({**GOOD, "data": {"content": 10**5000}}, [])


def test_buffers_of_a_page_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm_message, "MAX_PAGE_BUFFERS", 10)
    with pytest.raises(ContentRefused):
        comm_of_page(GOOD, [b"x" * 11])


def test_ids_that_are_none_are_left_out() -> None:
    assert comm_of_page({**GOOD, "msg_id": "<script>"}, []).message_id == ""
