"""JupyterLab's debugger in a real kernel: over the control channel, with what a page sends and what a sandbox may do.

ipykernel's own ``test_debugger`` runs too (``test_ipykernel_tests.py``).
"""

import sys

import pytest

from tests.conftest import need

CODE = "def f(a, b):\n    c = a + b\n    d = c * 2\n    return d\n\nprint(f(2, 3))"


class Page:
    """The debugger of a page: requests by name, and the events that came."""

    def __init__(self, kernel):
        self.kernel, self.seq = kernel, 0

    def ask(self, command, **arguments):
        self.seq += 1
        content = {"type": "request", "seq": self.seq, "command": command, "arguments": arguments}
        return self.kernel.reply(self.kernel.send("debug_request", content, "control"), 60, "control")

    def start(self):
        assert self.ask("initialize", clientID="test", adapterID="", pathFormat="path", linesStartAt1=True)["success"]
        assert self.ask("attach")["success"]

    def stop_at(self, code, *lines):
        """Set breakpoints in a cell; returns its path."""
        path = self.ask("dumpCell", code=code)["body"]["sourcePath"]
        asked = [{"line": line} for line in lines]
        reply = self.ask("setBreakpoints", source={"path": path}, breakpoints=asked, sourceModified=False)
        assert [one["line"] for one in reply["body"]["breakpoints"]] == list(lines)
        assert self.ask("configurationDone")["success"]
        return path

    def event(self, name, timeout=60):
        while True:
            message = self.kernel.kc.get_iopub_msg(timeout=timeout)
            if message["msg_type"] == "debug_event" and message["content"]["event"] == name:
                return message["content"]["body"]

    def frames(self):
        return self.ask("stackTrace", threadId=1)["body"]["stackFrames"]

    def locals(self, frame):
        scopes = {one["name"]: one["variablesReference"] for one in self.ask("scopes", frameId=frame)["body"]["scopes"]}
        found = self.ask("variables", variablesReference=scopes["Locals"])["body"]["variables"]
        return {one["name"]: one["value"] for one in found}

    def go_on(self):
        assert self.ask("continue", threadId=1)["success"]


@pytest.fixture
def page(fresh_kernel):
    need(sys.version_info >= (3, 11), "the debugger of the session is that of this Python")
    pytest.importorskip("debugpy")
    return Page(fresh_kernel)


@pytest.mark.slow
def test_a_page_stops_a_cell_sees_variables_steps_and_lets_it_go_on(page):
    info = page.ask("debugInfo")["body"]
    assert not info["isStarted"]
    page.start()
    path = page.stop_at(CODE, 2)
    assert path.startswith(info["tmpFilePrefix"])
    cell = page.kernel.kc.execute(CODE)
    assert page.event("stopped")["reason"] == "breakpoint"
    assert page.ask("debugInfo")["body"]["stoppedThreads"] == [1]
    top = page.frames()[0]
    assert (top["name"], top["line"], top["source"]["path"]) == ("f", 2, path)
    assert [frame["source"]["path"] for frame in page.frames()] == [path, path]
    assert page.locals(top["id"]) == {"a": "2", "b": "3"}
    assert page.ask("next", threadId=1)["success"]
    assert page.event("stopped")["reason"] == "step"
    top = page.frames()[0]
    assert page.locals(top["id"])["c"] == "5"
    assert page.ask("evaluate", expression="c + 37", frameId=top["id"], context="repl")["body"]["result"] == "42"
    assert page.ask("setExpression", expression="c", value="50", frameId=top["id"])["success"]
    page.go_on()
    assert page.kernel.reply(cell)["status"] == "ok"
    assert page.kernel.wait_for_output(cell, "100") == "100\n"
    assert page.ask("disconnect", terminateDebuggee=True)["success"]
    # The debugger answers first and takes its tracing away then.
    assert "4 None\n" in iter(lambda: page.kernel.text("import sys\nprint(f(1, 1), sys.gettrace())"), "")
    assert not page.ask("debugInfo")["body"]["isStarted"]


@pytest.mark.slow
def test_the_clock_of_a_cell_stands_at_a_breakpoint_and_only_there(page):
    code = "%%sandbox --timeout 4\nimport time\nfor n in range(2):\n    x = n\nprint('through')"
    page.start()
    page.stop_at(code, 4)
    cell = page.kernel.kc.execute(code)
    for _ in range(2):
        page.event("stopped")
        # Longer than the cell may run, all together.
        page.ask("evaluate", expression="__import__('time').sleep(3)", frameId=page.frames()[0]["id"], context="repl")
        page.go_on()
    assert page.kernel.reply(cell)["status"] == "ok"
    request = page.kernel.kc.execute("%%sandbox --timeout 1\nwhile True: pass")
    assert page.kernel.reply(request)["ename"] == "SandboxTimeout"


@pytest.mark.slow
def test_a_session_that_was_rolled_back_is_debugged_again(page):
    page.kernel.run("kept = 41\nimport os")
    page.start()
    page.stop_at(CODE, 3)
    cell = page.kernel.kc.execute(CODE)
    page.event("stopped")
    page.kernel.send("interrupt_request", {}, "control")
    assert page.kernel.reply(cell)["ename"] == "KeyboardInterrupt"
    reply, _ = page.kernel.run("os.kill(os.getpid(), 9)", stop_on_error=False)
    assert reply["ename"] == "SandboxKilled"
    cell = page.kernel.kc.execute(CODE)
    page.event("stopped")
    assert page.locals(page.frames()[0]["id"])["c"] == "5"
    page.go_on()
    assert page.kernel.reply(cell)["status"] == "ok"
    assert page.kernel.text("print(kept)") == "41\n"


@pytest.mark.slow
def test_a_cell_that_is_killed_while_it_stands_lets_the_page_go_on(page):
    page.start()
    page.stop_at(CODE, 2)
    cell = page.kernel.kc.execute(CODE)
    page.event("stopped")
    page.ask(
        "evaluate",
        expression="__import__('os').kill(1 and __import__('os').getpid(), 9)",
        context="repl",
        frameId=page.frames()[0]["id"],
    )
    assert page.kernel.reply(cell)["status"] == "error"
    cell = page.kernel.kc.execute("print('next')")
    page.event("continued")
    assert page.kernel.reply(cell)["status"] == "ok"
    assert page.ask("debugInfo")["body"]["stoppedThreads"] == []


@pytest.mark.slow
def test_undo_and_forks_are_as_without_a_debugger(page):
    page.start()
    page.stop_at("never run", 1)
    page.kernel.run("x = 1")
    reply, outputs = page.kernel.run(
        "x = 2\nimport os\nif not (child := os.fork()):\n    os._exit(7)\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert reply["status"] == "ok"
    # Python 3.12 and later warns of a fork in a process with threads; the debugger has some.
    if sys.version_info < (3, 12):
        assert "thread" not in str(outputs)
    assert "lost" not in page.kernel.text("%sandbox undo")
    assert page.kernel.text("print(x)") == "1\n"


@pytest.mark.slow
def test_a_fork_of_the_user_does_not_stand_at_a_breakpoint(page):
    code = "import os\nif not (child := os.fork()):\n    inside = 1\n    os._exit(7)\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    page.start()
    page.stop_at(code, 3)
    assert page.kernel.text(code) == "7\n"


@pytest.mark.slow
def test_breakpoint_stops_in_the_debugger_of_the_page(page):
    page.start()
    cell = page.kernel.kc.execute("def g():\n    inner = 6\n    breakpoint()\n    return inner\nprint(g())")
    page.event("stopped")
    assert page.locals(page.frames()[0]["id"]) == {"inner": "6"}
    page.go_on()
    assert page.kernel.reply(cell)["status"] == "ok"


@pytest.mark.slow
def test_breakpoints_hold_in_functions_of_cells_that_ran_before_it_was_started(page):
    defined = "def early(x):\n    y = x + 1\n    return y"
    page.kernel.run(defined)
    page.start()
    path = page.stop_at(defined, 2)
    for _ in range(2):
        cell = page.kernel.kc.execute("print(early(1))")
        page.event("stopped")
        assert page.frames()[0]["source"]["path"] == path
        page.go_on()
        assert page.kernel.reply(cell)["status"] == "ok"
        page.kernel.run(defined)


@pytest.mark.slow
def test_values_are_cleaned_and_files_of_the_host_are_not_read(page, tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("HOST = 1\n")
    page.kernel.run("from IPython.display import HTML\nshown = HTML('<b>bold</b><script>alert(1)</script>')")
    page.start()
    names = [one["name"] for one in page.ask("inspectVariables")["body"]["variables"]]
    assert "shown" in names
    assert "In" not in names
    data = page.ask("richInspectVariables", variableName="shown")["body"]["data"]
    assert "bold" in data["text/html"]
    assert "<script" not in data["text/html"]
    assert not page.ask("source", source={"path": str(secret)})["success"]
    assert not page.ask("terminate")["success"]
    assert not page.ask("launch", program=str(secret))["success"]
    assert page.kernel.text("print('well')") == "well\n"


@pytest.mark.slow
def test_nothing_is_imported_or_traced_before_a_page_starts_it(page):
    assert page.ask("debugInfo")["success"]
    assert not page.ask("inspectVariables")["success"]
    assert page.kernel.text("import sys\nprint('debugpy' in sys.modules, sys.gettrace())") == "False None\n"
