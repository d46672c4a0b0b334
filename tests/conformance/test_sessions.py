"""State between cells, seen through the kernel: values, rollback, undo, input, rich outputs."""

import pytest

from sandbox_kernel.receipt import MIME
from sandbox_kernel.untrusted.frames.frame_output import FRAME


def value(kernel, code, **options):
    found = [
        content["data"]["text/plain"] for kind, content in kernel.run(code, **options)[1] if kind == "execute_result"
    ]
    return found[0] if found else None


def test_a_cell_that_is_stopped_leaves_the_session_as_it_was(kernel):
    kernel.run("kept = 'as it was'")
    reply, outputs = kernel.run("%%sandbox --timeout 500ms\nkept = 'changed'\nwhile True: pass", stop_on_error=False)
    assert reply["ename"] == "SandboxTimeout"
    told = "".join(outputs[-1][1]["traceback"])
    assert "The session is as it was before this cell." in told and told.count("before this cell") == 1
    assert value(kernel, "kept") == "'as it was'"


def test_undo_takes_back_the_last_cell(kernel):
    kernel.run("step = 1")
    kernel.run("step = 2")
    _, outputs = kernel.run("%sandbox undo")
    assert "took back cell" in outputs[0][1]["data"]["text/plain"]
    assert value(kernel, "step") == "1"


def test_go_leads_to_the_state_after_the_cell_with_that_number_in_the_margin(kernel):
    first, _ = kernel.run("step = 1")
    kernel.run("step = 2")
    kernel.run("step = 3")
    kernel.run(f"%sandbox go {first['execution_count']}")
    assert value(kernel, "step") == "1"
    kernel.run(f"%sandbox checkpoint best [{first['execution_count']}]")
    kernel.run("step = 4")
    kernel.run("%sandbox go best")
    assert value(kernel, "step") == "1"
    reply, _ = kernel.run("%sandbox go 9999", stop_on_error=False)
    assert "no state was kept after cell [9999]" in reply["evalue"]


def test_an_exception_is_one_error_with_its_own_name_and_the_line_of_the_cell(kernel):
    reply, outputs = kernel.run("%%sandbox python\n\nx = 1\nraise KeyError('gone')", stop_on_error=False)
    assert [kind for kind, _ in outputs] == ["error"]
    assert reply["ename"] == "KeyError"
    assert "line 4" in "".join(reply["traceback"])


def test_an_interrupt_keeps_what_was_done(kernel):
    request = kernel.kc.execute(
        "done = 1\nimport time\nprint('running', flush=True)\ntime.sleep(60)", allow_stdin=False
    )
    kernel.wait_for_output(request, "running")
    kernel.km.interrupt_kernel()
    kernel.outputs(request)
    assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
    assert value(kernel, "done") == "1"


@pytest.mark.attack("O06", "kernel")
def test_a_password_is_asked_for_as_one(kernel):
    request = kernel.kc.execute("import getpass\nlen(getpass.getpass('PIN: '))", allow_stdin=True)
    assert kernel.kc.get_stdin_msg(timeout=30)["content"]["password"] is True
    kernel.kc.input("1234")
    values = [content["data"]["text/plain"] for kind, content in kernel.outputs(request) if kind == "execute_result"]
    assert values == ["4"]
    kernel.reply(request)


@pytest.mark.attack("O06", "kernel")
@pytest.mark.parametrize(
    "code",
    [
        "name = input('Your name? ')\nprint('hello', name)",
        "%%sandbox --fresh\nname = input('Your name? ')\nprint('hello', name)",
        "%%sandbox bash --fresh\nprintf 'Your name? '; read name; echo hello $name",
        "%%sandbox --disk 64M\nname = input('Your name? ')\nprint('hello', name)",
    ],
)
@pytest.mark.one_case
def test_input_is_asked_over_the_stdin_channel_with_the_sandboxs_mark(kernel, code):
    request = kernel.kc.execute(code, allow_stdin=True)
    question = kernel.kc.get_stdin_msg(timeout=30)["content"]
    # A program has printed its words already when it waits for input.
    assert question["prompt"] in ("sandbox asks: Your name?", "sandbox asks: ") and question["password"] is False
    kernel.kc.input("bob")
    text = "".join(content["text"] for kind, content in kernel.outputs(request) if kind == "stream")
    assert text.endswith("hello bob\n")
    kernel.reply(request)


@pytest.mark.parametrize("code", ["%%sandbox bash --fresh\nread forever", "input('forever? ')"])
def test_waiting_for_input_can_be_interrupted(kernel, code):
    request = kernel.kc.execute(code, allow_stdin=True)
    kernel.kc.get_stdin_msg(timeout=30)
    kernel.km.interrupt_kernel()
    assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
    kernel.outputs(request)
    assert value(kernel, "'alive'") == "'alive'"


@pytest.mark.parametrize("line", ["%%sandbox --fresh\n", ""])
def test_a_program_of_a_client_without_input_ends_at_once_and_says_why(kernel, line):
    reply, _ = kernel.run(f"{line}input('anybody? ')", allow_stdin=False, stop_on_error=False)
    told = "".join(reply["traceback"])
    assert "this client cannot be asked for input; give the text with %%sandbox --stdin TEXT" in told


def test_the_stdin_option_answers_line_by_line(kernel):
    kernel.run("%%sandbox python -o lines --fresh --quiet\nlines = 'one\\ntwo'")
    assert value(kernel, "%%sandbox --stdin-var lines\ninput() + input()") == "'onetwo'"


@pytest.mark.attack("O01", "kernel")
def test_rich_outputs_arrive_in_order_and_harmless(kernel):
    code = (
        "from IPython.display import HTML, Javascript, display\n"
        "print('first')\n"
        "display(HTML('<b onclick=\"alert(1)\">bold</b><script>alert(1)</script>'))\n"
        "print('second')\n"
        "display(Javascript('alert(1)'))\n"
        "display({'application/x-javascript': 'alert(1)', 'text/plain': 'x'}, raw=True)\n"
    )
    _, outputs = kernel.run(code)
    kinds = [kind for kind, _ in outputs]
    assert kinds == ["stream", "display_data", "stream", "display_data", "display_data", "display_data"]
    shown = outputs[1][1]["data"]
    assert shown[FRAME]["html"].startswith("<b onclick=")  # data for a frame that nothing leaves, never for the page
    assert shown["text/html"].count("<") == 4  # our frame around one element
    assert '<iframe sandbox="allow-scripts" ' in shown["text/html"]
    assert set(outputs[3][1]["data"]) == {FRAME, "text/html", "text/plain"}
    assert set(outputs[4][1]["data"]) == {"text/plain"}
    notes = outputs[5][1]["data"][MIME]["notes"]
    assert any("JavaScript was not shown" in note for note in notes)


def test_a_display_can_be_updated_and_the_output_cleared(kernel):
    _, outputs = kernel.run(
        "h = display('a', display_id='mine')\nh.update('b')\nfrom IPython.display import clear_output\nclear_output(wait=True)"
    )
    by_kind = dict(outputs)
    assert by_kind["update_display_data"]["transient"] == outputs[0][1]["transient"] != {}
    assert by_kind["clear_output"] == {"wait": True}


@pytest.mark.slow
def test_completion_and_inspection_know_the_session(kernel):
    kernel.run("import collections\nplanetary_motion = 1")
    assert "planetary_motion" in kernel.reply(kernel.kc.complete("planet"))["matches"]
    assert "planetary_motion" in kernel.reply(kernel.kc.complete("%%sandbox python\nplanet"))["matches"]
    found = kernel.reply(kernel.kc.inspect("collections.OrderedDict"))
    assert found["found"]
    assert "text/plain" in found["data"]
    assert kernel.text("pass", name="stderr") == ""


def test_a_cell_has_limits_of_its_own_inside_the_session(kernel):
    kernel.run("mine = 1")
    reply, outputs = kernel.run("%%sandbox --memory 128M --output 1K\nprint('mine' in globals())")
    assert outputs[0][1]["text"] == "True\n"
    assert (outputs[1][1]["data"][MIME]["memory_limit_mb"], outputs[1][1]["data"][MIME]["notes"]) == (128, [])
    reply, _ = kernel.run("%%sandbox --memory 64M\nmine = bytearray(100 << 20)", stop_on_error=False)
    assert reply["ename"] == "MemoryExceeded"
    assert value(kernel, "%%sandbox --quiet\nmine") == "1"


@pytest.mark.slow
def test_sessions_of_different_names_know_nothing_of_each_other(kernel):
    kernel.run("%%sandbox --session one --quiet\nowner = 'one'")
    kernel.run("%%sandbox --session two --quiet\nowner = 'two'")
    assert value(kernel, "%%sandbox --session one --quiet\nowner") == "'one'"
    kernel.run("%sandbox restart --session one")
    assert kernel.run("%%sandbox --session one\nowner", stop_on_error=False)[0]["ename"] == "NameError"
    assert value(kernel, "%%sandbox --session two --quiet\nowner") == "'two'"


@pytest.mark.slow
def test_a_cell_beside_its_session_shows_its_value_and_its_error_and_leaves_nothing(kernel):
    assert value(kernel, "%%sandbox --disk 64M\nown = 6\nown * 7") == "42"
    _, outputs = kernel.run("%%sandbox --disk 64M\n{}['key']")
    assert (outputs[0][1]["ename"], outputs[0][1]["evalue"]) == ("KeyError", "'key'")
    _, outputs = kernel.run("%%sandbox --disk 64M --timeout 500ms\nopen('half', 'w').close()\nwhile True: pass")
    assert outputs[0][1]["ename"] == "SandboxTimeout"
    assert "rolled back" not in "".join(outputs[0][1]["traceback"])
    assert value(kernel, "import os\n'own' in globals(), os.path.exists('half')") == "(False, False)"
