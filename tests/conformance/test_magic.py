"""The magic in the ordinary Python kernel: the same words, the same errors, nothing left behind."""

import subprocess
import sys

import psutil
import pytest

from sandbox_kernel.receipt import MIME


@pytest.fixture(scope="module")
def python(request):
    from jupyter_client.kernelspec import KernelSpecManager

    assert "python3" in KernelSpecManager().find_kernel_specs()
    client = request.getfixturevalue("client_class")("python3")
    reply, outputs = client.run("%load_ext sandbox_kernel")
    assert (reply["status"], outputs) == ("ok", [])
    yield client
    client.close()


@pytest.mark.slow
def test_a_cell_runs_in_a_sandbox_and_shows_its_receipt(python):
    _, outputs = python.run("%%sandbox --timeout 5s\nprint('inside')")
    assert [kind for kind, _ in outputs] == ["stream", "display_data"]
    assert outputs[0][1] == {"name": "stdout", "text": "inside\n"}
    assert outputs[1][1]["data"][MIME]["timeout_s"] == 5
    assert outputs[1][1]["metadata"][MIME]["duration_s"] > 0


def test_a_sandboxed_cell_sees_nothing_of_the_notebook(python):
    python.run("secret = 42")
    reply, _ = python.run("%%sandbox --fresh\nprint(secret)", stop_on_error=False)
    assert reply["status"] == "error"


def test_variables_go_in_and_come_out_of_the_users_namespace(python):
    python.run("table = {'rows': [1, 2, 3]}")
    python.run("%%sandbox python -i table -o total --quiet\ntotal = sum(table['rows'])")
    assert python.text("print(total, type(total))") == "6 <class 'int'>\n"
    python.run("text = 'from a variable'")
    assert python.text("%%sandbox --stdin-var text --quiet\nprint(input())") == "from a variable\n"
    reply, _ = python.run(
        "thing = object()\nget_ipython().run_cell_magic('sandbox', '-i thing', 'x')", stop_on_error=False
    )
    assert "a value of type object cannot be passed as JSON" in reply["evalue"]


def test_a_missing_variable_is_one_of_the_notebook(python):
    reply, _ = python.run("%%sandbox -i nowhere\n1", stop_on_error=False)
    assert reply["evalue"] == "-i nowhere: this notebook has no variable nowhere; define it in a Python cell"


@pytest.mark.slow
def test_the_option_line_is_completed_as_in_the_sandbox_kernel(python):
    python.run("rows_to_send = [1]\ndef rows_of(): pass")

    def complete(code):
        reply = python.reply(python.send("complete_request", {"code": code, "cursor_pos": len(code)}))
        return reply["matches"], reply["cursor_start"]

    assert complete("%%sandbox --tim") == (["--timeout"], 10)
    assert complete("%%sandbox --policy s") == (["standard", "strict"], 19)
    assert complete("%sandbox und") == (["undo"], 9)
    assert complete("%%sandbox -i rows_") == (["rows_to_send"], 13)
    assert "%timeit" in complete("%")[0]
    assert "print" in complete("%%sandbox\npri")[0]


def test_a_question_about_the_magic_shows_the_whole_table(python):
    reply, _ = python.run("%%sandbox?")
    assert "--allow-net DOMAIN[:PORT]" in reply["payload"][0]["data"]["text/plain"]


def test_braces_and_dollars_in_the_option_line_are_not_expanded(python):
    python.run("x = 'EXPANDED'")
    assert python.text("%%sandbox bash --quiet --env V='{x} $x'\necho \"$V\"") == "{x} $x\n"


@pytest.mark.parametrize(
    ("code", "ename", "evalue"),
    [
        ("%%sandbox --timeout 500ms\nwhile True: pass", "SandboxTimeout", "time limit of 0.5 s exceeded"),
        ("%%sandbox bash\nexit 3", "SandboxExit", "exit code 3"),
        ("%%sandbox --nope\nx", "InvalidRequest", "unknown option '--nope'"),
        ("%%sandbox rust\n   \n", "InvalidRequest", "the cell is empty below this line"),
        ("%sandbox undo 0", "InvalidRequest", "%sandbox undo '0'"),
    ],
)
@pytest.mark.one_case
def test_a_failure_is_a_real_error_message_with_its_name(python, code, ename, evalue):
    reply, outputs = python.run(code, stop_on_error=False)
    errors = [content for kind, content in outputs if kind == "error"]
    assert len(errors) == 1
    assert (reply["status"], reply["ename"], errors[0]["ename"]) == ("error", ename, ename)
    assert evalue in errors[0]["evalue"]
    assert "magics.py" not in "".join(errors[0]["traceback"])


def test_output_streams_and_an_interrupt_stops_the_sandbox_and_nothing_else(python):
    request = python.kc.execute("kept = 'kept'", allow_stdin=False)
    python.outputs(request)
    python.run("%%sandbox bash --quiet\nkept=inside")
    seconds = "66.666"
    request = python.kc.execute(f"%%sandbox bash --quiet\necho running\nsleep {seconds}", allow_stdin=False)
    python.wait_for_output(request, "running")
    sleepers = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", seconds]]
    assert sleepers
    python.km.interrupt_kernel()
    assert [content["ename"] for kind, content in python.outputs(request) if kind == "error"] == ["KeyboardInterrupt"]
    assert not psutil.wait_procs(sleepers, timeout=10)[1]
    assert python.text("print(kept)") == "kept\n"
    # The interrupt goes to the kernel's whole group of processes; the session is not one of them.
    assert python.text("%%sandbox bash --quiet\necho $kept") == "inside\n"


def test_defaults_and_line_commands(python):
    python.run("%sandbox bash --timeout 7s")
    assert python.text("%%sandbox --quiet\necho $0") == "bash\n"
    _, outputs = python.run("%sandbox")
    assert outputs[0][1]["data"]["text/plain"] == "%sandbox command --timeout 7s"
    python.run("%sandbox reset")
    assert python.text("%%sandbox --quiet\nprint('python')") == "python\n"


def test_unloading_ends_the_sandboxes_and_loading_again_works(python):
    python.run("%unload_ext sandbox_kernel")
    python.run("%load_ext sandbox_kernel")
    assert python.text("%%sandbox --quiet\nprint('again')") == "again\n"


@pytest.mark.slow
def test_in_terminal_ipython_the_magic_works_too(tmp_path):
    script = tmp_path / "cells.ipy"
    script.write_text("%load_ext sandbox_kernel\nget_ipython().run_cell_magic('sandbox', '', 'print(6 * 7)')\n")
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.stdout.startswith("42\n▣ [python · ok · limits 30 s")
    assert done.returncode == 0
