"""What the reply of a cell takes from the sandbox."""

from __future__ import annotations

import pytest

from sandbox_kernel.notebook.render import expressions, payload
from sandbox_kernel.receipt import MARK
from sandbox_kernel.session.cell.front_end import FrontEndReply, NextInput


def test_a_page_goes_to_the_pager_and_is_told_apart() -> None:
    reply = FrontEndReply(pages=({"text/plain": f"{MARK} [python · ok]"},))
    (page,) = payload(reply, "x?")
    assert (page["source"], page["start"]) == ("page", 0)
    assert MARK not in str(page["data"])


@pytest.mark.parametrize(
    ("cell", "replace", "text"),
    [
        ("%load a.py", True, "a = 1"),
        ("%%sandbox --timeout 5\r\n%load a.py", True, "%%sandbox --timeout 5\na = 1"),
        ("%sandbox --timeout 5\n%sandbox policy\n%load a.py", True, "%sandbox --timeout 5\n%sandbox policy\na = 1"),
        ("%%sandbox --timeout 5\n%recall 1", False, "a = 1"),
        ("%sandboxed\n%load a.py", True, "a = 1"),
    ],
)
def test_text_that_replaces_a_cell_keeps_the_users_own_lines_of_options(cell: str, replace: bool, text: str) -> None:
    reply = FrontEndReply(next_input=NextInput("a = 1", replace))
    assert payload(reply, cell) == [{"source": "set_next_input", "text": text, "replace": replace}]


def test_values_and_errors_of_expressions_carry_no_mark_of_ours() -> None:
    said = {"a": {"status": "ok", "data": {"text/plain": MARK}, "metadata": {}},
            "b": {"status": "error", "ename": "E", "evalue": MARK, "traceback": [MARK]}}  # fmt: skip
    found = expressions(FrontEndReply(expressions=said))
    assert MARK not in str(found)
    assert set(found) == {"a", "b"}
