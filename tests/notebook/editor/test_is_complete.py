"""A console runs what is complete and waits for what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel import Language
from sandbox_kernel.notebook.editor import completeness
from sandbox_kernel.notebook.options.cell_options import CellOptions

NONE = CellOptions()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("1", "complete"),
        ("print('hello')", "complete"),
        ("", "complete"),
        ("def f():\n    return 1\n", "complete"),
        ("%time x\n!ls\ny = 1", "complete"),
        ("%sandbox report", "complete"),
        ("%%sandbox rust\nfn main() {}\n", "complete"),
        ("print((", "incomplete"),
        ("def f():", "incomplete"),
        ("def f():\n    return 1", "incomplete"),
        ("x = '''", "incomplete"),
        ("x = 1 + \\", "incomplete"),
        ("for i in x:\n  for j in y:", "incomplete"),
        ("%%sandbox rust", "incomplete"),
        ("%%sandbox rust\nfn main() {", "incomplete"),
        ("import = 7q", "invalid"),
        ("x = = 1", "invalid"),
        ("%sandbox --nope", "invalid"),
        ("\ud800", "invalid"),
    ],
)
def test_each_sample_is_complete_incomplete_or_invalid(code, status):
    assert completeness(code, NONE)["status"] == status


def test_the_indent_of_the_next_line_is_suggested():
    assert completeness("def f():", NONE)["indent"] == "    "
    assert completeness("if x:\n    if y:", NONE)["indent"] == "        "
    assert completeness("if x:\n    y", NONE)["indent"] == "    "


def test_another_default_language_is_not_judged_as_python():
    assert completeness("let x = {", CellOptions(language=Language.JAVASCRIPT))["status"] == "complete"


def test_what_would_hurt_a_parser_is_not_parsed():
    assert completeness("(" * 5000, NONE)["status"] == "complete"
    assert completeness("x = 1\n" * 10_000, NONE)["status"] == "complete"


@given(st.text(max_size=60))
def test_any_text_has_a_status(code):
    assert completeness(code, NONE)["status"] in ("complete", "incomplete", "invalid")
