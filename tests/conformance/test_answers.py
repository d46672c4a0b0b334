"""What a hostile session answers and shows, in a real kernel: it reaches nothing of the cell but the word at the
cursor, and nothing of the page but its own outputs.
"""

import pytest

FORGE = """
import gc
worker = next(each for each in gc.get_objects() if type(each).__name__ == 'Worker' and hasattr(each, 'engine'))
magic = '%%sandbox python --mount /root:/root --allow-net evil.example'
def ask(what, code, position):
    names = ['print', '%time', magic, magic + '\\nprint', '%sandbox --mount /root:/root', '/root:/root', 'evil.example']
    kinds = [{'type': 'function', 'text': magic, 'start': 0, 'end': len(code)}]
    start = code.rfind('\\n', 0, position) + 1
    return {'matches': names, 'cursor_start': 0 if 'whole' in code else start, 'cursor_end': len(code),
            'metadata': {'_jupyter_types_experimental': kinds}, 'data': {'text/plain': 'of the forger'}}
worker.engine.ask = ask
"""

SHOW = "from IPython.display import display\ndisplay('100', display_id='balance')"
REWRITE = "from IPython.display import update_display\nupdate_display('999', display_id='balance')"


@pytest.fixture
def forger(fresh_kernel):
    assert fresh_kernel.run(FORGE)[0]["status"] == "ok"
    return fresh_kernel


def complete(kernel, code, position=None):
    content = {"code": code, "cursor_pos": len(code) if position is None else position}
    return kernel.reply(kernel.send("complete_request", content))


@pytest.mark.slow
def test_a_forged_completion_reaches_only_the_word_at_the_cursor(forger):
    reply = complete(forger, "import os\npri\nlast = 1", 13)
    assert (reply["matches"], reply["cursor_start"], reply["cursor_end"]) == (["print"], 10, 13)
    assert "sandbox" not in str(reply)
    assert complete(forger, "whole\npri\nlast = 1", 9)["matches"] == []
    assert complete(forger, "")["matches"] == ["print", "/root:/root", "evil.example"]


@pytest.mark.parametrize(
    "line", ["%%sandbox --mount ", "%%sandbox --allow-net ", "\ufeff%%sandbox --mount ", "%sandbox --mount ", "\n%%sandbox --mount "]
)  # fmt: skip
@pytest.mark.one_case
def test_a_session_is_never_asked_about_a_line_of_options(forger, line):
    found = complete(forger, line)["matches"]
    assert not {"/root:/root", "evil.example", "print"} & set(found)


@pytest.mark.slow
def test_magics_of_a_session_are_names_and_nothing_more(forger):
    assert complete(forger, "%")["matches"] == ["%%sandbox", "%sandbox", "%time"]


@pytest.mark.slow
def test_a_session_is_not_asked_about_a_cell_that_runs_elsewhere(forger):
    assert complete(forger, "%%sandbox python\npri")["metadata"]["_jupyter_types_experimental"][0]["end"] == 20
    for line in ("%%sandbox --session other", "%%sandbox --mount /usr/share:/data", "%%sandbox --fresh", "%%sandbox js",
                 "%sandbox --session other", "\n%%sandbox --session other", "%%sandbox --no-such"):  # fmt: skip
        code = f"{line}\nforg"
        assert forger.reply(forger.kc.inspect(code))["data"] == {}, line
        assert "%time" not in complete(forger, f"{line}\n%ti")["matches"], line


def ids(outputs, kind):
    return {content["transient"].get("display_id") for name, content in outputs if name == kind} - {None}


@pytest.mark.slow
def test_an_update_of_one_session_names_no_output_of_another(kernel):
    """The reproducer: a second session rewrote the balance that the first one showed."""
    shown = {}
    for line in ("--session one", "--session two", "python", "--disk 32M", "--mount /usr/share:/data", "--disk 33M"):
        shown[line] = ids(kernel.run(f"%%sandbox {line}\n{SHOW}")[1], "display_data")
        assert len(shown[line]) == 1
        rewritten = ids(kernel.run(f"%%sandbox {line}\n{REWRITE}")[1], "update_display_data")
        assert (rewritten == shown[line]) is (line in ("--session one", "--session two", "python"))
        shown[f"{line}, later"] = rewritten
    kernel.run("%sandbox restart --session one")
    shown["restarted"] = ids(kernel.run(f"%%sandbox --session one\n{REWRITE}")[1], "update_display_data")
    different = {tuple(found) for found in shown.values()}
    assert len(different) == len(shown) - 3


def test_javascript_and_python_share_no_display(kernel):
    of_python = ids(kernel.run(SHOW)[1], "display_data")
    rewrite = "display('999', { update: true, display_id: 'balance' })"
    of_javascript = ids(kernel.run(f"%%sandbox js\n{rewrite}")[1], "update_display_data")
    assert len(of_javascript) == 1
    assert of_javascript != of_python


def test_a_cell_puts_no_line_of_options_into_another_cell(kernel):
    reply, outputs = kernel.run("get_ipython().set_next_input('%%sandbox --mount /root:/root', replace=True)")
    assert reply["payload"] == []
    assert "text for another cell was refused" in outputs[-1][1]["data"]["text/plain"]


def test_load_and_recall_write_cells_and_the_receipt_says_so(kernel):
    reply, outputs = kernel.run("open('a.py', 'w').write('a = 41')\n%load a.py")
    assert reply["payload"] == [{"source": "set_next_input", "text": "# %load a.py\na = 41", "replace": True}]
    assert "wrote this cell" in outputs[-1][1]["data"]["text/plain"]
    number = kernel.run("recalled = 1")[0]["execution_count"]
    (found,) = kernel.run(f"%recall {number}")[0]["payload"]
    assert (found["source"], found["text"].strip()) == ("set_next_input", "recalled = 1")


def test_a_question_mark_opens_the_pager(kernel):
    kernel.run("def f():\n    'what f does'")
    reply, outputs = kernel.run("f?\n")
    (page,) = reply["payload"]
    assert page["source"] == "page"
    assert "what f does" in page["data"]["text/plain"]
    assert [kind for kind, _ in outputs] == ["display_data"]


def test_expressions_are_evaluated_in_the_sandbox_after_the_cell(kernel):
    asked = {"os": "__import__('os').getcwd()", "no": "1/0", "mark": "'\u25a3 forged'"}
    found = kernel.run("x = 1", user_expressions=asked)[0]["user_expressions"]
    assert found["os"]["data"]["text/plain"] == "'/box'"
    assert found["no"]["ename"] == "ZeroDivisionError"
    assert "\u25a3" not in str(found["mark"])
    fresh = kernel.run("%%sandbox --fresh\nx = 1", user_expressions={"a": "x"})[0]["user_expressions"]
    assert "only they evaluate expressions" in fresh["a"]["evalue"]


@pytest.mark.slow
def test_an_expression_that_does_not_end_is_ended_with_its_cell(kernel):
    kernel.run("import time")
    reply, _ = kernel.run("%%sandbox --timeout 1\nx = 1", user_expressions={"a": "time.sleep(60)"}, stop_on_error=False)
    assert reply["ename"] == "SandboxTimeout"


def test_inspection_in_detail_shows_the_source(kernel):
    kernel.run("def g():\n    return 'the body'")
    assert "the body" not in kernel.reply(kernel.kc.inspect("g"))["data"]["text/plain"]
    assert "the body" in kernel.reply(kernel.kc.inspect("g", detail_level=1))["data"]["text/plain"]


def test_common_indentation_is_taken_off_as_ipython_does(kernel):
    assert kernel.run("\n    indented = 1\n    if indented:\n        indented = 2")[0]["status"] == "ok"
    assert kernel.text("%%sandbox\n\n    print(indented)") == "2\n"
    assert "line 3" in str(kernel.run("%%sandbox\n\n    1/0", stop_on_error=False)[0]["traceback"])


def test_a_program_does_not_clear_away_what_a_line_command_said(kernel):
    clear = "from IPython.display import clear_output\nclear_output(); clear_output(wait=True); print('mine')"
    _, outputs = kernel.run(f"%sandbox policy\n{clear}")
    assert [kind for kind, _ in outputs] == ["display_data", "stream", "display_data"]
    assert [note for note in outputs[-1][1]["data"]["text/plain"].splitlines() if "clear_output was ignored" in note]
    assert "clear_output" in [kind for kind, _ in kernel.run(clear)[1]]


def test_the_notes_of_a_cell_are_few_whatever_it_displays(kernel):
    code = "for n in range(300): display({f'x/y{n}': 1, 'text/plain': ''}, raw=True)"
    _, outputs = kernel.run(code)
    assert len(outputs[-1][1]["data"]["text/plain"].splitlines()) < 50


def test_a_prompt_keeps_its_mark_at_the_front(kernel):
    request = kernel.kc.execute("input('\\r\\b\\u202eJupyter password\\n\\t: ')", allow_stdin=True)
    prompt = kernel.kc.get_stdin_msg(timeout=30)["content"]["prompt"]
    kernel.kc.input("x")
    kernel.outputs(request)
    assert prompt.startswith("sandbox asks: ")
    assert not set(prompt) & set("\r\b\n\t\u202e")
