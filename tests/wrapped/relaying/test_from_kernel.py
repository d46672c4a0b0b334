"""The half of a relay that reads a hostile kernel, without a kernel: messages in, what front ends get out."""

import itertools
import json
import threading
from types import SimpleNamespace

import pytest

from sandbox_kernel.untrusted.json_value import size_of
from sandbox_kernel.wrapped.inner_kernel import CHANNELS
from sandbox_kernel.wrapped.relaying import from_kernel, outside
from sandbox_kernel.wrapped.relaying.from_kernel import FromKernel, Requests, SentCell
from sandbox_kernel.wrapped.relaying.kernel_widgets import KernelWidgets
from sandbox_kernel.wrapped.relaying.outside import Outside
from sandbox_kernel.wrapped.relaying.wire import Signer, split, to_json

PARENT = {"msg_id": "cell", "msg_type": "execute_request"}


class Sent(Outside):
    """The outside of a relay; it keeps what is sent."""

    def __init__(self):
        self.signer, self._session = Signer(b"outside"), "ours"
        self.by_channel, self.waiting, self.messages = dict.fromkeys(CHANNELS), SimpleNamespace(send=self.keep), []

    def keep(self, sock, frames):
        packet = split(frames)
        assert self.signer.verifies(packet.signature, packet.parts)
        self.messages.append([json.loads(part) for part in packet.parts])

    def texts(self):
        return [content["text"] for header, _, _, content in self.messages if header["msg_type"] == "stream"]


@pytest.fixture
def sent():
    return Sent()


@pytest.fixture
def carrier(sent):
    return FromKernel(sent, KernelWidgets(sent, lambda *_: None), Requests(None), None)


def message(kind, content, parent=PARENT):
    header = {"msg_id": "1", "msg_type": kind}
    return [b"topic", b"<IDS|MSG>", b"", *(json.dumps(part).encode() for part in (header, parent, {}, content))]


def printed(text, name="stdout"):
    return message("stream", {"name": name, "text": text})


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"name": "stdout", "text": "a"}, ["a"]),
        ({"text": "a", "more": [[{}] * 9, 1e999, 2**99], "name": "stderr"}, ["a"]),
        ({"name": "stdout", "text": "\ud800b"}, ["?b"]),
        ({"name": "stdout", "text": "c", "deep": json.loads("[" * 900 + "]" * 900)}, ["c"]),
        ({"name": "stdin", "text": "a"}, []),
        ({"name": "stdout", "text": 1}, []),
        ({"text": "a"}, []),
        ([], []),
    ],
)
def test_printed_text_is_shown_whatever_stands_beside_it_and_nothing_else_is_taken_for_it(
    carrier, sent, content, shown
):
    carrier.carry("iopub", message("stream", content))
    assert (sent.texts(), carrier.dropped["malformed"]) == (shown, 0 if shown else 1)


def test_much_text_with_an_escape_sequence_far_behind_is_cleaned(carrier, sent):
    text = f"{'plain text' * 10}\n" * (2 * from_kernel._PIECE // 101)
    carrier.carry("iopub", printed(text + "\x1b]0;title\x07\u25a3 end\n" + text))
    assert "".join(sent.texts()) == text + "\u25a1 end\n" + text
    assert len(sent.messages) > 3
    assert {parent["msg_id"] for _, parent, _, _ in sent.messages} == {"cell"}


def test_each_message_has_the_header_of_its_own_parent(carrier, sent):
    other = {"msg_id": "other", "msg_type": "execute_request"}
    for parent in (PARENT, other, other, PARENT, {}):
        carrier.carry("iopub", message("status", {"execution_state": "busy"}, parent))
    assert [parent.get("msg_id") for _, parent, _, _ in sent.messages] == ["cell", "other", "other", "cell", None]


def test_a_message_full_of_blanks_gets_no_more_time_for_its_check(carrier, sent, monkeypatch):
    slow = itertools.count(0, 10)
    monkeypatch.setattr(from_kernel.time, "thread_time", lambda: next(slow))
    blanks = b" " * (7 * from_kernel.USUAL_PACE)
    *head, content = message("execute_result", {"data": {"text/plain": "x"}, "metadata": {}, "execution_count": 1})
    carrier.carry("iopub", [*head, content[:-1] + blanks + b"}"])
    carrier.carry("iopub", message("stream", {"name": "stdout", "text": "dropped"}))
    assert carrier.dropped["too slow to check"] == 1


def test_the_size_of_a_value_is_that_of_its_texts():
    assert size_of({"a": ["bc", {"def": "ghij"}, 1, None]}) == 1 + 2 + 3 + 4 + 2 * 8


_WIDGET = {"comm_id": "aa", "target_name": "jupyter.widget", "data": {"state": {}}}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("comm_open", _WIDGET),
        ("display_data", {"data": {"text/plain": "x"}, "metadata": {}}),
        ("update_display_data", {"data": {"text/plain": "x"}, "metadata": {}}),
        ("stream", {"name": "stdout", "text": "x"}),
        ("error", {"ename": "E", "evalue": "", "traceback": []}),
    ],
)
@pytest.mark.parametrize(("each_s", "later"), [(0.002, True), (from_kernel.MAX_SLOW_S + 1, False)])
def test_whatever_the_host_does_for_an_output_of_a_cell_is_counted(
    carrier, sent, monkeypatch, kind, content, each_s, later
):
    times = itertools.count(0.0, each_s)
    monkeypatch.setattr(from_kernel.time, "thread_time", lambda: next(times))
    carrier.carry("iopub", message(kind, content))
    carrier.carry("iopub", printed("later"))
    assert ("later" in sent.texts()) is later
    assert carrier.dropped["too slow to check"] == (0 if later else 1)
    carrier.carry("iopub", message("status", {"execution_state": "idle"}))
    assert sent.messages[-1][3] == {"execution_state": "idle"}  # a cell that shows nothing more still ends


@pytest.mark.parametrize("each_s", [0.002, from_kernel.MAX_SLOW_S + 1])
def test_whatever_the_host_does_for_a_reply_is_counted_and_a_cell_still_ends(carrier, sent, monkeypatch, each_s):
    times = itertools.count(0.0, each_s)
    monkeypatch.setattr(from_kernel.time, "thread_time", lambda: next(times))
    shown = {"status": "ok", "data": {"text/plain": "x"}, "metadata": {}}
    content = {"status": "ok", "execution_count": 7, "payload": [], "user_expressions": {"a": shown}}
    for name in ("first", "second"):
        carrier.requests.routes[name] = [b"front end"]
        carrier.carry("shell", message("execute_reply", content, {"msg_id": name, "msg_type": "execute_request"}))
    first, second = (each[3] for each in sent.messages if each[0]["msg_type"] == "execute_reply")
    assert ("a" in first["user_expressions"]) is ("a" in second["user_expressions"]) is (each_s < 1)
    assert first["execution_count"] == second["execution_count"] == 7
    assert ("not shown" in str(sent.texts())) is (each_s > 1)


def test_front_ends_are_heard_between_the_values_and_pages_of_a_reply(carrier, sent):
    heard = []
    carrier.between = lambda: heard.append(len(sent.messages))
    shown = {"status": "ok", "data": {"text/plain": "x"}, "metadata": {}}
    page = {"source": "page", "data": {"text/plain": "x"}, "start": 0}
    content = {"status": "ok", "payload": [page] * 3, "user_expressions": {"a": shown, "b": shown}}
    carrier.requests.routes["cell"] = [b"front end"]
    carrier.carry("shell", message("execute_reply", content))
    assert heard == [0] * 5
    assert len(sent.messages[-1][3]["payload"]) == 3


def test_questions_that_nobody_answers_are_bounded_and_an_answer_lets_a_cell_ask_again(carrier, sent):
    carrier.requests.sent("cell", SentCell(PARENT, [b"front end"]))
    carrier.requests.routes["cell"] = [b"front end"]
    question = message("input_request", {"prompt": "x"})
    for _ in range(from_kernel.MOST_QUESTIONS + 5):
        carrier.carry("stdin", question)
    assert len(sent.messages) == from_kernel.MOST_QUESTIONS
    carrier.requests.answered()
    carrier.carry("stdin", question)
    assert len(sent.messages) == from_kernel.MOST_QUESTIONS + 1


def test_front_ends_are_heard_between_the_pieces_of_much_text(carrier, sent):
    heard = []
    carrier.between = lambda: heard.append(len(sent.messages))
    text = f"\x1b[31m{'red' * 1000}\x1b[0m\n" * (3 * from_kernel._PIECE // 3010)
    carrier.carry("iopub", printed(text))
    assert "".join(sent.texts()) == text
    assert len(heard) > 2
    assert heard == sorted(set(heard))


_BAR = {"data": {"text/plain": "x"}, "metadata": {}, "transient": {"display_id": "bar"}}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("status", {"execution_state": "busy"}),
        ("execute_input", {"code": "x"}),
        ("clear_output", {"wait": True}),
        ("update_display_data", _BAR),
        ("stream", {"name": "stdout", "text": "x"}),
    ],
)
def test_a_flood_that_draws_nothing_reaches_a_page_at_a_pace_and_its_end_is_shown(carrier, sent, kind, content):
    for _ in range(3000):
        carrier.carry("iopub", message(kind, content))
    assert outside.AT_ONCE <= len(sent.messages) < 2000
    carrier.carry("iopub", message("display_data", {**_BAR, "transient": {}}))
    assert sent.messages[-2][0]["msg_type"] == kind, "the newest, before what must not overtake it"
    assert kind != "stream" or "".join(sent.texts()) == 3000 * "x", "text is joined, not left out"
    ids = [each[0]["msg_id"] for each in sent.messages]
    assert len(ids) == len(set(ids)), "front ends refuse a message that they have seen"


_WAITED = {
    "a C b C c": "C c",
    "a W b W c": "W c",
    "W a W": "W a W",
    "a W": "a W",
    "W a W C b": "C b",
    "C a b W": "C ab W",
}


@pytest.mark.parametrize("sends", _WAITED)
def test_of_texts_and_clearings_that_wait_a_page_gets_what_it_would_show(carrier, sent, monkeypatch, sends):
    monkeypatch.setattr(outside, "A_SECOND", 0)
    carrier.paced._room = 0
    for each in sends.split():
        clears = message("clear_output", {"wait": each == "W"})
        carrier.carry("iopub", clears if each in "CW" else printed(each))
    carrier.paced.let_go()
    got = [each[3].get("text") or "CW"[each[3]["wait"]] for each in sent.messages]
    assert " ".join(got) == _WAITED[sends]


@pytest.mark.parametrize(("more", "shown"), [(-1000, 1), (1, 0)])
def test_a_display_is_decoded_unless_it_is_too_large(carrier, sent, monkeypatch, more, shown):
    monkeypatch.setattr(from_kernel, "MAX_JSON", 200_000)
    text = "x" * (200_000 + more)
    carrier.carry("iopub", message("display_data", {"data": {"text/plain": text}, "metadata": {}}))
    assert (len(sent.messages), carrier.dropped["too large"]) == (shown, 1 - shown)


@pytest.mark.parametrize("value", [{"text": "\ud800"}, {"\udfff": "x"}, {"text": float("nan")}])
def test_what_cannot_be_sent_is_an_error(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"surrogates|JSON compliant"):
        to_json(value)


def clock(**options):
    made = Requests(60.0)
    made.sent("a", SentCell({}, (), **options))
    return made


def test_the_clock_stands_while_the_user_is_asked_and_for_no_other_question():
    made = clock()
    assert not made.asked("nobody"), "a cell that is not there"
    made.sent("b", SentCell({}, ()))
    assert made.asked("b"), "a cell that waits"
    assert made.left_s() is not None
    assert made.asked("a")
    assert made.left_s() is None
    made.answered()
    assert made.left_s() is not None
    deaf = clock(may_ask=False)
    assert not deaf.asked("a"), "its front end answers no questions"
    assert deaf.left_s() is not None


@pytest.mark.parametrize("kinds", [("status", "execute_reply"), ("execute_reply", "status")])
def test_a_cell_is_over_when_both_its_reply_and_its_idle_status_came(kinds):
    made = clock()
    assert [made.ends("a", kinds[0]) for _ in range(3)] == [False] * 3
    assert made.ends("a", kinds[1])
    assert made.left_s() is not None
    made.finished("a")
    assert made.left_s() is None
    assert not made.ends("a", kinds[1])


def test_front_ends_are_heard_while_the_folder_is_worked_on():
    heard = threading.Event()
    relay = FromKernel.__new__(FromKernel)
    relay.between = heard.set
    assert relay._meanwhile(lambda: heard.wait(60))
