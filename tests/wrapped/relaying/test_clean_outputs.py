"""What a page gets of a hostile kernel's outputs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.untrusted.ansi import MAX_COLOURS
from sandbox_kernel.untrusted.frames.frame_output import FRAME
from sandbox_kernel.untrusted.sanitize import MAX_WORK
from sandbox_kernel.wrapped.relaying.clean_outputs import MalformedMessage, OutputCleaner, header

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
KINDS = ("status", "stream", "execute_input", "display_data", "update_display_data", "execute_result", "error",
         "clear_output", "comm_open", "comm_msg", "iopub_welcome", "shutdown_reply", "made_up")  # fmt: skip
FIELDS = ("name", "text", "data", "metadata", "transient", "execution_state", "code", "execution_count", "ename", "evalue",
          "traceback", "wait")  # fmt: skip


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=6))
@pytest.mark.slow
def test_any_content_gives_a_clean_message_or_is_malformed(kind, content):
    try:
        OutputCleaner().clean(kind, content)
    except MalformedMessage:
        pass


def test_our_mark_and_control_sequences_of_printed_text_are_removed_also_between_two_messages():
    cleaner = OutputCleaner()
    first = cleaner.clean("stream", {"name": "stdout", "text": "\x1b[31mred\x1b]0;ti"})
    second = cleaner.clean("stream", {"name": "stdout", "text": "tle\x07after\x1b[0m ▣ of ours"})
    assert (first["text"], second["text"]) == ("\x1b[31mred", "after\x1b[0m □ of ours")


def test_text_that_was_held_back_comes_when_the_cell_is_over():
    cleaner = OutputCleaner()
    cleaner.clean("stream", {"name": "stdout", "text": "a\x1b[3"})
    assert cleaner.take_rest() == []
    cleaner.clean("stream", {"name": "stdout", "text": "\x1b]0;unfinished"})
    assert cleaner.take_rest() == []


def test_a_stream_of_another_name_is_malformed():
    with pytest.raises(MalformedMessage):
        OutputCleaner().clean("stream", {"name": "alert", "text": "x"})


def test_markup_with_scripts_is_shown_in_a_frame():
    shown = OutputCleaner().clean("display_data", {"data": {"text/html": "<script>draw()</script>"}, "metadata": {}})
    assert shown["data"][FRAME]["html"] == "<script>draw()</script>"
    assert "widget" not in shown["data"][FRAME]


def test_a_frame_of_a_widget_belongs_to_the_gate_of_its_kernel_whatever_it_says():
    frame = {"html": "", "widget": {"model_id": "ab", "gate": "cd"}}
    content = {"data": {FRAME: frame}, "metadata": {}}
    shown = OutputCleaner("ef").clean("display_data", content)
    assert shown["data"][FRAME]["widget"] == {"model_id": "ab", "gate": "ef"}


def test_what_is_removed_is_told_once_in_a_cell():
    cleaner = OutputCleaner()
    content, told = {"data": {"application/javascript": "alert(1)"}, "metadata": {}}, []
    for _ in range(2):
        assert "alert(1)" not in str(cleaner.clean("display_data", content))
        told += cleaner.take_removed()
    assert told == ["JavaScript was not shown: scripts of a sandbox do not run in the page"]
    cleaner.begin()
    cleaner.clean("display_data", content)
    assert cleaner.take_removed() == told


def test_an_error_cannot_have_the_name_of_one_of_ours():
    shown = OutputCleaner().clean("error", {"ename": "MemoryExceeded", "evalue": "x", "traceback": []})
    assert shown["ename"] == "MemoryExceeded (of the program)"


def test_a_header_keeps_known_short_fields_only():
    given = {"msg_id": "a", "msg_type": "status", "username": "u", "extra": {"x": 1}, "version": "5.3"}
    assert header(given) == {"msg_id": "a", "msg_type": "status", "username": "u", "version": "5.3"}
    with pytest.raises(MalformedMessage):
        header({"msg_id": "a" * 10_000})
    with pytest.raises(MalformedMessage):
        header({"msg_id": ["a"]})


@pytest.mark.parametrize(
    ("printed", "closing"),
    [
        ([("stderr", "\x1b[38;2;255;255;255;48;2;255;255;254m")], "\x1b[0m\n"),
        ([("stdout", "\x1b[31mred\n")], "\x1b[0m"),
        ([("stderr", "\x1b[31mred\x1b[0m\n")], ""),
        ([("stderr", "no end of line")], "\n"),
        ([], ""),
    ],
)
def test_a_line_of_ours_begins_after_the_colours_and_the_line_of_the_kernel(
    printed: list[tuple[str, str]], closing: str
) -> None:
    cleaner = OutputCleaner()
    for name, text in printed:
        cleaner.clean("stream", {"name": name, "text": text})
    assert (cleaner.closing(), cleaner.closing()) == (closing, "")


def test_what_a_page_draws_for_one_cell_is_bounded_and_the_rest_is_said_once() -> None:
    cleaner = OutputCleaner()
    shown = {"data": {"text/html": "<b>x</b>" * 19_000}, "metadata": {}}
    found = [cleaner.clean("display_data", shown) for _ in range(MAX_WORK // 38_000 + 2)]
    assert [bool(each and each["data"]) for each in found].count(False) == 2
    assert len(cleaner.take_removed()) == 1
    cleaner.end()
    assert cleaner.clean("display_data", shown)["data"]  # type: ignore[index]


def test_colours_are_bounded_in_one_cell_and_in_one_error() -> None:
    cleaner = OutputCleaner()
    text = {"name": "stdout", "text": "\x1b[31mx\x1b[0m" * 3000}
    shown = [str(cleaner.clean("stream", text)["text"]).count("\x1b") for _ in range(4)]  # type: ignore[index]
    assert sum(shown) <= MAX_COLOURS + 1 and shown[0] == 6000
    error = cleaner.clean("error", {"ename": "E", "evalue": "", "traceback": ["\x1b[31mx" * 1000] * 20})
    assert "\x1b" not in "".join(error["traceback"])  # type: ignore[index, arg-type]
