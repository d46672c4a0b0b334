"""What a notebook met otherwise than in ipykernel, one test for each, in a real kernel."""

import pytest


def streams(outputs):
    return [(content["name"], content["text"]) for kind, content in outputs if kind == "stream"]


def error(outputs):
    """The error of a cell without our receipt."""
    (content,) = [content for kind, content in outputs if kind == "error"]
    return content["ename"], content["evalue"], [line for line in content["traceback"] if "▣" not in line]


@pytest.mark.parametrize(
    ("code", "said"),
    [("raise SystemExit", ""), ("import sys; sys.exit()", ""), ("raise SystemExit('Stop here')", "Stop here"), ("exit()", "0")],
)  # fmt: skip
def test_a_cell_that_exits_aborts_the_cells_after_it(kernel, code, said):
    # The first cell waits until the second has been sent.
    first = kernel.kc.execute(f"input()\n{code}", allow_stdin=True)
    kernel.kc.get_stdin_msg(timeout=100)
    second = kernel.kc.execute("print('goes on')")
    kernel.reply(kernel.send("kernel_info_request", {}, channel="control"), channel="control")
    kernel.kc.input("")
    ename, evalue, lines = error(kernel.outputs(first))
    assert (ename, evalue) == ("SystemExit", said)
    assert lines[0].startswith("An exception has occurred")
    assert kernel.reply(first)["status"] == "error"
    assert kernel.reply(second)["status"] == "aborted"
    assert kernel.text("print('alive')") == "alive\n"


def test_an_error_that_a_cell_shows_itself_comes_in_its_place(kernel):
    code = "try:\n    1/0\nexcept Exception:\n    get_ipython().showtraceback()\nprint('after')"
    reply, outputs = kernel.run(code)
    assert reply["status"] == "ok"
    (first, shown), *rest = streams(outputs)
    assert (first, rest) == ("stderr", [("stdout", "after\n")])
    assert "division by zero" in shown


def test_an_error_of_a_script_that_the_cell_runs_is_shown_and_the_cell_goes_on(kernel):
    kernel.run("open('leaves.py', 'w').write('import sys; sys.exit(2)')")
    for code, said in {
        "%run leaves.py": "An exception has occurred",
        "get_ipython().run_cell('1/0')": "division by zero",
    }.items():
        reply, outputs = kernel.run(f"{code}\nprint('after')")
        assert reply["status"] == "ok"
        assert [name for name, _ in streams(outputs)] == ["stderr", "stdout"]
        assert said in streams(outputs)[0][1]


def test_an_error_that_a_handler_has_shown_is_not_shown_again(kernel):
    kernel.run("handler = lambda shell, kind, value, trace, tb_offset=None: print('handled', value)")
    kernel.run("get_ipython().set_custom_exc((ZeroDivisionError,), handler)")
    reply, outputs = kernel.run("1/0")
    kernel.run("get_ipython().set_custom_exc((), None)")
    assert (reply["status"], reply["ename"]) == ("error", "ZeroDivisionError")
    assert streams(outputs) == [("stdout", "handled division by zero\n")]
    assert error(outputs)[2] == []


@pytest.mark.slow
def test_an_endless_recursion_shows_the_line_where_it_began(kernel):
    lines = error(kernel.run("def again(n):\n    return again(n + 1)\nagain(0)")[1])[2]
    assert len(lines) <= 200
    assert ", line 3" in lines[2]
    assert "RecursionError" in lines[-1]


def test_an_error_inside_an_output_widget_has_its_traceback(kernel):
    kernel.run("import ipywidgets\nout = ipywidgets.Output()\ndef fails():\n    1/0")
    reply, outputs = kernel.run("with out:\n    fails()\nprint(''.join(out.outputs[0]['traceback']))")
    assert reply["status"] == "ok"
    assert "fails" in streams(outputs)[0][1]
    assert "ZeroDivisionError" in streams(outputs)[0][1]


def test_magics_of_ipykernel_are_there(kernel):
    kernel.run("open('read.txt', 'w').write('of a file')")
    for magic in ("%less", "%more"):
        assert kernel.run(f"{magic} read.txt")[0]["payload"][0]["data"]["text/plain"] == "of a file"
    for magic in ("%edit", "%connect_info", "%qtconsole", "%subshell"):
        assert kernel.text(magic).startswith(f"{magic} ")
    assert kernel.text("%ed") == kernel.text("%edit")
    assert kernel.run("%clear")[0]["status"] == "ok"


def test_magics_of_the_history_find_earlier_cells(kernel):
    kernel.run("word_of_history = 1")
    assert "word_of_history = 1" in kernel.text("%history -g word_of_*")
    kernel.run("print('once more')")
    assert "once more" in kernel.text("%rerun")
    assert kernel.run("%recall word_of_history =")[0]["payload"][0]["text"] == "word_of_history = 1"


def test_autoawait_names_no_function_of_ours(kernel):
    assert kernel.text("%autoawait") == "IPython autoawait is `on`, and set to use `asyncio`\n"


def test_libraries_do_not_take_the_session_for_a_terminal(kernel):
    asked = "print('IPKernelApp' in get_ipython().config, 'zmqshell' in str(type(get_ipython())))"
    assert kernel.text(asked) == "True True\n"


def test_pandas_shows_as_many_columns_as_in_a_notebook(kernel):
    assert kernel.text("import pandas\nprint(pandas.get_option('display.max_columns'))") == "20\n"


def test_the_shell_has_a_kernel_that_libraries_may_ask(kernel):
    asked = "kernel = get_ipython().kernel\nprint(kernel.shell is get_ipython(), kernel.language_info['name'])"
    assert kernel.text(asked) == "True python\n"
    assert kernel.text("import comm\nprint(kernel.comm_manager is comm.get_comm_manager())") == "True\n"
    assert kernel.text("print(kernel.get_parent()['header']['msg_type'])") == "execute_request\n"


def test_programs_that_a_notebook_starts_have_colours_and_a_pager_that_does_not_wait(kernel):
    asked = "import os\nprint([os.environ.get(n) for n in ('TERM', 'PAGER', 'GIT_PAGER', 'FORCE_COLOR', 'CLICOLOR')])"
    assert kernel.text(asked) == "['xterm-color', 'cat', 'cat', '1', '1']\n"
    assert kernel.text("os.environ['PAGER'] = 'less'") == ""
    assert kernel.text("print(os.environ.pop('PAGER'))") == "less\n"


def test_a_breakpoint_opens_the_debugger_of_ipython(kernel):
    assert kernel.text("import pdb\nprint(pdb.Pdb.__module__)") == "IPython.core.debugger\n"


def test_json_keeps_that_it_is_shown_unfolded(kernel):
    outputs = kernel.run("from IPython.display import JSON\nJSON({'a': 1}, expanded=True, root='data')")[1]
    assert outputs[0][1]["metadata"] == {"application/json": {"expanded": True, "root": "data"}}
