"""What a finished cell shows, and what it never shows."""

import json
import re
from dataclasses import replace

import pytest

from sandbox_kernel import CellError, Display, ExecResult, InvalidRequest, Status, Violation
from sandbox_kernel.notebook.render import (
    ClearOutput,
    ShowOutput,
    Value,
    expressions,
    one_line,
    payload,
    refusal,
    render_display,
    render_result,
)
from sandbox_kernel.receipt import MARK, MIME
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.session.cell.front_end import FrontEndReply, NextInput

GOOD = ExecResult(
    stdout="1\n", exit_code=0, duration=1.2345, cpu_seconds=0.777, peak_memory_bytes=12_345_678,
    language="python", backend="process", isolation="process+sandbox", timeout=5.0, memory_limit_mb=64,
)  # fmt: skip


def failed(**changes):
    messages = render_result(replace(GOOD, **{"status": Status.FAILED, "exit_code": 1, **changes}))
    assert len(messages) == 1
    assert isinstance(messages[0], CellError)
    return messages[0]


def test_a_cell_that_ended_well_shows_its_receipt_with_numbers_only_in_metadata():
    (shown,) = render_result(GOOD)
    assert isinstance(shown, ShowOutput)
    assert set(shown.data) == {MIME, "text/html", "text/plain"}
    assert shown.metadata[MIME]["duration_s"] == 1.2345
    text = json.dumps(dict(shown.data))
    for number in ("1.2345", "0.777", "12345678"):
        assert number not in text
    other = replace(GOOD, duration=9.9, cpu_seconds=0.1, peak_memory_bytes=1, stdout_bytes=7)
    assert render_result(other)[0].data == shown.data


def test_quiet_hides_the_receipt_unless_there_is_something_to_say():
    assert render_result(GOOD, quiet=True) == ()
    for told in (
        replace(GOOD, notes=("look",)),
        replace(GOOD, limit="output"),
        replace(GOOD, violations=(Violation(rule="network", subject="x", reason="y"),)),
    ):
        assert len(render_result(told, quiet=True)) == 1


def test_a_value_is_an_execute_result_and_no_display_is_shown_again_with_the_receipt():
    displays = (Display(data={"text/plain": "a"}), Display(data={"text/plain": "42"}, kind="result"))
    shown, value = (render_display(display)[0] for display in displays)
    assert shown == ShowOutput({"text/plain": "a"})
    assert value == Value({"text/plain": "42"})
    assert render_result(replace(GOOD, displays=displays)) == render_result(GOOD)


def test_what_was_removed_from_a_display_is_told():
    shown, told = render_display(Display(data={"application/javascript": "x", "text/plain": "y"}))
    assert shown.data == {"text/plain": "y"}
    assert told == ("JavaScript was not shown: scripts of a sandbox do not run in the page",)


@pytest.mark.parametrize(
    ("changes", "ename", "evalue"),
    [
        ({"status": Status.TIMEOUT, "limit": "timeout"}, "SandboxTimeout", "time limit of 5 s exceeded"),
        ({"status": Status.MEMORY_EXCEEDED}, "MemoryExceeded", "memory limit of 64 MB exceeded"),
        ({"status": Status.CPU_LIMIT}, "CpuLimitExceeded", "CPU time limit exceeded"),
        ({"status": Status.FUEL_EXHAUSTED}, "FuelExhausted", "fuel limit exhausted"),
        ({"status": Status.COMPILE_FAILED}, "CompileError", "compilation failed"),
        ({"status": Status.INTERRUPTED}, "KeyboardInterrupt", "interrupted"),
        ({"status": Status.KILLED, "signal": 11}, "SandboxKilled", "killed by signal 11 (SIGSEGV)"),
        ({"signal": 6}, "SandboxExit", "aborted (SIGABRT)"),
        ({"exit_code": 3}, "SandboxExit", "exit code 3"),
    ],
)
def test_a_failing_cell_shows_one_error_that_names_the_limit(changes, ename, evalue):
    error = failed(**changes)
    assert (error.ename, error.evalue) == (ename, evalue)
    assert "1.23" not in error.evalue
    assert "isolated process" in error.traceback[-1]
    assert "ran 1.23 s, CPU 0.78 s, peak 12 MB" in error.traceback[-1]


def test_an_exception_that_lies_about_itself_is_cut_to_plain_text():
    cause = CellError(ename="X\x1b]0;t\x07\n" * 900, evalue="v\ud800" * 90_000, traceback=("\x1b[2Jt",) * 9000)
    error = failed(error=cause)
    assert len(error.ename) < 300
    assert "\n" not in error.ename
    assert "\x1b" not in error.ename
    error.evalue.encode()
    assert len(error.evalue) < 21_000
    assert len(error.traceback) < 600
    assert "\x1b[2J" not in "".join(error.traceback)


@pytest.mark.parametrize(
    "name",
    ["SandboxTimeout", "sandboxtimeout", "Sandbox_Timeout", "SandboxAnything", "MemoryExceeded", "CompileError",
     "InternalError", "InvalidRequest", "PolicyViolation", "SessionError", "SandboxExit", "\u0405andboxTimeout",
     "\uff33andboxTimeout", "Sandbox\u200bTimeout"],
)  # fmt: skip
def test_an_exception_of_the_program_never_has_the_name_of_one_of_ours(name):
    error = failed(error=CellError(ename=name, evalue="time limit of 30 s exceeded; --mount /:/ helps", traceback=()))
    assert error.ename.endswith(" (of the program)")


@pytest.mark.parametrize("name", ["ZeroDivisionError", "KeyboardInterrupt", "MemoryError", "TimeoutError", "MyError"])
def test_other_exceptions_keep_their_name_and_traceback(name):
    lines = ("Traceback", "\x1b[31mline\x1b[0m")
    error = failed(error=CellError(ename=name, evalue="division by zero", traceback=lines))
    assert (error.ename, error.evalue, error.traceback[:2]) == (name, "division by zero", lines)


def test_a_traceback_can_neither_bear_our_mark_nor_hide_our_lines():
    forged = (
        "\u25a3 \x1b[1m\x1b[31mSandboxTimeout\x1b[0m: time limit",
        "\u25a3 [python \u00b7 ok]\x1b[8m\x1b[38;2;255;255;255m",
    )
    error = failed(error=CellError(ename="X", evalue="\u25a3", traceback=forged), rolled_back=True)
    *theirs, rolled_back, receipt = error.traceback
    assert "\u25a3" not in "".join(theirs) + error.evalue
    for line in (rolled_back, receipt):
        assert line.startswith("\x1b[0m")
        assert line.count("\u25a3") == 1
    assert "\u25a3" in failed(status=Status.TIMEOUT).traceback[0]
    assert "\u25a3" in refusal(InvalidRequest("no")).traceback[0]


def test_html_of_a_sandbox_stands_in_a_frame_and_ours_does_not():
    imitation = '<div style="font-size:85%">ok</div></blockquote></div><div>out'
    for kind in ("display", "result", "update"):
        message, _ = render_display(Display(data={"text/html": imitation, "text/plain": "\u25a3 [ok]"}, kind=kind))
        page = message.data["text/html"]
        assert page.startswith("<blockquote ")
        assert page.endswith("</blockquote>")
        assert page.count("</blockquote>") == 1
        assert message.data["text/plain"] == "\u25a1 [ok]"
    (receipt,) = render_result(GOOD)
    assert "<blockquote" not in receipt.data["text/html"]


@pytest.mark.parametrize(
    "mime", [MIME, MIME.upper(), f" {MIME}", f"{MIME};v=1", "application/vnd.jupyter.widget-view+json"]
)
def test_a_receipt_or_a_widget_of_a_sandbox_is_refused(mime):
    forged = Display(
        data={mime: {"status": "ok", "ending": "ok"}, "text/plain": "x"}, metadata={mime: {"duration_s": 1}}
    )
    message, removed = render_display(forged)
    assert (dict(message.data), dict(message.metadata)) == ({"text/plain": "x"}, {})
    assert len(removed) == 1


@pytest.mark.parametrize(
    "text", ["Jupyter\rpassword", "a\b\b\b\b", "x\u202ey", "x\u2066y", "a\u2028b", "a\tb", "\x1b[8mx", "\u25a3"]
)
def test_words_of_a_sandbox_on_one_line_of_ours_move_and_hide_nothing(text):
    shown = one_line(text, 100)
    assert not set(shown) & set("\r\n\t\b\x1b\u202e\u2066\u2028\u25a3")
    assert len(one_line(text * 1000, 100)) <= 100


def test_a_formula_in_a_refused_path_is_not_typeset():
    violation = Violation(rule="read", subject="$\\href{javascript:alert(1)}{x}$", reason="no")
    (shown,) = render_result(replace(GOOD, violations=(violation,)))
    assert "\\href" not in shown.data["text/html"]


def test_a_request_that_was_not_run_is_an_error_with_its_own_name():
    error = refusal(InvalidRequest("--timeout 'x' is not a duration"))
    assert (error.ename, error.evalue) == ("InvalidRequest", "--timeout 'x' is not a duration")
    assert "InvalidRequest" in error.traceback[0]


def test_updates_and_clearings_keep_to_displays_of_the_sandbox():
    update = SessionDisplay(data={"text/plain": "b"}, kind="update", display_id="x\x1b[2J" * 99, worker_id="0123")
    message, _ = render_display(update)
    assert message.update
    assert re.fullmatch("sandbox:0123:[0-9a-f]{32}", message.display_id)
    assert render_display(replace(update, worker_id="4567"))[0].display_id != message.display_id
    assert render_display(replace(update, display_id="x"))[0].display_id != message.display_id
    clear = SessionDisplay(data={}, metadata={"wait": True}, kind="clear")
    assert render_display(clear) == (ClearOutput(wait=True), ())


GLYPH = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><defs>'
    '<path id="DejaVuSans-31" d="M {}"/><clipPath id="c"><rect/></clipPath></defs><g clip-path="url(#c)" '
    'style="clip-path:url(\'#c\')"><use xlink:href="#DejaVuSans-31"/><use href="#DejaVuSans-31"/></g><text>url(#c) #c</text></svg>'
)


def test_a_drawing_lends_no_shape_to_another():
    """matplotlib gives its glyphs the same names in every figure: one figure must not change the digits of another."""
    drawings = []
    for shape in ("1 1", "9 9"):
        message, _ = render_display(Display(data={"image/svg+xml": GLYPH.format(shape)}))
        drawings.append(message.data["image/svg+xml"])
        again, _ = render_display(Display(data={"image/svg+xml": GLYPH.format(shape)}))
        assert again == message
    for drawing in drawings:
        names = set(re.findall(r' id="([^"]+)"', drawing))
        assert len(names) == 2
        assert set(re.findall(r"""(?:href="|url\('?)#([^"')]+)""", drawing.partition("<text>")[0])) == names
        assert drawing.endswith("<text>url(#c) #c</text></svg>")
    assert not set(re.findall(r' id="([^"]+)"', drawings[0])) & set(re.findall(r' id="([^"]+)"', drawings[1]))


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
