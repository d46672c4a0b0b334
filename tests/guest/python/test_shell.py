"""Cells of plain Python, which IPython need not take apart: whatever is called plain comes out of IPython unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.macro import Macro
from traitlets.config import Config

from sandbox_kernel.guest.python.shell import PlainCells

#: What cells are made of here: everything that means something to IPython, and what looks like it.
PIECES = [
    *(
        "x",
        "ls",
        "exit",
        "In [1]:",
        "a.b",
        "f(1)",
        "'''",
        '"',
        "(",
        ")",
        "[",
        "]",
        ":",
        "if x:",
        "...",
        ">>> ",
        "    ...: ",
    ),
    *(
        "=",
        "==",
        "!=",
        "%",
        "%%",
        "!",
        "!!",
        "?",
        "??",
        ",",
        ";",
        "/",
        "$",
        "\\",
        "#",
        "@",
        "%time",
        "!ls",
        " ",
        "    ",
    ),
    *("\t", "\n", "\n\n", "\n    ", "\r\n", "\f", "\u2028", "1", "é"),
]


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    config = Config()
    config.HistoryManager.enabled = False
    yield InteractiveShell(config=config)
    InteractiveShell.clear_instance()


@pytest.fixture(scope="module")
def plain(shell: InteractiveShell) -> PlainCells:
    return PlainCells(shell)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join))
@example("x = 1\n...\ny = 2")
@example("In [1]: x\nIn [2]: y")
@example("a = 1\n   \nb = 2")
@example("x = (5\n%time)")
@example("a = b = %time 1")
@example("exit = 5")
@pytest.mark.slow
def test_what_is_called_plain_comes_out_of_ipython_unchanged(
    shell: InteractiveShell, plain: PlainCells, code: str
) -> None:
    found = plain.as_it_is(code)
    assert found is None or found == shell.transform_cell(code)


@pytest.mark.parametrize(
    "code",
    ["x = 1", "x = [1]\n", "import os\nprint(os)", "def f(a):\n    return a % 2 != 0\n\nf(1)", "x = 'é'\ny = {**a}"],
)
def test_usual_cells_are_plain(plain: PlainCells, code: str) -> None:
    assert plain.as_it_is(code) == code.rstrip("\n") + "\n"


@pytest.mark.parametrize(
    "code", ["", "ls", "print(1)", "%time\nx", "f?", "!ls", "a = !ls", "  x = 1\n  y = 2", "exit = 5"]
)
def test_what_ipython_looks_at_is_left_to_it(plain: PlainCells, code: str) -> None:
    assert plain.as_it_is(code) is None


def test_a_name_that_stands_for_a_macro_is_left_to_ipython(shell: InteractiveShell, plain: PlainCells) -> None:
    assert plain.as_it_is("again = 1") is not None
    shell.user_ns["again"] = Macro("1")
    assert plain.as_it_is("again = 1") is None


def test_rules_of_the_user_hold_for_every_cell(shell: InteractiveShell, plain: PlainCells) -> None:
    shell.input_transformers_post.append(lambda lines: lines)
    assert plain.as_it_is("x = 1\ny = 2") is None
    shell.input_transformers_post.clear()
    assert plain.as_it_is("x = 1\ny = 2") is not None
    cleanup = shell.input_transformer_manager.cleanup_transforms
    cleanup.append(lambda lines: lines)
    assert plain.as_it_is("x = 1\ny = 2") is None
    cleanup.pop()
