"""The gate of a wrapped kernel's widgets: what of its comms reaches a page, and what of a page reaches it."""

import pytest

from sandbox_kernel.notebook.frames.gated_pages import CALLBACK_S
from sandbox_kernel.session.cell.displays import MAX_COMM_MESSAGES
from sandbox_kernel.wrapped.relaying import kernel_widgets
from sandbox_kernel.wrapped.relaying.kernel_widgets import KernelWidgets

MODEL, PAGE = "ab-12", "page-1"
UPDATE = {"method": "update", "state": {"value": 7}, "buffer_paths": []}


class Sent:
    """Keeps what is sent to front ends, in place of their sockets."""

    def __init__(self):
        self.messages = []

    def send(self, channel, routing, kind, parent, content, buffers=()):
        self.messages.append((kind, content, list(buffers)))

    def publish(self, kind, parent, content):
        self.messages.append((kind, content, []))

    def to_page(self):
        return [content["data"] for kind, content, _ in self.messages if kind == "comm_msg"]


@pytest.fixture
def sent():
    return Sent()


@pytest.fixture
def delivered():
    return []


@pytest.fixture
def widgets(sent, delivered):
    made = KernelWidgets(sent, lambda *message: delivered.append(message))
    made.from_page("comm_open", {}, {"comm_id": PAGE, "target_name": "sandbox-kernel.frames", "data": {}}, [])
    return made


def opened(widgets, comm_id=MODEL, target="jupyter.widget", data=None, buffers=(), metadata=None):
    content = {"comm_id": comm_id, "target_name": target, "data": {"state": {"value": 3}} if data is None else data}
    return widgets.from_kernel("comm_open", "cell", content, metadata or {"version": "2.1.0"}, buffers)


def page_says(widgets, epoch=0, gate=None, comm_id=MODEL, data=UPDATE):
    message = {"msg_type": "comm_msg", "msg_id": "v-1", "comm_id": comm_id, "data": data}
    said = {"type": "comm", "gate": gate or widgets.gate, "epoch": epoch, "msg": message}
    widgets.from_page("comm_msg", {}, {"comm_id": PAGE, "data": said}, [])


def test_a_widget_reaches_the_page_with_its_buffers_and_its_protocol(widgets, sent):
    assert opened(widgets, data={"state": {}, "buffer_paths": [["value"]]}, buffers=[b"\x01\x02"])
    kind, content, buffers = sent.messages[-1]
    assert (kind, content["comm_id"], buffers) == ("comm_msg", PAGE, [b"\x01\x02"])
    assert content["data"]["messages"][0]["metadata"] == {"version": "2.1.0"}


def test_a_change_on_the_page_reaches_the_kernel_and_its_answer_the_page(widgets, sent, delivered):
    opened(widgets)
    page_says(widgets)
    [(message_id, content, _)] = delivered
    assert content == {"comm_id": MODEL, "data": UPDATE}
    assert widgets.takes("stream", message_id, {"name": "stdout", "text": "now 7\n"})
    echo = {"comm_id": MODEL, "data": {**UPDATE, "method": "echo_update"}}
    assert widgets.from_kernel("comm_msg", message_id, echo, {}, [])
    assert sent.to_page()[-1]["messages"][0]["parent_id"] == "v-1"
    assert not widgets.takes("status", message_id, {"execution_state": "idle"})
    assert sent.to_page()[-1] == {"type": "done", "gate": widgets.gate, "id": "v-1", "printed": "now 7\n"}
    # A page that comes later gets the state as it is now.
    widgets.from_page(
        "comm_msg", {}, {"comm_id": PAGE, "data": {"type": "attach", "gate": widgets.gate, "model": MODEL}}, []
    )
    assert sent.to_page()[-1]["messages"][0]["data"]["state"] == {"value": 7}


@pytest.mark.parametrize(
    "hostile",
    [
        {"target": "sandbox-kernel.frames"},
        {"target": "sandbox-kernel.panel"},
        {"target": "jupyter.widget.control"},
        {"target": ["jupyter.widget"]},
        {"comm_id": PAGE},
        {"comm_id": "../" * 10},
        {"comm_id": ["a"]},
        {"data": []},
        {"data": {"state": {"value": "x" * (13 << 20)}}},
        {"data": {"state": {"value": float("nan")}}},
        {"data": {"state": {str(number): 1 for number in range(2000)}}},
        {"buffers": [b"x"] * 100},
        {"buffers": [bytes(13 << 20)]},
        {"metadata": {"version": {"a": float("inf")}}},
    ],
    ids=lambda hostile: f"{next(iter(hostile))}-{str(hostile)[:40]}",
)
def test_a_hostile_comm_does_not_reach_the_page(widgets, sent, hostile):
    before = len(sent.messages)
    assert not opened(widgets, **hostile)
    assert sent.messages[before:] == []


def test_a_comm_that_was_not_opened_cannot_be_spoken_for(widgets, sent):
    before = len(sent.messages)
    for kind in ("comm_msg", "comm_close"):
        for comm_id in (PAGE, "ffff"):
            assert not widgets.from_kernel(kind, "cell", {"comm_id": comm_id, "data": UPDATE}, {}, [])
    assert sent.messages[before:] == []


def test_a_flood_of_one_cell_ends_and_the_next_cell_has_widgets(widgets, sent, monkeypatch):
    monkeypatch.setattr(widgets, "_left", 3)
    assert [opened(widgets, comm_id=f"a{number}") for number in range(4)] == [True, True, True, False]
    widgets.begin()
    assert widgets._left == MAX_COMM_MESSAGES
    assert opened(widgets, comm_id="b")


def test_a_page_reaches_only_open_comms_of_this_kernel_and_never_as_they_are(widgets, sent, delivered):
    opened(widgets)
    page_says(widgets, epoch=1)
    page_says(widgets, gate="0" * 32)
    page_says(widgets, comm_id="ffff")
    widgets.from_page("comm_msg", {}, {"comm_id": MODEL, "data": UPDATE}, [])
    widgets.from_page("comm_msg", {}, {"comm_id": ["x"], "data": UPDATE}, [])
    widgets.from_page("comm_open", {}, {"comm_id": "c", "target_name": "jupyter.widget.control", "data": {}}, [])
    assert delivered == []
    assert sent.messages[-1][:2] == ("comm_close", {"comm_id": "c", "data": {}})


def test_what_waits_for_the_kernel_is_bounded(widgets, delivered, monkeypatch):
    monkeypatch.setattr(kernel_widgets, "MAX_WAITING", 2)
    opened(widgets)
    for _ in range(5):
        page_says(widgets)
    assert len(delivered) == 2


def test_a_message_that_is_no_json_is_answered_and_starts_no_clock(widgets, sent, delivered):
    opened(widgets)
    page_says(widgets, data={"x": float("nan")})
    assert "was not delivered" in sent.to_page()[-1]["printed"]
    assert delivered == []
    assert widgets.left_s() is None


def test_callbacks_have_the_time_that_those_of_our_own_kernel_have(widgets, delivered):
    opened(widgets)
    page_says(widgets)
    assert widgets.left_s() is None
    widgets.takes("status", delivered[0][0], {"execution_state": "busy"})
    assert 0 < widgets.left_s() <= CALLBACK_S
    widgets.interrupted()
    assert widgets.left_s() is None


def test_comm_info_names_the_comms_of_front_ends_to_us_by_target(widgets):
    opened(widgets)
    assert widgets.open_comms(None) == {PAGE: {"target_name": "sandbox-kernel.frames"}}
    assert widgets.open_comms("jupyter.widget") == {}


def test_the_widgets_close_with_the_kernel(widgets, sent):
    opened(widgets)
    widgets.close()
    assert [message["msg_type"] for message in sent.to_page()[-1]["messages"]] == ["comm_close"]
