"""Completion knows exactly what the parser knows."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel import Language
from sandbox_kernel.notebook import cell_requests, render
from sandbox_kernel.notebook.cell_requests import CellRequests
from sandbox_kernel.notebook.editor import (
    MAX_ENTRIES,
    History,
    complete_magic,
    completeness,
    explain_magic,
    is_question,
    program_of,
    with_magics,
)
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.untrusted import sanitize


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


def test_a_repeatable_option_is_offered_again_and_a_second_language_is_not():
    assert "--env" in at_end("%%sandbox --env A=1 --").matches
    assert not set(at_end("%%sandbox python ").matches) & set(Language)


def test_the_replaced_text_is_the_word_under_the_cursor():
    found = complete_magic("%%sandbox --mem 5 rust", 15)
    assert (found.matches, found.start, found.end) == (("--memory",), 10, 15)


@pytest.mark.parametrize("code", ["pri", "x %%sandbox --t", "  %%sandbox --t", "%%other --t", "%%sandbox\npri", ""])
def test_the_program_is_left_to_the_session(code):
    assert at_end(code) is None


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


@pytest.mark.parametrize("command", ["undo", "tree", "restart", "save mine", "load mine"])
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


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ({"hist_access_type": "tail", "n": 2}, [3, 4]),
        ({"hist_access_type": "tail", "n": 99}, [1, 2, 3, 4]),
        ({"hist_access_type": "tail", "n": 0}, []),
        ({"hist_access_type": "tail", "n": -3}, []),
        ({"hist_access_type": "range", "session": 0, "start": 2, "stop": 4}, [2, 3]),
        ({"hist_access_type": "range", "session": 1, "start": 3, "stop": None}, [3, 4]),
        ({"hist_access_type": "range", "session": 7, "start": 1, "stop": None}, []),
        ({"hist_access_type": "search", "pattern": "a*"}, [1, 3]),
        ({"hist_access_type": "search", "pattern": "*a*", "n": 1}, [4]),
        ({"hist_access_type": "search", "pattern": "a = ?", "unique": True}, [3]),
        ({"hist_access_type": "search", "pattern": "["}, []),
        ({"hist_access_type": "other"}, []),
    ],
)
def test_history_is_asked_for_by_its_end_by_numbers_or_by_a_glob(asked, numbers):
    history = History()
    for number, source in enumerate(["a = 1", "b = 2", "a = 1", "print(a)"], 1):
        history.add(number, source, "1" if number == 4 else None)
    assert [row[1] for row in history.find(asked)] == numbers
    assert history.find({"hist_access_type": "tail", "n": 1}) == [(1, 4, "print(a)")]
    assert history.find({"hist_access_type": "tail", "n": 1, "output": True}) == [(1, 4, ("print(a)", "1"))]


def test_old_cells_are_forgotten():
    history = History()
    for number in range(MAX_ENTRIES + 5):
        history.add(number, "x", None)
    assert len(history.find({"hist_access_type": "tail", "n": 10**6})) == MAX_ENTRIES


NONE = CellOptions()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", "complete"),
        ("%sandbox report", "complete"),
        ("%%sandbox rust\nfn main() {}\n", "complete"),
        ("%%sandbox rust", "incomplete"),
        ("%%sandbox rust\nfn main() {", "incomplete"),
        ("%sandbox --nope", "invalid"),
        ("\ud800", "invalid"),
        ("x = 1", None),
        ("%sandbox --fresh\ndef f():", None),
    ],
)
def test_our_own_lines_are_complete_incomplete_or_invalid_and_the_session_knows_of_others(code, status):
    assert completeness(code, NONE) == status


class _Asked:
    """As much of a kernel as ``do_inspect`` needs, with a session whose answer is hostile."""

    def __init__(self, answer: dict[str, object]) -> None:
        self._answer = answer

    async def _ask_session(self, what: str, code: str, position: int, detail: int = 0) -> dict[str, object]:
        return self._answer


def _inspect(answer: dict[str, object]) -> dict[str, object]:
    reply: dict[str, object] = asyncio.run(CellRequests.inspect(_Asked(answer), "foo", 2))  # type: ignore[arg-type]
    return reply


def test_a_docstring_is_not_checked_on_the_loop_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    real = sanitize.sanitize_docstring

    def noted(data: object) -> sanitize.SanitizedBundle:
        threads.append(threading.current_thread())
        return real(data)

    monkeypatch.setattr(cell_requests, "sanitize_docstring", noted)
    assert _inspect({"text/plain": "words"})["data"] == {"text/plain": "words"}
    assert threads and threads[0] is not threading.main_thread()


@pytest.mark.attack("O01", "kernel")
def test_a_docstring_carries_no_markdown_and_no_bomb() -> None:
    assert _inspect({"text/markdown": "# x"})["data"] == {"text/html": render._FRAME.format("<h1>x</h1>\n")}
    bomb = "<b " + " ".join(f"a{number}=1" for number in range(60_000)) + ">"
    assert "not shown" in str(_inspect({"text/html": bomb})["data"])
    assert "more than 64 attributes" in str(_inspect({"text/html": f"{bomb[:100_000]}>"})["data"])


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


def test_questions_about_a_magic_line_look_at_no_more_than_a_line():
    long = "%%sandbox " + "--arg a " * 100_000
    assert complete_magic(long, len(long)) is None
    looked = explain_magic("%%sandbox python\n" + "x " * 4_000_000, 10)
    assert looked is not None and looked.startswith("python")
    begin = "%%sandbox \n"
    assert "Accepted" not in (explain_magic(begin + "--memory " * 1_000_000, len(begin) - 1) or "")


def test_a_word_of_the_program_is_explained_by_the_session():
    assert explain_magic("%%sandbox\nprint", 12) is None
    assert explain_magic("print", 3) is None


def test_a_question_mark_after_the_magic_is_a_question():
    assert is_question(" %%sandbox?\n")
    assert is_question("?%sandbox")
    assert not is_question("%%sandbox\nx?")
    assert not is_question(3)
