"""What Jupyter's own suite does not cover, tried on a real kernel."""

import json
import re
import uuid
from pathlib import Path

import pytest

from sandbox_kernel.receipt import MIME

ROOT = Path(__file__).resolve().parents[2]


def kinds(outputs):
    return [kind for kind, _ in outputs]


@pytest.mark.slow
def test_the_kernel_says_what_it_is_and_offers_nothing_it_has_not(kernel):
    info = kernel.reply(kernel.kc.kernel_info())
    spec = json.loads((ROOT / "kernelspec" / "sandbox" / "kernel.json").read_text())
    assert info["protocol_version"] == spec["kernel_protocol_version"]
    assert info["supported_features"] == ["kernel subshells", "debugger"]
    assert all(info["language_info"][key] for key in (
        "name", "version", "mimetype", "file_extension", "pygments_lexer", "codemirror_mode", "nbconvert_exporter",
    ))  # fmt: skip
    assert info["banner"]
    assert len(info["help_links"]) >= 3
    assert info["implementation"] == "sandbox-kernel"


def test_kernel_info_is_answered_on_the_control_channel_too(kernel):
    assert kernel.reply(kernel.send("kernel_info_request", {}, "control"), channel="control")["status"] == "ok"


def test_stdout_and_stderr_are_two_streams(kernel):
    _, outputs = kernel.run("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    streams = {content["name"]: content["text"] for kind, content in outputs if kind == "stream"}
    assert streams == {"stdout": "out\n", "stderr": "err\n"}


def test_a_cell_that_ended_well_shows_a_receipt_with_its_numbers_in_the_metadata(kernel):
    _, outputs = kernel.run("%%sandbox --timeout 5s --memory 256M\nprint(1)")
    shown = [content for kind, content in outputs if kind == "display_data"]
    assert len(shown) == 1
    assert shown[0]["data"][MIME]["timeout_s"] == 5
    assert shown[0]["data"][MIME]["memory_limit_mb"] == 256
    assert shown[0]["metadata"][MIME]["duration_s"] > 0
    assert "text/html" in shown[0]["data"]
    assert kinds(kernel.run("%%sandbox --quiet\nprint(1)")[1]) == ["stream"]


@pytest.mark.parametrize(
    ("code", "ename", "evalue"),
    [
        ("%%sandbox --timeout 500ms\nwhile True: pass", "SandboxTimeout", "time limit of 0.5 s exceeded"),
        ("%%sandbox --memory 64M\nx = bytearray(1 << 30)", "MemoryExceeded", "memory limit of 64 MB exceeded"),
        ("%%sandbox bash\nexit 3", "SandboxExit", "exit code 3"),
        ("%%sandbox bash\nkill -SEGV $$", "SandboxKilled", "killed by signal 11 (SIGSEGV)"),
        ("%%sandbox --timeout 5parsecs\nx", "InvalidRequest", "--timeout '5parsecs' is not a duration"),
        ("%%sandbox klingon\nx", "InvalidRequest", "unsupported language 'klingon'"),
    ],
)
@pytest.mark.one_case
def test_each_way_to_fail_has_its_name_in_one_error_and_in_the_reply(kernel, code, ename, evalue):
    reply, outputs = kernel.run(code, store_history=False)
    errors = [content for kind, content in outputs if kind == "error"]
    assert len(errors) == 1
    assert outputs[-1][0] == "error"
    assert reply["status"] == "error"
    for fields in (reply, errors[0]):
        assert fields["ename"] == ename
        assert evalue in fields["evalue"]
        assert fields["traceback"]


def test_without_stop_on_error_the_next_cell_runs(kernel):
    requests = [kernel.kc.execute("raise SystemExit(1)", stop_on_error=False), kernel.kc.execute("print(1)")]
    assert [kernel.reply(request)["status"] for request in requests] == ["error", "ok"]
    for request in requests:
        kernel.outputs(request)


def test_a_silent_request_publishes_nothing_and_is_not_counted(kernel):
    before = kernel.run("print(1)")[0]["execution_count"]
    request = kernel.kc.execute("print('quiet'); raise SystemExit(1)", silent=True)
    assert kernel.outputs(request) == []
    assert kernel.reply(request)["status"] == "error"
    assert kernel.run("print(1)")[0]["execution_count"] == before + 1


def test_a_request_without_history_keeps_the_count_and_is_not_remembered(kernel):
    before = kernel.run("print(1)")[0]["execution_count"]
    kernel.run("print('unremembered')", store_history=False)
    assert kernel.run("print(1)")[0]["execution_count"] == before + 1
    history = kernel.reply(kernel.kc.history(hist_access_type="tail", n=3, raw=True, output=False))["history"]
    assert "print('unremembered')" not in [row[2] for row in history]


def test_undo_names_each_cell_by_its_own_number_under_nbval(kernel):
    """nbval runs all cells without history, so that the kernel's count stands still."""
    for name in ("first", "second"):
        kernel.run(f"{name} = 1", store_history=False)
    numbers = [
        int(re.search(r"took back cell \[(\d+)\]", str(kernel.run("%sandbox undo", store_history=False)[1]))[1])
        for _ in range(2)
    ]
    assert numbers[0] == numbers[1] + 1


def test_the_echo_and_the_reply_carry_the_same_number(kernel):
    request = kernel.kc.execute("print(1)")
    outputs = dict(kernel.outputs(request))
    assert outputs["execute_input"]["execution_count"] == kernel.reply(request)["execution_count"]


@pytest.mark.slow
def test_nothing_that_users_write_is_evaluated_in_the_kernel(kernel, tmp_path):
    for code in (
        f"!touch {tmp_path}/a",
        f"%run {tmp_path}/b.py",
        f"open('{tmp_path}/c', 'w')",
        f"%%bash\ntouch {tmp_path}/d",
    ):
        kernel.run(code, stop_on_error=False)
    kernel.reply(kernel.kc.complete(f"open('{tmp_path}/e', 'w')."))
    kernel.reply(kernel.kc.inspect(f"open('{tmp_path}/f', 'w').x"))
    assert list(tmp_path.iterdir()) == []


def test_a_comm_to_an_unknown_target_is_closed(kernel):
    assert kernel.reply(kernel.kc.comm_info())["status"] == "ok"
    request = kernel.send("comm_open", {"comm_id": uuid.uuid4().hex, "target_name": "nope", "data": {}})
    assert kinds(kernel.outputs(request)) == ["comm_close"]


def test_a_lone_surrogate_from_a_browser_is_answered_and_the_kernel_lives(kernel):
    pack = kernel.kc.session.pack
    kernel.kc.session.pack = lambda message: json.dumps(message, default=str).encode()
    try:
        reply, _ = kernel.run("x = '\ud800'", stop_on_error=False)
        assert "line 1 of the cell holds a lone surrogate" in reply["evalue"]
    finally:
        kernel.kc.session.pack = pack
    assert kernel.text("print('alive')") == "alive\n"


@pytest.mark.parametrize("content", [{"code": 3}, {"code": None}, {"code": ["x"]}, {"code": {"a": 1}}])
def test_a_request_whose_code_is_no_text_is_answered(kernel, content):
    request = kernel.send("execute_request", {**content, "silent": False, "stop_on_error": False})
    kernel.outputs(request)
    assert "a cell must be text" in kernel.reply(request)["evalue"]


@pytest.mark.slow
def test_a_cell_of_ten_megabytes_runs(kernel):
    code = "x = '''" + "y" * 10_000_000 + "'''\nprint(len(x))"
    assert kernel.text(code) == "10000000\n"


@pytest.mark.slow
def test_defaults_hold_for_later_cells_until_they_are_reset(fresh_kernel):
    fresh_kernel.run("%sandbox bash --timeout 7s --quiet --env WORD=hello")
    assert fresh_kernel.text("echo $WORD $0") == "hello bash\n"
    _, outputs = fresh_kernel.run("%sandbox")
    assert outputs[0][1]["data"]["text/plain"] == "%sandbox command --timeout 7s --env WORD=hello --quiet"
    fresh_kernel.run("%sandbox reset")
    assert fresh_kernel.text("print('python again')") == "python again\n"


def test_variables_pass_between_languages_as_json(kernel):
    assert kernel.text("%%sandbox python -o data\ndata = {'a': [1, 2]}\nprint('made')") == "made\n"
    assert kernel.text('%%sandbox bash -i data -o text\necho "$data"\ntext="got $data"') == '{"a": [1, 2]}\n'
    assert kernel.text("%%sandbox python -i data -i text\nprint(data['a'], text)") == '[1, 2] got {"a": [1, 2]}\n'
    assert kernel.text("%%sandbox --stdin-var data\nprint(input())") == '{"a": [1, 2]}\n'
    assert "no cell has handed over nope" in kernel.run("%%sandbox -i nope\n1")[0]["evalue"]


def test_line_commands_answer(kernel):
    for command in ("help", "policy", "files", ""):
        reply, outputs = kernel.run(f"%sandbox {command}")
        assert reply["status"] == "ok"
        assert "text/plain" in outputs[0][1]["data"]
    assert "no running" in kernel.run("%sandbox undo python --session never-made")[0]["evalue"]


def test_the_debugger_says_that_it_is_not_started(kernel):
    request = kernel.send("debug_request", {"type": "request", "seq": 1, "command": "debugInfo"}, "control")
    reply = kernel.reply(request, channel="control")
    assert (reply["success"], reply["body"]["isStarted"]) == (True, False)
    assert kernel.text("print('alive')") == "alive\n"
