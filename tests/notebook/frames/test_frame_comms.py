"""Widgets of a real session, and pages that talk to them through the gate."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from sandbox_kernel import ExecResult, Sandbox
from sandbox_kernel.notebook.frames import frame_comms
from sandbox_kernel.notebook.frames.frame_comms import FrameComms
from sandbox_kernel.notebook.frames.gated_pages import GatedPages
from sandbox_kernel.receipt import MARK
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.session.cell.front_end import FrontEnd
from sandbox_kernel.session.cell.run_cell import Cell
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker.jailed_worker import JailedWorker

SLIDER = "import ipywidgets\nslider = ipywidgets.IntSlider(3)\nslider.observe(lambda c: print('now', c.new), 'value')\nslider"


class Page:
    """The page's end of the comm, as the extension uses it."""

    def __init__(self) -> None:
        self.got: list[Mapping[str, object]] = []
        self.done = threading.Event()
        self.hear: Callable[[Mapping[str, object]], None] = lambda message: None
        #: Waits until what the page said was taken in.
        self.heard: Callable[[], object] = lambda: None

    def send(self, data: Mapping[str, object], buffers: object = ()) -> None:
        self.got.append(data)
        if data["type"] == "done":
            self.done.set()

    def on_msg(self, hear: Callable[[Mapping[str, object]], None]) -> None:
        self.hear = hear

    def on_close(self, hear: object) -> None:
        pass

    def say(self, **data: object) -> None:
        self.hear({"content": {"data": data}, "buffers": []})
        self.heard()

    def messages(self) -> list[dict[str, object]]:
        return [message for data in self.got for message in data.get("messages", ())]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Sandbox() as box, box.session() as opened:
        yield opened


@pytest.fixture
def comms(session: Session) -> FrameComms:
    return FrameComms(lambda: [session], lambda data: False)


def connect(comms: FrameComms) -> Page:
    page = Page()
    comms._connected(page, {})
    page.heard = lambda: comms._heard.submit(int).result(60)
    page.heard()
    return page


def run(session: Session, comms: FrameComms, code: str, timeout: float = 60) -> None:
    result = session.run(code, timeout, on_display=lambda display: comms.take(display) and None)
    comms.settled(session, went_back=result.rolled_back)


def move(page: Page, session: Session, model: str, value: int, epoch: int = 0) -> None:
    data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
    message = {"msg_type": "comm_msg", "msg_id": "v-1", "comm_id": model, "data": data}
    page.say(type="comm", gate=session.present_state[0], epoch=epoch, msg=message)


def value_of(session: Session, code: str) -> object:
    return session.run(code).displays[0].data["text/plain"]


def slider(session: Session, comms: FrameComms, more: str = "") -> str:
    """Run a cell that makes a slider and does ``more``; returns the name of its model."""
    run(session, comms, SLIDER + more)
    model = str(value_of(session, "slider.model_id")).strip("'")
    comms.settled(session, went_back=False)
    return model


def moved(page: Page, session: Session, model: str, value: int, epoch: int = 0) -> bool:
    """Move the slider on a page; whether the page was told that its callbacks have run."""
    move(page, session, model, value, epoch)
    return page.done.wait(60)


def test_a_change_on_the_page_runs_callbacks_in_the_session_and_is_told_to_every_page(
    session: Session, comms: FrameComms
) -> None:
    first, second = connect(comms), connect(comms)
    model = slider(session, comms)
    before = [node.code for node in session.history()]
    assert moved(first, session, model, 9)
    assert [data.get("printed") for data in first.got if data["type"] == "done"] == ["now 9\n"]
    assert [node.code for node in session.history()] == before
    assert value_of(session, "slider.value") == "9"
    echoes = [message for message in second.messages() if message["data"].get("method") == "echo_update"]  # type: ignore[attr-defined]
    assert [(echo["comm_id"], echo["parent_id"]) for echo in echoes] == [(model, "v-1")]


def test_few_messages_of_a_page_wait_while_their_session_is_busy(
    session: Session, comms: FrameComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, may_go_on = connect(comms), threading.Event()
    model = slider(session, comms)
    deliver = comms._deliver
    monkeypatch.setattr(comms, "_deliver", lambda *given: (may_go_on.wait(60), deliver(*given)))
    monkeypatch.setattr(frame_comms, "MAX_WAITING", 3)
    for value in range(10, 15):
        move(page, session, model, value)
    refused = [data["printed"] for data in page.got if data["type"] == "done"]
    assert refused == [frame_comms._BUSY, ""]
    monkeypatch.setattr(frame_comms, "MAX_WAITING", 100)
    monkeypatch.setattr(frame_comms, "MAX_WAITING_BYTES", comms._bytes)
    move(page, session, model, 15)
    assert len([data for data in page.got if data["type"] == "done"]) == 3
    may_go_on.set()
    assert comms._work is not None
    comms._work.shutdown(wait=True)
    assert value_of(session, "slider.value") == "12"
    assert (comms._waiting, comms._bytes) == (0, 0)


def test_an_answer_comes_before_the_copy_of_the_files(
    session: Session, comms: FrameComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = connect(comms)
    label = "\nlabel = ipywidgets.Label()\nipywidgets.dlink((slider, 'value'), (label, 'value'), str)"
    model = slider(session, comms, label)
    order, kept = JailedWorker.keep_files, threading.Event()

    def copy(worker: JailedWorker) -> None:
        page.got.append({"type": "copy"})
        order(worker)
        kept.set()

    page.got.clear()
    monkeypatch.setattr(JailedWorker, "keep_files", copy)
    move(page, session, model, 9)
    assert kept.wait(60)
    assert [data["type"] for data in page.got] == ["comms", "comms", "done", "copy"]
    methods = [message["data"]["method"] for message in page.messages()]  # type: ignore[index]
    assert methods == ["echo_update", "update"]
    assert value_of(session, "label.value") == "'9'"
    assert value_of(session, "slider.value") == "9"


def test_a_widget_does_not_wait_until_the_host_has_read_its_messages(
    session: Session, comms: FrameComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Cell._seen
    waits: list[bool] = []
    monkeypatch.setattr(Cell, "_seen", lambda cell, question: (waits.append(question > 0), seen(cell, question))[1])
    run(session, comms, "import ipywidgets\nslider = ipywidgets.IntSlider()\nslider.value = 5\ndisplay(1)")
    assert waits == [False] * 4 + [True]  # a display waits, so that what is printed next stands below it


@pytest.mark.slow
def test_a_cell_that_is_rolled_back_takes_its_widgets_along(session: Session, comms: FrameComms) -> None:
    page = connect(comms)
    model = slider(session, comms)
    run(session, comms, "slider.value = 50\nother = ipywidgets.Label('x')\nwhile True: pass", timeout=3)
    kinds = [(message["msg_type"], message["comm_id"] == model) for message in page.messages()]
    assert kinds.count(("comm_close", False)) == 3
    assert kinds[-1] == ("comm_msg", True)
    move(page, session, model, 7, epoch=0)  # it was under way
    assert moved(page, session, model, 8, epoch=1)
    assert value_of(session, "slider.value") == "8"


def test_widgets_that_a_rollback_does_not_touch_go_on(session: Session, comms: FrameComms) -> None:
    page = connect(comms)
    model = slider(session, comms)
    run(session, comms, "while True: pass", timeout=2)
    assert moved(page, session, model, 7, epoch=int(str(page.got[-1]["epoch"])))
    assert value_of(session, "slider.value") == "7"


@pytest.mark.slow
def test_a_callback_that_never_ends_is_ended_and_the_session_lives(
    session: Session, comms: FrameComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.notebook.frames.frame_comms.CALLBACK_S", 2.0)
    page = connect(comms)
    model = slider(session, comms, "\ndef loop(change):\n    while True: pass\nslider.observe(loop, 'value')")
    deliver, told = session.deliver, list[object]()

    def noted(*args: Any, **named: Any) -> ExecResult:
        result = deliver(*args, **named)
        told.extend(message["data"]["method"] for message in page.messages() if "method" in message["data"])  # type: ignore[index, operator]
        return result

    monkeypatch.setattr(session, "deliver", noted)
    assert moved(page, session, model, 9)
    assert told == ["echo_update"]  # other pages see the move while the callback runs
    assert "was ended: timeout" in str(page.got[-1]["printed"])
    assert page.messages()[-1]["data"]["state"]["value"] == 3  # type: ignore[index]
    assert value_of(session, "slider.value") == "3"


def test_stop_ends_the_callback_that_runs_and_those_that_wait(session: Session, comms: FrameComms) -> None:
    page = connect(comms)
    sleeps = "import time\ndef sleep(change):\n    print('sleeps')\n    time.sleep(25)\nslider.observe(sleep, 'value')"
    model = slider(session, comms, f"\n{sleeps}")
    begun, deliver = threading.Event(), session.deliver

    def noted(
        message: Any, timeout: float, stop: Any, on_output: Callable[[str, str], object], **rest: Any
    ) -> ExecResult:
        return deliver(message, timeout, stop, lambda *text: (begun.set(), on_output(*text))[1], **rest)

    session.deliver = noted  # type: ignore[method-assign, assignment]
    try:
        for value in (9, 10, 11):
            move(page, session, model, value)
        assert begun.wait(60)
        comms.interrupt()
        assert comms._work is not None
        comms._work.shutdown(wait=True)
    finally:
        session.deliver = deliver  # type: ignore[method-assign]
    ended = ["was ended: interrupted" in str(data["printed"]) for data in page.got if data["type"] == "done"]
    assert ended == [True] * 3
    assert value_of(session, "slider.min") == "0"  # the session lives


def test_what_a_callback_prints_never_has_our_mark(session: Session, comms: FrameComms) -> None:
    page = connect(comms)
    model = slider(session, comms, f"\nslider.observe(lambda _: print('{MARK} allowed'), 'value')")
    assert moved(page, session, model, 9)
    assert str(page.got[-1]["printed"]).endswith("□ allowed\n")


def test_a_state_that_a_callback_lost_is_told_in_the_page(session: Session, comms: FrameComms) -> None:
    page = connect(comms)
    ends = "import os, signal\ndef end(change):\n    for name in filter(str.isdigit, os.listdir('/proc')):\n"
    ends += "        if int(name) not in (1, os.getpid()): os.kill(int(name), signal.SIGKILL)\n    os._exit(3)\n"
    model = slider(session, comms, f"\n{ends}slider.observe(end, 'value')")
    assert moved(page, session, model, 9)
    assert "the session's state is lost" in str(page.got[-1]["printed"])


def test_a_page_that_comes_later_gets_the_state_and_another_session_nothing(
    session: Session, comms: FrameComms
) -> None:
    model = slider(session, comms, "\nslider.value = 6")
    page = connect(comms)
    page.say(type="attach", gate=session.present_state[0], model=model)
    assert page.messages()[-1]["data"]["state"]["value"] == 6  # type: ignore[index]
    page.say(type="attach", gate="0" * 16, model=model)
    assert page.got[-1]["messages"] == []


def test_what_is_printed_in_an_output_widget_is_part_of_its_state(session: Session, comms: FrameComms) -> None:
    page = connect(comms)
    code = (
        "import ipywidgets\nfrom IPython.display import display, clear_output\nout = ipywidgets.Output()\n"
        "with out:\n    print('gone')\n    clear_output(wait=True)\n    print('caught')\n    display(5)\n    1 / 0\nprint('after')"
    )
    result = session.run(code, on_display=lambda display: comms.take(display) and None)
    assert (result.ok, result.stdout) == (True, "after\n")
    updates = [
        message["data"]["state"]["outputs"]
        for message in page.messages()
        if "outputs" in message["data"].get("state", {})
    ]  # type: ignore[index, attr-defined]
    assert [output["output_type"] for output in updates[-1]] == ["stream", "display_data", "error"]
    assert updates[-1][0]["text"] == "caught\n"


class Late:
    """The front end of a cell that has ended."""

    def __init__(self, comms: FrameComms) -> None:
        self.comms, self.said, self.told = comms, list[str](), threading.Event()

    def text(self, stream: str, text: str) -> None:
        self.said.append(text)

    def display(self, display: SessionDisplay) -> None:
        if self.comms.take(display):
            self.told.set()

    def cut(self) -> None:
        raise AssertionError("this is little output")


def run_with_a_front_end(session: Session, comms: FrameComms, code: str) -> Late:
    late = Late(comms)
    front_end = FrontEnd(expressions={}, on_reply=lambda reply: None, late=late)
    asyncio.run(session.arun(code, on_display=lambda display: comms.take(display) and None, front_end=front_end))
    comms.settled(session, went_back=False)
    return late


def test_a_callback_prints_to_its_page_and_not_below_the_last_cell(session: Session, comms: FrameComms) -> None:
    page = connect(comms)
    late = run_with_a_front_end(session, comms, SLIDER)
    model = next(str(m["comm_id"]) for m in page.messages() if "IntSliderModel" in repr(m))
    assert moved(page, session, model, 7)
    assert "now 7" in str(page.got[-1]["printed"])
    assert late.said == []


def test_a_thread_moves_a_widget_between_cells(session: Session, comms: FrameComms) -> None:
    page = connect(comms)
    code = "import threading\nthreading.Timer(0.5, lambda: setattr(slider, 'value', 9)).start()"
    run_with_a_front_end(session, comms, SLIDER)
    late = run_with_a_front_end(session, comms, code)
    assert late.told.wait(60)
    assert "'value': 9" in repr(page.messages()[-1])


def test_a_widget_is_saved_with_its_state(session: Session, comms: FrameComms) -> None:
    shown: list[SessionDisplay] = []
    session.run(SLIDER.replace("(3)", "(37)"), on_display=shown.append)
    view = [display for display in shown if not comms.take(display)][-1]
    saved = str(comms.with_state(view).data["text/html"])
    assert "&quot;value&quot;: 37" in saved
    assert "needs" in saved
    other = FrameComms(lambda: [session], lambda data: False)
    assert "37" not in str(other.with_state(view).data["text/html"])  # the state is not known here


@pytest.mark.parametrize(("sent", "heard"), [(999, 999), (1200, 1000)])
def test_what_pages_send_waits_for_a_gate_in_bounded_number_and_not_on_the_loop(
    session: Session, comms: FrameComms, sent: int, heard: int
) -> None:
    page = connect(comms)
    run(session, comms, SLIDER)
    gate, model = session.present_state[0], str(value_of(session, "slider.model_id")).strip("'")
    with comms._pages._lock:  # as while a session's large message is encoded
        asked = {"content": {"data": {"type": "attach", "gate": gate, "model": model}}, "buffers": []}
        for _ in range(sent):
            page.hear(asked)
    page.heard()
    assert len([data for data in page.got if data["type"] == "state"]) == heard


@pytest.mark.parametrize(
    "data", [None, [], {}, {"type": "attach"}, {"type": "attach", "gate": 1, "model": "m"}, {"type": "x", "gate": "g"}]
)
def test_what_is_no_message_of_a_page_is_dropped(data: object) -> None:
    pages, page = GatedPages(), Page()
    pages.connect(page)
    assert pages.received(page, data, []) is None
    assert page.got == []


def test_a_file_of_seven_megabytes_reaches_the_session(session: Session, comms: FrameComms) -> None:
    page = connect(comms)
    run(session, comms, "import ipywidgets\nup = ipywidgets.FileUpload()\nup")
    gate, model = session.present_state[0], str(value_of(session, "up.model_id")).strip("'")
    file = {"name": "big.bin", "type": "", "size": 7 << 20, "last_modified": 0}
    data = {"method": "update", "state": {"value": [file]}, "buffer_paths": [["value", 0, "content"]]}
    message = {"msg_type": "comm_msg", "msg_id": "m1", "comm_id": model, "data": data}
    sent = {"type": "comm", "gate": gate, "epoch": 0, "msg": message}
    page.hear({"content": {"data": sent}, "buffers": [b"x" * (7 << 20)]})
    assert page.done.wait(120)
    assert page.got[-1]["printed"] == ""
    assert value_of(session, "len(up.value[0].content)") == f"{7 << 20}"


def test_what_is_not_delivered_is_told_in_the_page(comms: FrameComms) -> None:
    page = connect(comms)
    page.say(type="comm", gate="x", epoch=0, msg={"msg_type": "comm_msg"})
    assert str(page.got[-1]["printed"]).startswith("[a message of this widget was not delivered: it is no comm message")
