"""The gate refuses what is not its session's own, gives a new page the state of now, and goes back with its session."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sandbox_kernel.notebook.frames import comm_gate
from sandbox_kernel.notebook.frames.comm_gate import CommGate
from sandbox_kernel.notebook.frames.gated_pages import GatedPages
from sandbox_kernel.untrusted.frames.comm_message import CommMessage
from sandbox_kernel.untrusted.frames.frame_output import FRAME


def gate_of(*messages: CommMessage) -> CommGate:
    """A gate that these messages of a session have passed."""
    gate = CommGate()
    for message in messages:
        gate.from_session(message)
    return gate


def opened(name: str, **state: object) -> CommMessage:
    return CommMessage(
        kind="comm_open", comm_id=name, data={"state": state, "buffer_paths": []}, metadata={"version": "2.1.0"}
    )


def update(name: str, **state: object) -> CommMessage:
    return CommMessage(kind="comm_msg", comm_id=name, data={"method": "update", "state": state}, metadata={})


def closed(name: str) -> CommMessage:
    return CommMessage(kind="comm_close", comm_id=name, data={}, metadata={})


def states(messages: list[CommMessage]) -> list[tuple[str, str, object]]:
    return [(message.kind, message.comm_id, message.data.get("state")) for message in messages]


def test_a_widget_that_its_session_closed_is_told_from_one_that_is_not_kept() -> None:
    gate = gate_of(opened("aa"))
    gate.settled(1, went_back=False)
    assert not gate.has_closed("aa")
    gate.from_session(closed("aa"))
    gate.from_session(closed("bb"))
    assert gate.has_closed("aa")
    assert not gate.has_closed("bb")
    # The session goes back to where it was open.
    gate.settled(1, went_back=True)
    assert not gate.has_closed("aa")


def test_only_comms_that_the_session_has_opened_and_not_closed_pass() -> None:
    gate = CommGate()
    assert gate.from_session(opened("aa"))
    assert not gate.from_session(opened("aa"))
    assert gate.from_page(update("aa", value=1), 0)
    assert not gate.from_page(update("bb", value=1), 0)
    assert not gate.from_session(update("bb", value=1))
    assert gate.from_session(closed("aa"))
    assert not gate.from_page(update("aa", value=1), 0)


def test_the_number_of_comms_and_the_rate_of_a_page_are_bounded() -> None:
    gate = CommGate()
    passed = [gate.from_session(opened(f"{n:x}")) for n in range(comm_gate.MAX_OPEN_COMMS + 9)]
    assert sum(passed) == comm_gate.MAX_OPEN_COMMS
    assert sum(gate.from_page(update("1"), 0) for _ in range(5 * comm_gate.PER_SECOND)) <= 2 * comm_gate.PER_SECOND


def test_a_new_page_gets_the_model_and_what_it_refers_to_as_they_are_now() -> None:
    gate = gate_of(
        opened("a1", value=1),
        opened("b2", layout="IPY_MODEL_a1", children=["IPY_MODEL_c3"]),
        opened("c3"),
        opened("d4"),
    )
    gate.from_session(update("a1", value=7))
    found = states(gate.replay("b2"))
    assert {name for _, name, _ in found} == {"a1", "b2", "c3"}
    assert found[-1][1] == "b2"
    assert ("comm_open", "a1", {"value": 7}) in found
    assert gate.replay("unknown") == []


def test_models_are_told_in_the_order_of_their_opening_whatever_their_random_names() -> None:
    def kinds(layout: str, style: str) -> list[object]:
        parts = [f"IPY_MODEL_{layout}", f"IPY_MODEL_{style}"]
        gate = gate_of(
            opened(layout, kind="layout"), opened(style, kind="style"), opened("mm", kind="slider", parts=parts)
        )
        return [state and state["kind"] for _, _, state in states(gate.replay("mm"))]

    assert kinds("aa", "bb") == kinds("bb", "aa")


def test_a_page_gets_the_links_of_what_it_draws_and_their_other_ends() -> None:
    link = opened("dd", _model_name="LinkModel", source=["IPY_MODEL_aa", "v"], target=["IPY_MODEL_bb", "v"])
    gate = gate_of(*map(opened, ("aa", "bb", "cc")), link)
    assert [name for _, name, _ in states(gate.replay("aa"))] == ["bb", "aa", "dd"]
    assert [name for _, name, _ in states(gate.replay("cc"))] == ["cc"]


def test_binary_state_is_kept_and_replaced_by_its_path() -> None:
    gate = CommGate()
    data = {"state": {"n": 1}, "buffer_paths": [["data"]]}
    gate.from_session(CommMessage(kind="comm_open", comm_id="aa", data=data, metadata={}, buffers=(b"old",)))
    change = {"method": "update", "state": {}, "buffer_paths": [["data"]]}
    gate.from_session(CommMessage(kind="comm_msg", comm_id="aa", data=change, metadata={}, buffers=(b"new",)))
    (replayed,) = gate.replay("aa")
    assert replayed.buffers == (b"new",)
    assert replayed.data["buffer_paths"] == [["data"]]


def test_a_rollback_closes_the_comms_of_the_cell_and_brings_values_back() -> None:
    gate = gate_of(opened("aa", value=1))
    assert gate.settled(1, went_back=False) == []
    gate.from_session(update("aa", value=5))
    gate.from_session(opened("bb"))
    assert states(gate.settled(1, went_back=True)) == [("comm_close", "bb", None), ("comm_msg", "aa", {"value": 1})]
    assert gate.replay("bb") == []
    first_cell = gate_of(opened("aa", value=1))
    assert states(first_cell.settled(3, went_back=True)) == [("comm_close", "aa", None)]


@pytest.mark.parametrize("is_known", [True, False])
def test_undo_and_redo_open_and_close_what_each_state_has(is_known: bool) -> None:
    gate = CommGate()
    if is_known:  # else it was before all widgets
        gate.settled(1, went_back=False)
    gate.from_session(opened("aa", value=1))
    gate.settled(2, went_back=False)
    assert states(gate.settled(1, went_back=False)) == [("comm_close", "aa", None)]
    assert states(gate.settled(2, went_back=False)) == [("comm_open", "aa", {"value": 1})]


def test_a_message_that_was_under_way_when_the_session_went_back_is_refused() -> None:
    gate = gate_of(opened("aa", value=1))
    gate.settled(1, went_back=False)
    before = gate.epoch
    gate.settled(1, went_back=True)
    assert not gate.from_page(update("aa", value=2), before)
    assert gate.from_page(update("aa", value=2), gate.epoch)


def test_marks_are_few() -> None:
    gate = CommGate()
    for state in range(1000):
        gate.settled(state, went_back=False)
    assert len(gate._marks) == comm_gate.MAX_MARKS


def test_the_memory_of_earlier_states_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm_gate, "MAX_HELD", 4 << 20)
    gate = gate_of(opened("aa"))
    for state in range(1, 60):
        assert gate.from_session(update("aa", value=f"{state}" * (128 << 10)))
        gate.settled(state, went_back=False)
    held = {id(text): len(text) for text in _texts_of(gate)}
    assert sum(held.values()) <= comm_gate.MAX_HELD
    # The last states are whole; comms of older ones close.
    gate.from_session(opened("bb"))
    assert [kind for kind, *_ in states(gate.settled(58, went_back=False))] == ["comm_close", "comm_msg"]
    gate.from_session(opened("bb"))
    assert [kind for kind, *_ in states(gate.settled(2, went_back=False))] == ["comm_close", "comm_close"]


def _texts_of(gate: CommGate) -> list[str]:
    versions = [version for comms in (gate._open, *gate._marks.values()) for version in comms.values()]
    return [entry.content for version in versions for entry in version.now.state.values()]


def test_a_state_of_many_small_values_takes_no_more_than_is_counted() -> None:
    gate = CommGate()
    tracemalloc.start()
    try:
        for number in range(10):
            value = [[] for _ in range(10_000)]
            assert gate.from_session(opened(f"{number}", value=value))
        del value
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * gate._store.held


def test_metadata_of_comms_is_counted_and_the_library_that_each_figure_brings_is_kept_once() -> None:
    gate = gate_of(replace(opened("aa"), metadata={"x": "y" * (1 << 20)}))
    assert gate._store.held > 1 << 20
    assert gate.from_session(closed("aa"))
    assert gate._store.held == 0
    library = "code" * (64 << 10)
    assert all(gate.from_session(opened(f"{n:x}", _esm=f"{library}")) for n in range(10))
    assert gate._store.held < 2 * len(library)


def test_what_is_too_large_for_the_gate_is_refused_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm_gate, "MAX_HELD", 16 << 20)
    gate = CommGate()
    part = comm_gate.MAX_HELD // 8
    texts = [f"{number}" * part for number in range(8)]
    assert [gate.from_session(opened(f"{n}", value=text)) for n, text in enumerate(texts)] == [True] * 7 + [False]
    held = gate._store.held
    assert not gate.from_session(opened("aa", value=texts[7]))
    assert gate._store.held == held
    assert gate.from_session(custom("1", "x" * (1 << 20)))
    assert gate._store.held > held + (1 << 20)  # a journal is counted, too


def test_a_session_cannot_flood_its_pages_with_changes_of_its_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(comm_gate, "time", SimpleNamespace(monotonic=lambda: now))
    pages, page = GatedPages(), Page()
    pages.connect(page)
    pages.take("gate", opened("aa", value=1))
    pages.settled("gate", 1, went_back=False)
    quarter = replace(update("aa", value=2), buffers=(b"x" * (comm_gate.MAX_BURST // 4),))
    assert [pages.take("gate", quarter) for _ in range(9)] == [True] * 4 + [False] * 5
    assert page.got.count("done") == 1
    now += comm_gate.MAX_BURST / 4 / comm_gate.BYTES_PER_SECOND
    assert [pages.take("gate", quarter) for _ in range(2)] == [True, False]
    pages.settled("gate", 2, went_back=False)
    assert page.got[-1] == "again"
    # A wrapped kernel has no states; its pages are brought up to date when its next cell begins.
    assert not pages.take("gate", quarter)
    del page.got[:]
    for _ in range(2):
        pages.catch_up("gate")
    assert page.got == ["comms", "again"]


def test_a_widget_shown_in_an_output_widget_comes_before_it() -> None:
    gate = gate_of(opened("bb", value=5))
    shown = {"data": {"application/vnd.jupyter.widget-view+json": {"model_id": "bb", "version_major": 2}}}
    gate.from_session(opened("aa", outputs=[{"output_type": "display_data", **shown}]))
    assert [name for _, name, _ in states(gate.replay("aa"))] == ["bb", "aa"]


def custom(name: str, content: object) -> CommMessage:
    data = {"method": "custom", "content": content}
    return CommMessage(kind="comm_msg", comm_id=name, data=data, metadata={}, buffers=(b"picture",))


def test_a_page_that_comes_later_gets_what_is_no_state_too() -> None:
    """Commands to draw may be sent before the frame is there."""
    gate = gate_of(opened("aa", value=1))
    sent = [custom("aa", {"draw": number}) for number in range(3)]
    for message in sent:
        assert gate.from_session(message)
    first, *events = gate.replay("aa")
    assert first.kind == "comm_open"
    assert [(event.data, event.buffers) for event in events] == [(message.data, message.buffers) for message in sent]


def test_what_is_set_and_cleared_at_once_is_told_to_a_page_that_comes_later() -> None:
    """Plotly's figures send changes so, also before the frame is there."""
    gate = gate_of(opened("aa", change=None, value=1))
    for value in ("first", "second"):
        setting = update("aa", change={"what": value})
        gate.from_session(replace(setting, data={**setting.data, "buffer_paths": [["change", "x"]]}, buffers=(b"12",)))
        gate.from_session(update("aa", change=None))
    for value in range(2, 9):
        gate.from_session(update("aa", value=value))
    opening, *events = gate.replay("aa")
    assert opening.data["state"] == {"change": None, "value": 1}
    assert [event.data["state"] for event in events] == [
        {"change": {"what": "first"}},
        {"change": None},
        {"change": {"what": "second"}},
        {"change": None},
        {"value": 8},
    ]
    assert [event.buffers for event in events] == [(b"12",), (), (b"12",), (), ()]


def test_state_that_was_set_after_a_command_is_told_after_it() -> None:
    """Plotly sets all traces of a figure when it is shown, after those were added one by one: each is drawn once."""
    gate = gate_of(opened("aa", traces=[]), custom("aa", "add a trace"), update("aa", traces=["one"]))
    opening, command, change = gate.replay("aa")
    assert opening.data["state"] == {"traces": []}
    assert command.data["content"] == "add a trace"
    assert change.data["state"] == {"traces": ["one"]}


def test_a_journal_that_begins_with_a_closed_model_is_not_told() -> None:
    gate = gate_of(
        opened("bb"),
        opened("aa", children=["IPY_MODEL_bb"]),
        custom("aa", 1),
        update("aa", children=[]),
        closed("bb"),
    )
    assert states(gate.replay("aa")) == [("comm_open", "aa", {"children": []})]


def test_a_value_that_is_cleared_later_begins_no_journal() -> None:
    changes = [update("aa", **change) for change in ({"value": None}, {"value": 6}, {"other": 2}, {"value": None})]
    assert len(gate_of(opened("aa", value=5, other=1), *changes).replay("aa")) == 1


def test_a_journal_is_bounded_in_number_and_size_and_the_newest_messages_stay() -> None:
    gate = gate_of(opened("aa"))
    for number in range(comm_gate.MAX_JOURNAL + 5):
        assert gate.from_session(custom("aa", number))
    kept = [message.data["content"] for message in gate.replay("aa")[1:]]
    assert kept == list(range(5, comm_gate.MAX_JOURNAL + 5))
    for _ in range(5):
        assert gate.from_session(custom("aa", "x" * (comm_gate.MAX_JOURNAL_BYTES // 4)))
    assert len(gate.replay("aa")[1:]) == 3
    assert gate.from_session(update("aa", value=1))
    for _ in range(5):
        assert gate.from_session(custom("aa", "x" * (comm_gate.MAX_JOURNAL_BYTES // 4)))
    assert gate.replay("aa")[0].data["state"] == {"value": 1}  # the change went out of the journal, into the state
    assert gate.from_session(custom("aa", "x" * comm_gate.MAX_JOURNAL_BYTES))
    assert gate.replay("aa")[1:] == []


class Page:
    """A page that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def send(self, data: dict[str, object], *, buffers: list[bytes]) -> None:
        self.got.append(str(data["type"]))


def test_pages_draw_anew_when_what_they_have_shown_is_taken_back() -> None:
    pages, page = GatedPages(), Page()
    pages.connect(page)
    pages.take("gate", opened("aa", value=1))
    pages.settled("gate", 1, went_back=False)
    pages.take("gate", update("aa", value=2))
    pages.settled("gate", 1, went_back=True)
    assert page.got == ["comms", "comms", "comms"]
    pages.take("gate", custom("aa", "draw"))
    pages.settled("gate", 1, went_back=True)
    assert page.got[3:] == ["comms", "comms", "again"]
    pages.settled("gate", 1, went_back=True)
    assert page.got[6:] == ["comms"]


def test_what_pages_get_when_a_session_goes_back_is_summed_before_anything_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages, page, decoded = GatedPages(), Page(), counted_replays(monkeypatch)
    pages.connect(page)
    monkeypatch.setattr(comm_gate, "MAX_DRAWN", 10_000)
    for n in range(20):  # all have the same text, which is kept once
        pages.take("gate", opened(f"{n:x}", value="x" * 3000))
    pages.settled("gate", 1, went_back=False)
    for n in range(20):
        pages.take("gate", update(f"{n:x}", other=1))
    pages.settled("gate", 1, went_back=True)
    assert (len(decoded), page.got[-2:]) == (3, ["comms", "again"])


def counted_replays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of comms that are decoded from now on."""
    decoded: list[str] = []
    message = comm_gate.OpenComm.message
    monkeypatch.setattr(
        comm_gate.OpenComm, "message", lambda comm, *given: (decoded.append(comm.name), message(comm, *given))[1]
    )
    return decoded


@pytest.mark.parametrize("more", [0, 1])
def test_what_a_page_gets_is_summed_before_anything_is_decoded(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    gate, decoded = CommGate(), counted_replays(monkeypatch)
    parts = [replace(opened(f"{n}"), buffers=(b"x" * 1000,)) for n in range(3)]
    for part in parts:
        assert gate.from_session(replace(part, data={"state": {}, "buffer_paths": [["a"]]}))
    gate.from_session(opened("aa", children=[f"IPY_MODEL_{n}" for n in range(3)]))
    size = sum(version.drawn_size for version in gate._open.values())
    assert size > 3000
    assert len(gate.replay("aa", size - more)) == (0 if more else 4)
    assert len(decoded) == (0 if more else 4)
    monkeypatch.setattr(comm_gate, "MAX_DRAWN", sum(version.characters for version in gate._open.values()) - more)
    assert len(gate.replay("aa")) == (0 if more else 4)


@pytest.mark.parametrize(("size", "saved"), [((2 << 20) - (200 << 10), True), ((2 << 20) + 1, False)])
def test_a_widget_is_saved_with_its_state_if_that_is_small(
    monkeypatch: pytest.MonkeyPatch, size: int, saved: bool
) -> None:
    pages, decoded = GatedPages(), counted_replays(monkeypatch)
    pages.take("gate", opened("aa", value="x" * size))
    frame = {FRAME: {"html": "", "libraries": [], "widget": {"model_id": "aa"}}}
    assert (pages.saved("gate", frame) is not None, decoded) == ((True, ["aa"]) if saved else (False, []))


def test_the_parts_of_a_widget_that_is_too_large_to_be_saved_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    pages, decoded = GatedPages(), counted_replays(monkeypatch)
    for n in range(20):
        large = replace(opened(f"{n:x}"), data={"state": {}, "buffer_paths": [["a"]]}, buffers=(bytes(1 << 20),))
        assert pages.take("gate", large)
    pages.take("gate", opened("abc", children=[f"IPY_MODEL_{n:x}" for n in range(20)]))
    frame = {FRAME: {"html": "", "libraries": [], "widget": {"model_id": "abc"}}}
    assert (pages.saved("gate", frame), decoded) == (None, [])


def test_a_model_that_calls_itself_a_link_is_searched_for_its_ends_only_if_it_is_small() -> None:
    gate = CommGate()
    for name, text in (("bb", "x"), ("cc", "x" * (comm_gate._MAX_LINK + 1))):
        gate.from_session(opened(name, _model_name="LinkModel", source=["IPY_MODEL_aa", "value"], more=text))
    gate.from_session(opened("aa", value=1))
    assert [name for _, name, _ in states(gate.replay("aa"))] == ["aa", "bb"]


def test_a_page_that_is_loaded_again_and_again_gets_no_more_of_a_session_than_its_messages_may_bring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(comm_gate, "time", SimpleNamespace(monotonic=lambda: now))
    gate = CommGate()
    assert gate.from_session(opened("aa", value="x" * 1000))
    size = gate._open["aa"].drawn_size
    gate._room = 3.0 * size
    assert [len(gate.drawn("aa")) for _ in range(5)] == [1, 1, 1, 0, 0]
    now += size / comm_gate.BYTES_PER_SECOND
    assert [len(gate.drawn("aa")) for _ in range(2)] == [1, 0]
