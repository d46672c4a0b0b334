"""The sandboxes chooses the sandbox, the session and the limits; here with a facade that only remembers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from sandbox_kernel import (
    Display,
    ExecResult,
    InvalidRequest,
    Language,
    PolicyViolation,
    Sandbox,
    SandboxPolicy,
    Status,
)
from sandbox_kernel.notebook import sessions as notebook_sessions
from sandbox_kernel.notebook.execution import NotebookState
from sandbox_kernel.notebook.line_commands import LineCommands, run_command
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.option_table import OPTIONS, AtStart
from sandbox_kernel.notebook.options.parse_cell import parse_cell, parse_line, parse_options
from sandbox_kernel.notebook.sandboxes import CellIO, NotebookSandboxes
from sandbox_kernel.notebook.sessions import NotebookSessions, rights_between
from sandbox_kernel.session.open_wasm import WasmSession
from tests.notebook.test_here import Notebook


class FakeSession:
    def __init__(self, language, **wanted):
        self.language, self.wanted = language, wanted
        self.codes, self.numbers, self.closed = [], [], False
        self.alive, self.raised_mb, self.limits = True, 0, []

    def takes_memory(self, memory_mb):
        return memory_mb <= 1024

    def usual_memory(self, usual_mb):
        return max(usual_mb, self.raised_mb)

    def request(self, code, timeout, *, number, **limits):
        self.codes.append((code, timeout))
        self.limits.append({name: value for name, value in limits.items() if value is not None})
        self.numbers.append(number)
        return code

    async def perform(self, code, events, cancel):
        if "ask" in code:
            events.on_output("stdout", events.on_input("? ", False))
        if "show" in code:
            events.on_display(Display(data={"text/plain": "live"}))
        if "wait" in code:
            await cancel.wait()
            return ExecResult(status=Status.INTERRUPTED)
        return ExecResult(displays=(Display(data={"text/plain": "late"}),))

    def close(self):
        self.closed = True
        self.alive = False


class FakeBox:
    made: ClassVar[list] = []

    def __init__(self, policy, backend, config):
        self.policy, self.backend_name, self.config = policy, backend, config
        self.runs, self.sessions, self.destroyed, self.shares = [], [], False, None
        FakeBox.made.append(self)

    async def perform(self, request, events, cancel):
        self.runs.append(request)
        return ExecResult(language=str(request.language))

    def session(self, language, **wanted):
        self.sessions.append(FakeSession(language, **wanted))
        return self.sessions[-1]

    def share_files(self, other):
        self.shares = other

    def destroy(self):
        self.destroyed = True


@pytest.fixture
def boxes():
    FakeBox.made = []
    return FakeBox.made


@pytest.fixture
def sandboxes(boxes):
    return NotebookSandboxes(FakeBox)


def run(sandboxes, text, **extra):
    async def go():
        output = []
        cancel = extra.pop("cancel", None) or asyncio.Event()
        io = CellIO(
            on_output=lambda name, shown: output.append((name, shown)), cancel=cancel,
            on_display=lambda display: output.append(display.data), on_input=extra.pop("on_input", None), number=7,
        )  # fmt: skip
        result, _ = await sandboxes.run(parse_cell(text, extra.pop("defaults", CellOptions())), io, **extra)
        return result, output

    return asyncio.run(go())


def test_a_notebook_has_a_bounded_number_of_sessions_and_one_that_is_ended_makes_room(sandboxes, monkeypatch):
    monkeypatch.setattr(notebook_sessions, "MOST_SESSIONS", 2)
    for name in "ab":
        run(sandboxes, f"%%sandbox --session {name}\n1")
    with pytest.raises(InvalidRequest, match="2 sessions are open; end one first"):
        run(sandboxes, "%%sandbox --session c\n1")
    run(sandboxes, "%%sandbox --session a\n1")
    opened = [session for box in FakeBox.made for session in box.sessions]
    assert [session.closed for session in opened] == [False, False, True]
    sandboxes.sessions.end(opened[0])
    run(sandboxes, "%%sandbox --session c\n1")


def test_a_fresh_cell_gets_every_option_that_it_asked_for(boxes):
    line = "--fresh --timeout 2s --memory 64M --env A=1 --arg x --stdin hi --cpu 1s"
    result, _ = run(NotebookSandboxes(FakeBox), f"%%sandbox {line}\nprint(1)")
    (request,) = boxes[0].runs
    assert (request.code, request.language) == ("\nprint(1)", Language.PYTHON)
    assert (request.timeout, request.memory_mb, request.stdin) == (2.0, 64, "hi")
    assert (request.env, request.args) == ({"A": "1"}, ("x",))
    assert request.limits.cpu_seconds == 1.0
    assert request.limits.processes == 64
    assert result.notes == ()


def test_a_sandbox_is_made_once_for_each_policy_and_backend(boxes, sandboxes):
    for _ in range(2):
        run(sandboxes, "%%sandbox --fresh\nx")
        run(sandboxes, "%%sandbox --fresh --policy strict --backend process\nx")
        run(sandboxes, "%%sandbox --fresh --allow-net example.org:8443 --mount data:/data\nx")
    assert [(box.policy, box.backend_name) for box in boxes] == [
        (SandboxPolicy.preset("standard"), "auto"),
        (SandboxPolicy.preset("strict"), "process"),
        (SandboxPolicy.preset("standard").allow_domain("example.org", 8443).mount("data", "/data"), "auto"),
    ]


def test_cells_share_a_session_and_a_name_is_another(boxes, sandboxes):
    run(sandboxes, "x = 1")
    run(sandboxes, "x + 1")
    run(sandboxes, "%%sandbox --session other --timeout 3s --memory 128M --checkpoints 0\nx")
    run(sandboxes, "%%sandbox --session other\nx")
    first, other = boxes[0].sessions
    assert (first.wanted["name"], len(first.codes), first.numbers) == (None, 2, [7, 7])
    assert (other.wanted["name"], other.wanted["memory_mb"], other.wanted["checkpoints"]) == ("other", 128, 0)
    assert [timeout for _, timeout in other.codes] == [3.0, 30.0]
    assert boxes[0].runs == []


def test_a_session_counts_lines_as_the_cell_does_and_begins_with_the_notebooks_defaults(boxes, sandboxes):
    for text in ("%%sandbox\nx = 1", "%%sandbox\n%%time\nx", "x"):
        run(sandboxes, text, defaults=CellOptions(memory_mb=256, processes=9))
    (session,) = boxes[0].sessions
    assert [code for code, _ in session.codes] == ["#\nx = 1", "\n%%time\nx", "x"]
    assert (session.wanted["memory_mb"], session.wanted["limits"].processes) == (256, 9)


@pytest.mark.parametrize("text", ["%%sandbox --fresh\nx", "%%sandbox rust\nx", "%%sandbox c\nx"])
def test_fresh_cells_and_compiled_languages_never_touch_a_session(boxes, text):
    result, _ = run(NotebookSandboxes(FakeBox), text)
    assert boxes[0].sessions == []
    assert result.notes == ()


@pytest.mark.parametrize("line", ["--memory 4G", "--disk 64M", "--policy strict", "--mount data:/data"])
def test_a_cell_that_asks_for_more_than_its_session_has_gets_one_that_ends_with_it(boxes, sandboxes, line):
    run(sandboxes, "x = 1")
    result, output = run(sandboxes, f"%%sandbox {line}\nshow", on_input=lambda prompt, password: "answer")
    (note,) = result.notes
    assert note.startswith(f"ran in a fresh sandbox: the session was not started with this {line.split()[0]}")
    assert output == [{"text/plain": "live"}]
    kept, ended = (session for box in boxes for session in box.sessions)
    assert (kept.alive, ended.alive, ended.wanted["checkpoints"]) == (True, False, 1)
    assert ended.wanted["memory_mb"] == (4096 if "--memory" in line else 2048)
    assert [code for code, _ in ended.codes] == ["#\nshow"]
    run(sandboxes, "x")
    assert len(kept.codes) == 2
    assert all(box.runs == [] for box in boxes)


def test_the_session_of_one_cell_ends_when_the_cell_is_interrupted_or_breaks(boxes, sandboxes, monkeypatch):
    cancel = asyncio.Event()
    cancel.set()
    result, _ = run(sandboxes, "%%sandbox --disk 64M\nwait", cancel=cancel)
    assert result.status is Status.INTERRUPTED

    async def broken(*args, **options):
        raise RuntimeError("broken")

    monkeypatch.setattr(FakeSession, "perform", broken)
    with pytest.raises(RuntimeError, match="broken"):
        run(sandboxes, "%%sandbox --disk 64M\nx")
    assert [session.alive for session in boxes[0].sessions] == [False, False]


@pytest.mark.parametrize(
    "line", ["--mount data:/data --memory 40M", "bash --policy strict", "--mount a:/a --backend dask"]
)
def test_where_no_session_can_be_the_cell_is_a_program(boxes, line):
    run(NotebookSandboxes(FakeBox), f"%%sandbox {line}\nx")
    assert sum(len(box.runs) for box in boxes) == 1
    assert sum(len(box.sessions) for box in boxes) == 0


def test_a_module_takes_no_variables(sandboxes):
    with pytest.raises(InvalidRequest, match="wasm cells take no variables"):
        run(sandboxes, "%%sandbox wasm -o x\n(module)")


@pytest.mark.parametrize("line", ["--env A=1", "--arg x"])
def test_a_cell_that_needs_a_process_of_its_own_is_a_program_and_says_why(boxes, sandboxes, line):
    for _ in range(2):  # the same before and after the session has begun
        result, _ = run(sandboxes, f"%%sandbox {line}\nx")
        (note,) = result.notes
        assert note.startswith("ran in a fresh sandbox: ")
        assert line.split()[0] in note
        run(sandboxes, "x = 1")
    assert sum(len(box.sessions) for box in boxes) == 1


def test_time_memory_cpu_and_output_are_a_cells_own_and_its_variables_stay(boxes, sandboxes):
    # Before and after the session has begun; the last asks for what the session has.
    for line in ("--memory 64M --cpu 2s", "--output 10M --timeout 3s", "--memory 512M"):
        result, _ = run(sandboxes, f"%%sandbox {line}\nx")
        assert result.notes == ()
    run(sandboxes, "x")
    (session,) = boxes[0].sessions
    assert "memory_mb" not in session.wanted
    assert session.limits == [
        {"memory_mb": 64, "cpu_seconds": 2.0}, {"output_bytes": 10 << 20}, {"memory_mb": 512}, {}
    ]  # fmt: skip


def test_a_new_default_memory_holds_in_a_running_session_unless_a_cell_had_raised_it(boxes, sandboxes):
    run(sandboxes, "x")
    for raised_mb in (0, 600):
        boxes[0].sessions[0].raised_mb = raised_mb
        result, _ = run(sandboxes, "x", defaults=CellOptions(memory_mb=64))
        assert result.notes == ()
    run(sandboxes, "%%sandbox --memory 128M\nx", defaults=CellOptions(memory_mb=64))
    assert boxes[0].sessions[0].limits == [{}, {"memory_mb": 64}, {"memory_mb": 600}, {"memory_mb": 128}]


def test_new_defaults_that_do_not_reach_a_running_session_are_told_with_the_way_out(boxes, sandboxes):
    run(sandboxes, "x")
    result, _ = run(sandboxes, "x", defaults=CellOptions(processes=5))
    assert result.notes == (
        "ran in a fresh sandbox: the session was not started with this --processes; %sandbox restart python begins one that has it",
    )
    sandboxes.sessions.end(sandboxes.sessions.find(CellOptions()))
    run(sandboxes, "x", defaults=CellOptions(processes=5))
    assert boxes[0].sessions[1].wanted["limits"].processes == 5


def test_a_session_that_was_made_ready_is_used_or_gives_way_to_new_defaults(boxes, sandboxes):
    other = NotebookSandboxes(FakeBox)
    other.sessions.prepare(CellOptions())
    run(other, "x")
    assert [len(session.codes) for session in boxes.pop().sessions] == [1]
    sandboxes.sessions.prepare(CellOptions())
    result, _ = run(sandboxes, "x", defaults=CellOptions(memory_mb=64))
    assert result.notes == ()
    ready, used = boxes[0].sessions
    assert ready.closed
    assert (used.wanted["memory_mb"], len(used.codes)) == (64, 1)


def test_a_language_without_sessions_runs_fresh_unless_one_was_asked_for(boxes, monkeypatch):
    monkeypatch.setattr(notebook_sessions, "has_sessions", lambda language, _: language is Language.PYTHON)
    result, _ = run(NotebookSandboxes(FakeBox), "%%sandbox bash\necho")
    assert result.notes == ()
    with pytest.raises(InvalidRequest, match="no sessions for command"):
        run(NotebookSandboxes(FakeBox), "%%sandbox bash --session s\necho")


def test_a_dead_session_is_replaced(boxes, sandboxes):
    run(sandboxes, "x")
    boxes[0].sessions[0].alive = False
    run(sandboxes, "x")
    assert len(boxes[0].sessions) == 2


def test_input_comes_from_the_stdin_option_line_by_line(boxes, sandboxes):
    _, output = run(sandboxes, "%%sandbox --stdin first\nask")
    assert ("stdout", "first") in output


def test_displays_are_shown_while_the_cell_runs(boxes):
    assert run(NotebookSandboxes(FakeBox), "show")[1] == [{"text/plain": "live"}]


def test_a_cancel_interrupts_the_session(boxes):
    async def go():
        sandboxes, cancel = NotebookSandboxes(FakeBox), asyncio.Event()
        io = CellIO(on_output=lambda *_: None, cancel=cancel)
        task = asyncio.ensure_future(sandboxes.run(parse_cell("wait", CellOptions()), io))
        cancel.set()
        return await asyncio.wait_for(task, 30)

    assert asyncio.run(go())[0].status is Status.INTERRUPTED


def test_another_python_or_a_type_checker_is_another_choice_of_programs(boxes, sandboxes):
    run(sandboxes, "%%sandbox --fresh --python 3.12\n1")
    run(sandboxes, "%%sandbox ts --check\n1")
    assert [(box.config.python_path, box.config.check_types) for box in boxes] == [("3.12", False), ("python3", True)]


def test_closing_ends_every_session_and_sandbox(boxes, sandboxes):
    run(sandboxes, "x")
    run(sandboxes, "%%sandbox --fresh --policy strict\nx")
    sandboxes.close()
    assert boxes[0].sessions[0].closed
    assert all(box.destroyed for box in boxes)
    sandboxes.close()


def test_line_commands_mean_the_session_that_was_used_last(boxes, sandboxes):
    assert sandboxes.sessions.find(CellOptions()) is None
    run(sandboxes, "x")
    run(sandboxes, "%%sandbox --session other\nx")
    first, other = boxes[0].sessions
    assert sandboxes.sessions.find(CellOptions()) is other
    assert sandboxes.sessions.find(CellOptions(language=Language.PYTHON)) is first
    assert sandboxes.sessions.find(CellOptions(session="nobody")) is None


def test_a_loaded_session_takes_the_place_of_the_old_one(boxes, sandboxes):
    run(sandboxes, "x")
    loaded = FakeSession(Language.PYTHON)
    sandboxes.sessions.adopt(CellOptions(), loaded)
    assert boxes[0].sessions[0].closed
    run(sandboxes, "y")
    assert [code for code, _ in loaded.codes] == ["y"]


def test_a_missing_policy_file_is_named_before_anything_runs(boxes):
    with pytest.raises(PolicyViolation, match=r"nowhere\.toml"):
        run(NotebookSandboxes(FakeBox), "%%sandbox --policy nowhere.toml\nx")
    assert boxes == []


def test_a_line_command_with_a_name_finds_sessions_of_every_language() -> None:
    with Sandbox() as box:
        sessions = NotebookSessions(lambda _: box)
        defaults = CellOptions()
        shell = sessions.choose(parse_cell("%%sandbox bash --session s\nx=1", defaults)).session
        python = sessions.choose(parse_cell("x = 1", defaults)).session
        assert shell is not None and shell.run("for n in a b; do echo $n; done").stdout == "a\nb\n"
        named = parse_line("undo --session s").options
        assert (sessions.find(named), sessions.find(parse_line("undo").options)) == (shell, python)
        assert sessions.find(parse_line("undo python --session s").options) is None
        second = sessions.choose(parse_cell("%%sandbox python --session s\nx = 1", defaults)).session
        assert sessions.find(named) is second
        sessions.choose(parse_cell("x", defaults))
        assert sessions.find(parse_line("undo bash --session s").options) is shell
        sessions.close()


@pytest.mark.timeout(600)
def test_a_notebook_on_wasm_keeps_javascript_and_runs_the_others_fresh() -> None:
    with Sandbox(backend="wasm") as box:
        sessions = NotebookSessions(lambda _: box)
        defaults = CellOptions(backend="wasm")
        kept = sessions.choose(parse_cell("%%sandbox js\nlet x = 1", defaults)).session
        assert isinstance(kept, WasmSession)
        assert sessions.choose(parse_cell("%%sandbox js\nx", defaults)).session is kept
        fresh = sessions.choose(parse_cell("%%sandbox python\nprint(1)", defaults))
        assert (fresh.session, fresh.must_open) == (None, False)
        sessions.close()


@pytest.mark.timeout(600)
def test_a_loaded_session_takes_cells_of_its_own_language_and_no_others(tmp_path: Path, monkeypatch) -> None:
    """A JavaScript session that is loaded runs no Python cells, whatever the notebook's language is."""
    monkeypatch.chdir(tmp_path)
    with Sandbox(backend="wasm") as box, box.session("javascript") as saved:
        saved.run("let x = 41")
        saved.save("work")
    sandboxes, defaults = NotebookSandboxes(), CellOptions()
    try:
        (told,) = run_command(parse_line("load work"), LineCommands(NotebookState(sandboxes=sandboxes), defaults))
        assert told.data["text/plain"] == "Going on with work: javascript cells run in it."
        loaded = sandboxes.sessions.choose(parse_cell("%%sandbox js\nx + 1", defaults)).session
        assert isinstance(loaded, WasmSession)
        assert loaded.run("x + 1").displays[-1].data["text/plain"] == "42"
        python = sandboxes.sessions.choose(parse_cell("x = 1", defaults)).session
        assert python is not None and str(python.language) == "python"
        assert loaded.alive
        run_command(parse_line("save again js"), LineCommands(NotebookState(sandboxes=sandboxes), defaults))
        assert (tmp_path / "again").is_file()
    finally:
        sandboxes.close()


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    made = Notebook()
    yield made
    made.state.close()


def test_a_fork_has_the_state_and_both_go_on_by_themselves(notebook: Notebook) -> None:
    notebook.run("x = [1]\nopen('f', 'w').write('both')\nlines = (n for n in x)")
    said = notebook.run("%sandbox fork other")
    assert "%%sandbox --session other" in said and "lost: lines (generator" in said
    assert notebook.run("%%sandbox --session other\nx.append(2); print(x, open('f').read())") == "[1, 2] both\n"
    assert notebook.run("x.append(3); print(x)") == "[1, 3]\n"
    notebook.run("%sandbox undo")
    assert notebook.run("print(x)") == "[1]\n", "line commands mean the session of the last cell"
    assert notebook.run("%%sandbox --session other\nprint(x)") == "[1, 2]\n"


def test_a_fork_has_the_limits_of_its_session_and_no_cell_of_it_runs_fresh(notebook: Notebook) -> None:
    notebook.run("%sandbox --disk 32M\nx = 1")
    notebook.run("%sandbox fork other")
    assert notebook.run("%%sandbox --session other\nprint(x)") == "1\n"


def test_without_a_session_there_is_nothing_to_fork(notebook: Notebook) -> None:
    assert "there is no running" in notebook.run("%sandbox fork other")
    assert "needs a name" in notebook.run("%sandbox fork")


@pytest.mark.parametrize("name", [option.name for option in OPTIONS if option.at_start is AtStart.FOLLOWS])
def test_a_running_session_is_given_each_option_that_the_table_says_it_follows(name: str) -> None:
    value = {"--memory": "2G", "--env": "A=1", "--allow-net": "example.org", "--mount": "/tmp:/data"}[name]
    changes = rights_between(CellOptions(), parse_options([f"{name}={value}"]), Language.PYTHON)
    assert [change.gains for change in changes] == [True]
