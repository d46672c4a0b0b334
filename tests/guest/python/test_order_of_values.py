"""Values of a cell, and what is printed after them: in their order, and magics that notebooks begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.session.session import Session


@pytest.fixture
def session() -> Iterator[Session]:
    with Sandbox() as box, box.session() as opened:
        yield opened


def seen(session: Session, code: str) -> str:
    """Run a cell; return what a page gets, in its order."""
    shown: list[str] = []
    result = session.run(
        code,
        on_output=lambda _stream, text: shown.append(text),
        on_display=lambda display: shown.append(f"<{display.data['text/plain']}>"),
    )
    assert result.ok, result.stderr
    return "".join(shown)


def test_what_a_callback_prints_after_a_cell_stands_below_its_value(session: Session) -> None:
    seen(session, "get_ipython().events.register('post_run_cell', lambda info: print('after'))")
    for _ in range(5):
        assert seen(session, "1 + 1") == "<2>after\n"


def test_the_values_of_all_lines_stand_among_what_is_printed_between(session: Session) -> None:
    seen(session, "%config InteractiveShell.ast_node_interactivity = 'all'")
    for _ in range(5):
        assert seen(session, "1\nprint('one')\n2\nprint('two')") == "<1>one\n<2>two\n"


def test_a_notebook_that_begins_with_autosave_goes_on(session: Session) -> None:
    assert seen(session, "%autosave 60").startswith("%autosave changes nothing here")


def test_the_loop_that_runs_anyway_is_not_refused_as_a_window(session: Session) -> None:
    assert seen(session, "%gui asyncio") == ""
    assert "no window can be opened" in session.run("%gui qt").stderr


def test_no_value_waits_for_the_host_because_of_callbacks_of_ipythons_own(session: Session) -> None:
    asked = "import sys\nprint(sys.modules['sandbox_guest.python.display'].prints_later(get_ipython()))"
    assert session.run(asked).stdout == "False\n"
    assert session.run("import matplotlib.pyplot\n" + asked).stdout == "False\n"
