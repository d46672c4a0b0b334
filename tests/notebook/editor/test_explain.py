"""What stands under the cursor is explained from the option table."""

import pytest

from sandbox_kernel.notebook.editor import explain_builtin, explain_magic, is_question


@pytest.mark.parametrize(
    ("code", "position", "expected"),
    [
        ("%%sandbox --timeout 5s", 14, "500ms, 5s or 2m"),
        ("%%sandbox --env A=1", 12, "may be repeated"),
        ("%%sandbox rust", 12, "rust: the language"),
        ("%%sandbox", 3, "Commands (%sandbox COMMAND)"),
        ("%sandbox undo 2", 11, "take back the last N cells"),
        ("%sandbox nonsense", 12, "Options:"),
        ("x\n%sandbox report", 14, "measure what this sandbox holds back"),
    ],
)
def test_magics_options_commands_and_languages_are_explained(code, position, expected):
    assert expected in explain_magic(code, position)


def test_the_program_is_left_to_the_session():
    assert explain_magic("%%sandbox\nprint", 12) is None
    assert explain_magic("print", 3) is None


def test_builtins_are_looked_up_by_name_and_nothing_is_evaluated():
    assert explain_builtin("print(x)", 2).startswith("print\n\nPrints the values")
    for code in ("__import__('os').system('id')", "no_such_name", "", "1 + 1"):
        assert explain_builtin(code, 3) is None


def test_a_question_mark_after_the_magic_is_a_question():
    assert is_question(" %%sandbox?\n")
    assert is_question("?%sandbox")
    assert not is_question("%%sandbox\nx?")
    assert not is_question(3)
