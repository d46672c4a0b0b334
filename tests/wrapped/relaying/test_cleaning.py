"""What a page gets of a hostile kernel's outputs."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.session.cell.displays import MAX_DISPLAYS
from sandbox_kernel.untrusted.ansi import MAX_COLOURS, MAX_LINES
from sandbox_kernel.untrusted.frames.frame_output import FRAME
from sandbox_kernel.untrusted.sanitize import MAX_WORK
from sandbox_kernel.util.wire import BadMessage
from sandbox_kernel.wrapped.relaying.cleaning import (
    _REPLIES,
    MOST_REPORTED,
    CompletionRequest,
    OutputCleaner,
    clean_reply,
    header,
)

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
    with contextlib.suppress(BadMessage):
        OutputCleaner().clean(kind, content)


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
    with pytest.raises(BadMessage):
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
    with pytest.raises(BadMessage):
        header({"msg_id": "a" * 10_000})
    with pytest.raises(BadMessage):
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


@pytest.mark.slow
def test_what_a_page_draws_for_one_cell_is_bounded_and_the_rest_is_said_once() -> None:
    cleaner = OutputCleaner()
    shown = {"data": {"text/html": "<b></b>" * 19_000}, "metadata": {}}
    found = [cleaner.clean("display_data", shown) for _ in range(MAX_WORK // 38_000 + 2)]
    assert [bool(each and each["data"]) for each in found].count(False) == 2
    assert len(cleaner.take_removed()) == 1
    cleaner.end()
    assert cleaner.clean("display_data", shown)["data"]  # type: ignore[index]


def test_outputs_of_one_cell_are_bounded_in_number_and_their_updates_by_what_they_draw() -> None:
    cleaner = OutputCleaner()
    empty, frame = {"data": {}, "metadata": {}}, {"data": {"text/html": "<script>1</script>"}, "metadata": {}}
    assert all(cleaner.clean("update_display_data", empty) for _ in range(2 * MAX_DISPLAYS))
    found = [cleaner.clean("display_data", shown) for shown in (empty, frame) * (MAX_DISPLAYS // 2 + 1)]
    assert [each is None for each in found] == [False] * MAX_DISPLAYS + [True] * 2
    assert cleaner.clean("error", {"ename": "E"}) is None
    assert len(cleaner.take_removed()) == 1


def test_lines_are_bounded_in_one_error_and_in_all_errors_of_a_cell() -> None:
    cleaner = OutputCleaner()
    errors = [cleaner.clean("error", {"ename": "E", "traceback": ["\n" * 20_000] * 13}) for _ in range(9)]
    shown = [str(each["traceback"]).count("\\n") for each in errors if each is not None]
    assert 50_000 < sum(shown) <= MAX_LINES
    cleaner.end()
    assert all(cleaner.clean("error", {"ename": "E", "traceback": ["x" * 80] * 50}) for _ in range(100))


def test_lines_of_ours_on_what_was_removed_are_few_and_the_last_one_stands_for_the_rest() -> None:
    cleaner, told = OutputCleaner(), []
    for number in range(40):
        given = {"data": {f"a/{number}-{each}": "" for each in range(10)}, "metadata": {}}
        cleaner.clean("display_data", given)
        told += cleaner.take_removed()
    assert (len(told), told[-1]) == (MOST_REPORTED + 1, "more parts of the outputs of this cell are not shown")


def test_colours_are_bounded_in_one_cell_and_in_one_error() -> None:
    cleaner = OutputCleaner()
    text = {"name": "stdout", "text": "\x1b[31mx\x1b[0m" * 3000}
    shown = [str(cleaner.clean("stream", text)["text"]).count("\x1b") for _ in range(4)]  # type: ignore[index]
    assert sum(shown) <= MAX_COLOURS + 1 and shown[0] == 6000
    error = cleaner.clean("error", {"ename": "E", "evalue": "", "traceback": ["\x1b[31mx" * 1000] * 20})
    assert "\x1b" not in "".join(error["traceback"])  # type: ignore[index, arg-type]


REPLY_FIELDS = ("status", "payload", "user_expressions", "matches", "cursor_start", "cursor_end", "metadata", "found", "data",
          "indent", "history", "language_info", "help_links", "protocol_version", "supported_features", "banner",
          "prompt", "password", "execution_count", "ename", "evalue", "traceback", "subshell_id")  # fmt: skip
INFO = {"protocol_version": "5.3", "language_info": {"name": "R"}, "banner": ""}


@given(
    st.sampled_from(sorted({*_REPLIES, "debug_reply", "input_request"})),
    st.dictionaries(st.sampled_from(REPLY_FIELDS), ANY, max_size=8),
)
@pytest.mark.slow
def test_any_content_gives_a_clean_reply_or_is_malformed(kind, content):
    with contextlib.suppress(BadMessage):
        clean_reply(kind, content, CompletionRequest("os.pa", 5))


def test_a_reply_of_an_unknown_kind_is_malformed():
    with pytest.raises(BadMessage):
        clean_reply("comm_open", {}, None)


def test_a_payload_may_show_text_and_may_not_write_a_cell():
    reply = clean_reply(
        "execute_reply",
        {
            "status": "ok",
            "execution_count": 1,
            "payload": [
                {"source": "page", "data": {"text/plain": "help", "text/html": "<script>1</script>"}, "start": 0},
                {"source": "set_next_input", "text": "import os; os.system('x')", "replace": True},
                {"source": "edit_magic", "filename": "/etc/passwd", "line_number": 0},
                {"data": {"text/plain": "it has no source"}},
            ],
        },
        None,
    )
    assert [payload["source"] for payload in reply["payload"]] == ["page"]
    assert "<script" not in str(reply)


def test_a_completion_may_only_continue_the_word_before_the_cursor():
    asked = CompletionRequest("os.pa", 5)
    content = {"status": "ok", "matches": ["os.path", "rm -rf /", "os.pa\nevil()"], "cursor_start": 0, "cursor_end": 5,
               "metadata": {"_jupyter_types_experimental": [
                   {"text": "os.path", "type": "module", "start": 0, "end": 5, "signature": ""},
                   {"text": "evil()", "type": "function", "start": 0, "end": 5}]}}  # fmt: skip
    reply = clean_reply("complete_reply", content, asked)
    assert reply["matches"] == ["os.path"]
    assert [entry["text"] for entry in reply["metadata"]["_jupyter_types_experimental"]] == ["os.path"]


def test_a_completion_that_nobody_asked_for_is_empty():
    content = {"status": "ok", "matches": ["evil"], "cursor_start": 0, "cursor_end": 0}
    assert clean_reply("complete_reply", content, None)["matches"] == []


def test_a_history_is_numbers_and_clean_text():
    cells = [[1, 2, "x = 1\x1b[8m"], [1, 3, ["y", None]], [1, 4, ["\u25a3 z", "3"]]]
    reply = clean_reply("history_reply", {"status": "ok", "history": cells}, None)
    assert reply["history"] == [[1, 2, "x = 1"], [1, 3, ["y", None]], [1, 4, ["\u25a1 z", "3"]]]
    for wrong in ([[1, 2, {"text/html": "evil"}]], [["a", 2, "x"]], [[1, 2]], "evil", [[1, 2, ["x", {"a": 1}]]]):
        with pytest.raises(BadMessage):
            clean_reply("history_reply", {"status": "ok", "history": wrong}, None)


def test_what_is_cleaned_in_one_step_is_bounded_as_a_whole():
    long = "x" * (600 << 10)
    assert clean_reply("history_reply", {"status": "ok", "history": [[1, 2, long]] * 2}, None)["history"] == []
    assert clean_reply("history_reply", {"status": "ok", "history": [[1, 2, long]]}, None)["history"]
    values = {name: {"status": "ok", "data": {"text/plain": long}, "metadata": {}} for name in "ab"}
    reply = clean_reply("execute_reply", {"status": "ok", "execution_count": 1, "user_expressions": values}, None)
    assert list(reply["user_expressions"]) == ["a"]


def test_help_links_are_web_addresses():
    links = [{"text": "R", "url": "https://r-project.org"}, {"text": "x", "url": "javascript:alert(1)"}]
    reply = clean_reply("kernel_info_reply", {**INFO, "help_links": links}, None)
    assert reply["help_links"] == [{"text": "R", "url": "https://r-project.org"}]


def test_the_server_is_given_no_dotted_name_to_import():
    language = {"name": "R", "nbconvert_exporter": "os.system", "pygments_lexer": "r", "file_extension": ".r/../x"}
    reply = clean_reply("kernel_info_reply", {**INFO, "language_info": language}, None)
    assert reply["language_info"] == {"name": "R", "pygments_lexer": "r"}


def test_a_prompt_says_that_a_sandbox_asks():
    reply = clean_reply("input_request", {"prompt": "Jupyter password:\u202e\n", "password": True}, None)
    assert reply == {"prompt": "sandbox asks: Jupyter password:\ufffd", "password": True}


@pytest.mark.parametrize(
    "name", ["sandbox-kernel", "Sandbox_Kernel", "sandbox-kernel\u200b", "ѕandbox-kernel", "sandboxkernel", "▣ sandbox"]
)
def test_a_kernel_has_no_name_that_is_like_ours(name: str) -> None:
    said = clean_reply(
        "kernel_info_reply", {"protocol_version": "5.3", "language_info": {}, "implementation": name}, None
    )
    assert str(said["implementation"]).endswith("(of the program)") and "▣" not in str(said)


def test_other_kernels_keep_their_names() -> None:
    for name in ("ipython", "IRkernel", "xeus-python", ""):
        said = clean_reply(
            "kernel_info_reply", {"protocol_version": "5.3", "language_info": {}, "implementation": name}, None
        )
        assert said["implementation"] == name
