"""Completion knows exactly what the parser knows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel import Language
from sandbox_kernel.notebook.editor import complete_magic, complete_python, program_of, with_magics
from sandbox_kernel.notebook.options.cell_options import CellOptions


def at_end(code):
    return complete_magic(code, len(code))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("%%sand", ("%%sandbox",)),
        ("%sa", ("%sandbox",)),
        ("%", ("%%sandbox", "%sandbox")),
        ("%%sandbox --time", ("--timeout",)),
        ("%%sandbox --std", ("--stdin", "--stdin-var")),
        ("%%sandbox typ", ("typescript",)),
        ("%%sandbox js --backend ", ("auto", "process", "wasm", "dask")),
        ("%%sandbox --backend=w", ("wasm",)),
        ("%%sandbox --policy st", ("standard", "strict")),
        ("%%sandbox --timeout ", ("1s", "5s", "30s", "2m")),
        ("%sandbox un", ("undo",)),
        ("%sandbox re", ("report", "redo", "restart", "recover", "reset")),
        ("%%sandbox --quiet --qui", ()),
        ("x = 1\n%sandbox rep", ("report",)),
    ],
)
def test_a_magic_line_is_completed(code, expected):
    found = at_end(code)
    assert found.matches == expected
    assert found.end == len(code)
    assert len(found.kinds) == len(found.matches)


def test_a_repeatable_option_is_offered_again_and_a_second_language_is_not():
    assert "--env" in at_end("%%sandbox --env A=1 --").matches
    assert not set(at_end("%%sandbox python ").matches) & set(Language)


def test_the_replaced_text_is_the_word_under_the_cursor():
    found = complete_magic("%%sandbox --mem 5 rust", 15)
    assert (found.matches, found.start, found.end) == (("--memory",), 10, 15)


@pytest.mark.parametrize("code", ["pri", "x %%sandbox --t", "  %%sandbox --t", "%%other --t", "%%sandbox\npri", ""])
def test_the_program_is_left_to_the_session(code):
    assert at_end(code) is None


def test_python_names_are_known_without_a_session():
    found = complete_python("x = impor", 9)
    assert (found.matches, found.start, found.kinds) == (("import",), 4, ("keyword",))
    assert "print" in complete_python("pri", 3).matches
    assert complete_python("x.pri", 5).matches == ()
    assert complete_python("", 0).matches == ()


@given(st.text(alphabet="%sandbox -=\nptj", max_size=30), st.integers(-5, 40))
def test_any_text_and_cursor_are_answered(code, position):
    found = complete_magic(code, position)
    if found is not None:
        assert 0 <= found.start <= found.end <= len(code)
        for match in found.matches:
            assert match.startswith(code[found.start : found.end])


def test_the_program_of_a_cell_keeps_every_position():
    code = "# NBVAL_SKIP\n%%sandbox js --timeout 2s\nconsole.lo"
    plan = program_of(code, CellOptions())
    assert plan.options.language is Language.JAVASCRIPT
    assert len(plan.code) == len(code)
    assert plan.code.endswith("\n" + " " * 25 + "\nconsole.lo")
    assert program_of("x.", CellOptions()).code == "x."
    assert program_of("%sandbox --session a\nx.", CellOptions()).options.session == "a"
    assert program_of("%%sandbox --timeo\nx.", CellOptions()) is None


def test_a_byte_order_mark_does_not_hand_a_magic_line_to_the_session():
    assert at_end("\ufeff%%sandbox --mount ") is not None
    assert at_end("\ufeff%%sandbox --time").matches == ("--timeout",)


@pytest.mark.parametrize("code", ["%%sandbox", "%sandbox"])
def test_a_finished_magic_is_no_place_for_names_of_the_program(code):
    assert at_end(code).matches == (code,)


def test_other_names_of_a_language_are_finished_and_count_as_the_language():
    assert at_end("%%sandbox ba").matches == ("bash",)
    assert at_end("%%sandbox py").matches == ("python",)
    assert not set(at_end("%%sandbox bash ").matches) & set(Language.names())


@pytest.mark.parametrize("command", ["undo", "checkpoints", "restart", "save mine", "load mine"])
def test_after_a_command_about_a_session_only_sessions_are_offered(command):
    found = at_end(f"%sandbox {command} ").matches
    assert found == ("python", "javascript", "typescript", "command", "--session")


@pytest.mark.parametrize("command", ["files", "policy", "report", "reset", "help", "save", "load"])
def test_after_a_command_that_stands_alone_or_needs_a_new_name_nothing_is_offered(command):
    assert at_end(f"%sandbox {command} ").matches == ()


def test_values_that_only_the_notebook_knows_are_offered():
    known = {"--session": ["web"], "-i": ["rows", "total"]}
    assert complete_magic("%%sandbox --session ", 20, known).matches == ("web",)
    assert complete_magic("%%sandbox -i r", 14, known).matches == ("rows",)
    assert complete_magic("%%sandbox --timeout ", 20, known).matches == ("1s", "5s", "30s", "2m")


def test_magics_of_the_session_stand_behind_ours():
    ours = at_end("%")
    theirs = {"matches": ["%time", "%%time", "%sandbox", "is_no_magic", 3], "cursor_start": 0, "cursor_end": 1}
    assert with_magics(ours, theirs).matches == ("%%sandbox", "%sandbox", "%time", "%%time")
    assert with_magics(ours, {**theirs, "cursor_start": 1}).matches == ours.matches
    assert with_magics(ours, {}).matches == ours.matches
