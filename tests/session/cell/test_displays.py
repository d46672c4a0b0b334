"""What a cell shows, collected and bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox_kernel.session.cell import displays
from sandbox_kernel.session.cell.displays import Displays, SessionDisplay
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker.messages import Cleared, Shown


def shown(text: str, kind: str = "display", name: str | None = None, size: int = 10) -> Shown:
    return Shown(1, 0, kind, {"text/plain": text}, {}, name, size)


def texts(found: Displays) -> list[object]:
    return [item.data["text/plain"] for item in found.all()]


def test_the_value_of_the_cell_comes_last() -> None:
    found = Displays()
    for frame in (shown("value", "result"), shown("figure")):
        found.show(frame)
    assert texts(found) == ["figure", "value"]


def test_an_update_changes_every_display_of_its_name_and_no_other() -> None:
    found = Displays()
    for frame in (shown("a", name="x"), shown("b"), shown("c", name="x"), shown("new", "update", "x")):
        found.show(frame)
    assert texts(found) == ["new", "b", "new"]


def test_clearing_waits_for_the_next_output_when_it_is_asked_to() -> None:
    found = Displays()
    found.show(shown("old"))
    found.clear(Cleared(1, 0, True))
    assert texts(found) == ["old"]
    found.show(shown("new"))
    assert texts(found) == ["new"]
    found.clear(Cleared(1, 0, False))
    assert texts(found) == []


def test_everything_is_handed_on_as_it_comes() -> None:
    seen: list[SessionDisplay] = []
    found = Displays(seen.append)
    found.show(shown("a"))
    found.clear(Cleared(1, 0, True))
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


def test_what_a_session_returns_and_hands_on_is_inert_already(open_one: Callable[..., Session]) -> None:
    session, seen = open_one(), []
    cell = (
        "from IPython.display import HTML, Javascript, display\n"
        "display(Javascript('alert(1)'))\n"
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
    assert value["text/html"] == "<b>bold</b>"
    assert any("scripts are never shown" in item for item in result.displays[0].removed)  # type: ignore[attr-defined]
