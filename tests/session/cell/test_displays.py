"""What a cell shows, collected and bounded."""

from collections.abc import Callable

import pytest

from sandbox_kernel.session.cell import displays
from sandbox_kernel.session.cell.displays import Displays, SessionDisplay
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker.messages import DisplayShown, OutputCleared
from sandbox_kernel.untrusted.frames.frame_output import FRAME
from sandbox_kernel.untrusted.sanitize import MAX_WORK


def shown(text: str, kind: str = "display", name: str | None = None, size: int = 10) -> DisplayShown:
    return DisplayShown(1, 0, kind, {"text/plain": text}, {}, name, size=size)


def texts(found: Displays) -> list[object]:
    return [item.data["text/plain"] for item in found.all()]


def test_the_value_of_the_cell_comes_last_and_an_update_changes_every_display_of_its_name_and_no_other() -> None:
    found = Displays()
    for frame in (
        shown("value", "result"), shown("a", name="x"), shown("b"), shown("c", name="x"), shown("new", "update", "x"),
    ):  # fmt: skip
        found.show(frame)
    assert texts(found) == ["new", "b", "new", "value"]


def test_clearing_waits_for_the_next_output_when_it_is_asked_to() -> None:
    found = Displays()
    found.show(shown("old"))
    found.clear(OutputCleared(1, 0, True))
    assert texts(found) == ["old"]
    found.show(shown("new"))
    assert texts(found) == ["new"]
    found.clear(OutputCleared(1, 0, False))
    assert texts(found) == []


def test_everything_is_handed_on_as_it_comes() -> None:
    seen: list[SessionDisplay] = []
    found = Displays(seen.append)
    found.show(shown("a"))
    found.clear(OutputCleared(1, 0, True))
    found.show(shown("b", "update", "x"))
    assert [(item.kind, item.display_id) for item in seen] == [("display", None), ("clear", None), ("update", "x")]


def test_number_and_size_are_bounded_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "MAX_DISPLAYS", 3)
    found = Displays()
    for number in range(5):
        found.show(shown(str(number)))
    assert (texts(found), found.dropped) == (["0", "1", "2"], 2)
    large = Displays()
    large.show(shown("x", size=displays.MAX_BYTES))
    large.show(shown("y", size=1))
    assert (texts(large), large.dropped) == (["x"], 1)


@pytest.mark.slow
def test_the_work_of_a_page_with_one_cell_is_bounded() -> None:
    found = Displays()
    for _ in range(12):
        found.show(DisplayShown(1, 0, "display", {"text/html": "<b></b>" * 19_000}, {}, None, size=10))
    assert len(found.all()) == MAX_WORK // 38_000 and found.dropped == 12 - MAX_WORK // 38_000


def test_figures_in_frames_are_no_work_of_the_page() -> None:
    found = Displays()
    for _ in range(3):
        figure = "<script>" + "let x = '\\\\\"<b>';" * 20_000 + "</script>"
        found.show(DisplayShown(1, 0, "display", {"text/html": figure}, {}, None, size=10))
    assert len(found.all()) == 3 and found.dropped == 0 and FRAME in found.all()[2].data


def test_what_a_session_returns_and_hands_on_is_inert_already(open_one: Callable[..., Session]) -> None:
    session, seen = open_one(), []
    cell = (
        "from IPython.display import HTML, display\n"
        "display({'application/x-javascript': 'alert(1)', 'text/plain': 'p'}, raw=True)\n"
        "display({'text/html; charset=utf-8': '<script>', ' x': 1, 'text/plain': 'p'}, raw=True, display_id='\\n' * 999)\n"
        "display({f'text/x-{n}': 'x' for n in range(99)} | {'text/plain': 'p'}, raw=True, metadata=[1])\n"
        "HTML('<b onclick=x()>bold</b><script>alert(1)</script>')"
    )
    result = session.run(cell, on_display=lambda shown: seen.append(dict(shown.data)))
    assert result.ok, result.notes
    assert [dict(shown.data) for shown in result.displays] == seen
    script, odd, many, value = seen
    assert set(script) == {"text/plain"}
    assert odd == {"text/plain": "p"}
    assert set(many) == {"text/plain"}
    assert value["text/html"].startswith('<iframe sandbox="allow-scripts" ') and "<b" not in value["text/html"]
    assert value[FRAME]["html"] == "<b onclick=x()>bold</b><script>alert(1)</script>"
    assert any("scripts of a sandbox do not run" in item for item in result.displays[0].removed)  # type: ignore[attr-defined]


def test_a_cell_that_does_nothing_but_clear_is_not_handed_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "MAX_CLEARS", 3)
    seen: list[SessionDisplay] = []
    found = Displays(seen.append)
    for _ in range(10):
        found.clear(OutputCleared(1, 0, True))
    assert (len(seen), found.dropped) == (3, 7)


@pytest.mark.slow
def test_a_value_of_too_many_parts_is_replaced_by_a_sentence(session: Session) -> None:
    code = "from IPython.display import JSON, display\ndisplay(JSON([[]] * 400_000)); display(JSON([1] * 1000)); 'end'"
    result = session.run(code)
    assert result.ok, result.notes
    first, second, end = (item.data for item in result.displays)
    assert "too large to be shown" in str(first["text/plain"])
    assert second["application/json"] == [1] * 1000
    assert end["text/plain"] == "'end'"


SHOWS = "from IPython.display import display; display('a', display_id='balance');"


def page_ids(session: Session) -> set[str]:
    seen: list[SessionDisplay] = []
    assert session.run(SHOWS, on_display=seen.append).ok
    return {item.page_id for item in seen if item.page_id}


@pytest.mark.slow
def test_a_display_of_one_session_cannot_be_named_by_another_nor_by_a_later_life(
    open_one: Callable[..., Session],
) -> None:
    one, other = open_one(), open_one()
    first = page_ids(one)
    assert page_ids(other) != first
    assert page_ids(one) == first
    one.run("while True: pass", timeout=0.5)
    one.undo()
    assert page_ids(one) == first
    one.restart()
    assert page_ids(one) != first


def test_an_output_that_comes_when_the_time_is_over_is_not_checked_and_that_is_said() -> None:
    over = iter([False, True, True])
    found = Displays(is_over=lambda: next(over))
    for number in range(3):
        found.show(shown(str(number)))
    assert texts(found) == ["0"]
    assert found.dropped == 2


class Clocks:
    """The clocks of a thread, which a test turns."""

    def __init__(self) -> None:
        self.cpu_s = self.passed_s = 100.0

    def thread_time(self) -> float:
        return self.cpu_s

    def monotonic(self) -> float:
        return self.passed_s


@pytest.mark.parametrize(("passed_s", "most_s"), [(0.0, displays.MAX_WORK_S), (400.0, displays.MAX_WORK_S + 100.0)])
def test_the_host_works_on_what_a_cell_shows_for_a_time_and_a_share_of_the_cells_own(
    monkeypatch: pytest.MonkeyPatch, passed_s: float, most_s: float
) -> None:
    clocks = Clocks()
    monkeypatch.setattr(displays, "time", clocks)
    seen: list[SessionDisplay] = []
    found = Displays(seen.append)
    comm = DisplayShown(1, 0, "display", {displays.COMM: {}}, {}, None, size=10)
    clocks.passed_s += passed_s
    clocks.cpu_s += most_s
    found.show(shown("a"))
    found.show(comm)
    assert [item.kind for item in seen] == ["display", "comm"]
    clocks.cpu_s += 0.001
    found.show(shown("b"))
    found.show(comm)
    assert (len(seen), found.dropped) == (2, 2)
