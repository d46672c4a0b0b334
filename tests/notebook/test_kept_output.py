"""What the kernel keeps of cells for a page that comes back."""

import pytest

from sandbox_kernel.notebook.cell_requests import MAX_CELLS, MAX_CHARACTERS, KeptOutput


class Comm:
    """A page's comm."""

    def __init__(self, kept):
        self.kept, self.sent = kept, []

    def ask(self):
        self.kept.asked(self, {})
        return self.sent[-1]["shown"]

    def send(self, data):
        self.sent.append(data)


def parent(request, client="page"):
    return {"header": {"msg_id": request, "session": client}}


def kept_with(*messages, request="r1"):
    sent = []
    kept = KeptOutput(lambda kind, content, _: sent.append((kind, content)))
    kept.begin(parent(request), "cell-1", "x = 1", 3)
    for kind, content in messages:
        kept.send(kind, content, parent(request))
    assert sent == list(messages)
    return kept, Comm(kept)


def test_a_page_is_told_what_a_running_cell_has_shown():
    text = [("stream", {"name": "stdout", "text": part}) for part in ("a", "b")]
    shown = ("display_data", {"data": {"text/plain": "x"}, "metadata": {}, "transient": {"display_id": "d"}})
    kept, comms = kept_with(*text, shown, ("status", {"execution_state": "busy"}))
    [cell] = comms.ask()
    assert (cell["request"], cell["cell"], cell["client"], cell["count"]) == ("r1", "cell-1", "page", 3)
    assert cell["code"] == "x = 1"
    assert cell["running"]
    assert cell["messages"] == [
        {"kind": "stream", "content": {"name": "stdout", "text": "ab"}},
        {"kind": shown[0], "content": shown[1]},
    ]
    kept.end(parent("r1"))
    assert not comms.ask()[0]["running"]


def test_cleared_output_is_forgotten():
    _, comms = kept_with(("stream", {"name": "stdout", "text": "old"}), ("clear_output", {"wait": False}))
    assert comms.ask()[0]["messages"] == []


def test_what_is_kept_is_bounded():
    half = ("stream", {"name": "stdout", "text": "x" * (MAX_CHARACTERS // 2)})
    kept, comms = kept_with(half, half, half)
    [cell] = comms.ask()
    assert cell["cut"]
    assert sum(len(one["content"]["text"]) for one in cell["messages"]) <= MAX_CHARACTERS
    for number in range(20):
        kept.begin(parent(f"other-{number}"), "cell", "", number)
    assert len(comms.ask()) == MAX_CELLS


def test_messages_of_other_requests_are_only_sent():
    sent = []
    kept = KeptOutput(lambda *message: sent.append(message))
    kept.begin(parent("r1"), "cell-1", "x = 1", 3)
    kept.send("stream", {"name": "stdout", "text": "x"}, {})
    assert sent == [("stream", {"name": "stdout", "text": "x"}, {})]
    assert Comm(kept).ask()[0]["messages"] == []


@pytest.mark.parametrize(("values", "cut"), [(MAX_CHARACTERS // 8 - 100, False), (MAX_CHARACTERS // 8, True)])
def test_values_inside_of_an_output_are_counted(values, cut):
    _, comms = kept_with(("display_data", {"data": {"application/json": {"deep": [[1] * values]}}, "metadata": {}}))
    assert comms.ask()[0]["cut"] is cut
