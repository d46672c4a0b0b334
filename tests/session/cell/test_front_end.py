"""What a sandbox may give a front end beside its output: cleaned values and pages, and text that grants nothing."""

import pytest

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import NoteKind
from sandbox_kernel.session.cell import displays
from sandbox_kernel.session.cell.front_end import (
    MAX_NEXT_INPUT,
    FrontEnd,
    FrontEndReply,
    NextInput,
    front_end_reply,
    unanswered,
)


def asked(**expressions: str) -> FrontEnd:
    return FrontEnd(expressions=expressions, on_reply=lambda reply: None)


def reply_to(front_end: FrontEnd, said: dict[str, object]) -> FrontEndReply:
    return front_end_reply(front_end, said, displays.HostWork())


def written(text: object, *, replace: object = False) -> NextInput | None:
    said = {"payload": [{"source": "set_next_input", "text": text, "replace": replace}]}
    reply = reply_to(asked(), said)
    assert {note.kind for note in reply.notes} == {NoteKind.NEXT_CELL}
    return reply.next_input


def test_a_value_is_cleaned_like_a_display() -> None:
    said = {
        "expressions": {"a": {"status": "ok", "data": {"text/plain": "\x1b]0;x\x072", "application/javascript": "x"}}}
    }
    found = reply_to(asked(a="1 + 1"), said).expressions["a"]
    assert found == {"status": "ok", "data": {"text/plain": "2"}, "metadata": {}}


def test_values_are_cleaned_until_the_host_has_worked_enough_for_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "MAX_WORK_S", -1.0)
    monkeypatch.setattr(displays, "WORK_SHARE", 0.0)
    found = reply_to(asked(a="1"), {"expressions": {"a": {"status": "ok", "data": {"text/plain": "1"}}}})
    assert "ask for fewer or smaller values" in str(found.expressions["a"]["evalue"])


def test_only_names_that_were_asked_for_are_answered() -> None:
    said = {"expressions": {"b": {"status": "ok", "data": {"text/plain": "1"}}}}
    found = reply_to(asked(a="1"), said).expressions
    assert set(found) == {"a"}
    assert found["a"]["status"] == "error"
    assert found == unanswered({"a": "1"}).expressions


@pytest.mark.parametrize(
    "said", [None, 1, "x", [], {"status": "error"}, {"status": "error", "traceback": [1, None], "ename": {}}]
)
def test_an_answer_of_any_shape_is_an_error_with_texts(said: object) -> None:
    found = reply_to(asked(a="1"), {"expressions": {"a": said}}).expressions["a"]
    assert found["status"] == "error"
    assert isinstance(found["ename"], str)
    assert isinstance(found["evalue"], str)
    assert isinstance(found["traceback"], list)


@pytest.mark.parametrize(
    "said", [{}, {"payload": 3}, {"payload": [1, None, {}, {"source": "edit"}]}, {"expressions": []}]
)
def test_a_reply_of_any_shape_is_read(said: dict[str, object]) -> None:
    reply = reply_to(asked(), said)
    assert (reply.pages, reply.next_input, reply.notes) == ((), None, ())


def test_text_for_the_next_cell_is_taken() -> None:
    assert written("print(1)\n\tx\r\n") == NextInput("print(1)\n\tx\n", replace=False)
    assert written("a", replace=True) == NextInput("a", replace=True)
    assert written("a", replace="yes") == NextInput("a", replace=False)


@pytest.mark.parametrize(
    "text",
    [
        "%%sandbox --mount /root:/root\nx", "x\n%sandbox --allow-net evil.example", "  %SANDBOX reset", "a\u202eb",
        "a\x00", "a\x1b[8m", "\u200bx", "x" * (MAX_NEXT_INPUT + 1), 3, None, "a\rb",
    ],
)  # fmt: skip
def test_text_that_grants_hides_or_floods_is_refused(text: object) -> None:
    assert written(text) is None


def test_the_last_text_for_the_next_cell_counts() -> None:
    said = {"payload": [{"source": "set_next_input", "text": text} for text in "abc"]}
    assert reply_to(asked(), said).next_input == NextInput("c", replace=False)


def test_pages_are_few_and_clean() -> None:
    said = {"payload": [{"source": "page", "data": {"text/plain": "doc", "text/html": "<script>x</script>ok"}}] * 100}
    pages = reply_to(asked(), said).pages
    assert len(pages) < 30
    assert "script" not in str(pages)


@pytest.mark.parametrize(
    "expressions", [{"a": 1}, {1: "a"}, "abc", {"a": "x" * 200_000}, {str(n): "" for n in range(101)}]
)
def test_expressions_that_are_none_are_refused_before_anything_runs(expressions: object) -> None:
    with pytest.raises(InvalidRequest, match="user_expressions takes"):
        FrontEnd(expressions=expressions, on_reply=lambda reply: None)  # type: ignore[arg-type]
