"""What a front end gets of a hostile kernel's replies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.wrapped.relaying.clean_outputs import MalformedMessage
from sandbox_kernel.wrapped.relaying.clean_replies import _REPLIES, CompletionRequest, clean_reply
from tests.wrapped.relaying.test_clean_outputs import ANY

FIELDS = ("status", "payload", "user_expressions", "matches", "cursor_start", "cursor_end", "metadata", "found", "data",
          "indent", "history", "language_info", "help_links", "protocol_version", "supported_features", "banner",
          "prompt", "password", "execution_count", "ename", "evalue", "traceback", "subshell_id")  # fmt: skip
INFO = {"protocol_version": "5.3", "language_info": {"name": "R"}, "banner": ""}


@given(
    st.sampled_from(sorted({*_REPLIES, "debug_reply", "input_request"})),
    st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=8),
)
@pytest.mark.slow
def test_any_content_gives_a_clean_reply_or_is_malformed(kind, content):
    try:
        clean_reply(kind, content, CompletionRequest("os.pa", 5))
    except MalformedMessage:
        pass


def test_a_reply_of_an_unknown_kind_is_malformed():
    with pytest.raises(MalformedMessage):
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
        with pytest.raises(MalformedMessage):
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
