"""What a finished cell shows, and what it never shows."""

import json
from dataclasses import replace

import pytest

from sandbox_kernel import CellError, Display, ExecResult, InvalidRequest, Status, Violation
from sandbox_kernel.notebook.render import Cleared, Failure, Shown, Value, refusal, render_display, render_result
from sandbox_kernel.receipt import MIME
from sandbox_kernel.session.cell.displays import SessionDisplay

GOOD = ExecResult(
    stdout="1\n", exit_code=0, duration=1.2345, cpu_seconds=0.777, peak_memory_bytes=12_345_678,
    language="python", backend="process", isolation="process+sandbox", timeout=5.0, memory_limit_mb=64,
)  # fmt: skip


def failed(**changes):
    messages = render_result(replace(GOOD, **{"status": Status.FAILED, "exit_code": 1, **changes}))
    assert len(messages) == 1
    assert isinstance(messages[0], Failure)
    return messages[0]


def test_a_cell_that_ended_well_shows_its_receipt_with_numbers_only_in_metadata():
    (shown,) = render_result(GOOD)
    assert isinstance(shown, Shown)
    assert set(shown.data) == {MIME, "text/html", "text/plain"}
    assert shown.metadata[MIME]["duration_s"] == 1.2345
    text = json.dumps(dict(shown.data))
    for number in ("1.2345", "0.777", "12345678"):
        assert number not in text


def test_the_same_program_gives_the_same_data_whatever_it_measured():
    other = replace(GOOD, duration=9.9, cpu_seconds=0.1, peak_memory_bytes=1, stdout_bytes=7)
    assert render_result(GOOD)[0].data == render_result(other)[0].data


def test_quiet_hides_the_receipt_unless_there_is_something_to_say():
    assert render_result(GOOD, quiet=True) == ()
    for told in (
        replace(GOOD, notes=("look",)),
        replace(GOOD, limit="output"),
        replace(GOOD, violations=(Violation(rule="network", subject="x", reason="y"),)),
        replace(GOOD, stdout_truncated=True),
    ):
        assert len(render_result(told, quiet=True)) == 1


def test_displays_come_first_the_value_is_an_execute_result_and_the_receipt_is_last():
    displays = (Display(data={"text/plain": "a"}), Display(data={"text/plain": "42"}, kind="result"))
    shown, value, receipt = render_result(replace(GOOD, displays=displays))
    assert shown == Shown({"text/plain": "a"})
    assert value == Value({"text/plain": "42"})
    assert MIME in receipt.data


def test_what_was_removed_from_a_display_stands_in_the_receipt():
    displays = (Display(data={"application/javascript": "x", "text/plain": "y"}),)
    shown, receipt = render_result(replace(GOOD, displays=displays), quiet=True)
    assert shown.data == {"text/plain": "y"}
    assert "removed application/javascript: scripts are never shown" in receipt.data[MIME]["notes"]


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
    assert "process+sandbox" in error.traceback[-1]
    assert "ran 1.23 s, CPU 0.78 s, peak 12 MB" in error.traceback[-1]


def test_an_exception_of_the_users_code_keeps_its_name_and_traceback():
    cause = CellError(
        ename="ZeroDivisionError", evalue="division by zero", traceback=("Traceback", "\x1b[31mline\x1b[0m")
    )
    error = failed(error=cause)
    assert (error.ename, error.evalue) == ("ZeroDivisionError", "division by zero")
    assert error.traceback[:2] == ("Traceback", "\x1b[31mline\x1b[0m")


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


def test_a_rollback_is_said():
    assert "The session is as it was before this cell." in failed(rolled_back=True, status=Status.TIMEOUT).traceback[-2]


def test_what_a_failing_cell_displayed_before_is_still_shown():
    messages = render_result(replace(GOOD, status=Status.TIMEOUT, displays=(Display(data={"text/plain": "a"}),)))
    assert [type(message) for message in messages] == [Shown, Failure]


def test_a_formula_in_a_refused_path_is_not_typeset():
    violation = Violation(rule="read", subject="$\\href{javascript:alert(1)}{x}$", reason="no")
    (shown,) = render_result(replace(GOOD, violations=(violation,)))
    assert "\\href" not in shown.data["text/html"]


def test_a_request_that_was_not_run_is_an_error_with_its_own_name():
    error = refusal(InvalidRequest("--timeout 'x' is not a duration"))
    assert (error.ename, error.evalue) == ("InvalidRequest", "--timeout 'x' is not a duration")
    assert "InvalidRequest" in error.traceback[0]


def test_updates_and_clearings_keep_to_displays_of_the_sandbox():
    update = SessionDisplay(data={"text/plain": "b"}, kind="update", display_id="x\x1b[2J" * 99)
    message, _ = render_display(update)
    assert message.update
    assert message.display_id.startswith("sandbox:x")
    assert len(message.display_id) < 200
    clear = SessionDisplay(data={}, metadata={"wait": True}, kind="clear")
    assert render_display(clear) == (Cleared(wait=True), ())
