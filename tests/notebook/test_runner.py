"""The runner chooses the sandbox, the session and the limits; here with a facade that only remembers."""

import asyncio
from typing import ClassVar

import pytest

from sandbox_kernel import BackendUnavailable, Display, ExecResult, InvalidRequest, Language, SandboxPolicy, Status
from sandbox_kernel.notebook.cell_options import CellOptions
from sandbox_kernel.notebook.options import parse_cell
from sandbox_kernel.notebook.runner import CellIO, CellRunner


class FakeSession:
    def __init__(self, language, **wanted):
        self.language, self.wanted = language, wanted
        self.codes, self.interrupted, self.closed = [], False, False
        self.alive = True

    async def arun(self, code, *, timeout, on_output=None, on_input=None, on_display=None):
        self.codes.append((code, timeout))
        if "ask" in code:
            on_output("stdout", await on_input("? ", False))
        if "show" in code:
            on_display(Display(data={"text/plain": "live"}))
        if "wait" in code:
            while not self.interrupted:
                await asyncio.sleep(0)
            return ExecResult(status=Status.INTERRUPTED)
        return ExecResult(displays=(Display(data={"text/plain": "late"}),))

    def interrupt(self):
        self.interrupted = True

    def close(self):
        self.closed = True


class FakeBox:
    made: ClassVar[list] = []

    def __init__(self, policy, backend):
        self.policy, self.backend_name = policy, backend
        self.runs, self.sessions, self.destroyed = [], [], False
        FakeBox.made.append(self)

    async def arun(self, code, language, **options):
        self.runs.append((code, language, options))
        return ExecResult(language=str(language))

    def session(self, language, **wanted):
        if language is Language.JAVASCRIPT:
            raise BackendUnavailable("no sessions for javascript here")
        self.sessions.append(FakeSession(language, **wanted))
        return self.sessions[-1]

    def destroy(self):
        self.destroyed = True


class FreshOnly(FakeBox):
    session = None


@pytest.fixture
def boxes():
    FakeBox.made = []
    return FakeBox.made


def run(runner, text, **extra):
    async def go():
        output = []
        cancel = extra.pop("cancel", None) or asyncio.Event()
        io = CellIO(
            on_output=lambda name, shown: output.append((name, shown)), cancel=cancel,
            on_display=lambda display: output.append(display.data), on_input=extra.pop("on_input", None),
        )  # fmt: skip
        outcome = await runner.run(parse_cell(text, CellOptions()), io, **extra)
        return outcome, output

    return asyncio.run(go())


def test_without_sessions_every_cell_is_fresh_and_nothing_is_said(boxes):
    runner = CellRunner(FreshOnly)
    outcome, _ = run(runner, "%%sandbox --timeout 2s --memory 64M --env A=1 --arg x --stdin hi --cpu 1s\nprint(1)")
    ((code, language, options),) = boxes[0].runs
    assert (code, language) == ("\nprint(1)", Language.PYTHON)
    assert (options["timeout"], options["memory_mb"], options["stdin"]) == (2.0, 64, "hi")
    assert (options["env"], options["args"]) == ({"A": "1"}, ("x",))
    assert options["limits"].cpu_seconds == 1.0
    assert options["limits"].processes == 64
    assert outcome.result.notes == ()


def test_a_sandbox_is_made_once_for_each_policy_and_backend(boxes):
    runner = CellRunner(FreshOnly)
    for _ in range(2):
        run(runner, "x")
        run(runner, "%%sandbox --policy strict --backend process\nx")
        run(runner, "%%sandbox --allow-net example.org:8443 --mount data:/data\nx")
    assert [(box.policy, box.backend_name) for box in boxes] == [
        (SandboxPolicy.preset("standard"), "auto"),
        (SandboxPolicy.preset("strict"), "process"),
        (SandboxPolicy.preset("standard").allow_domain("example.org", 8443).mount("data", "/data"), "auto"),
    ]


def test_cells_of_a_language_share_a_session_and_a_name_is_another(boxes):
    runner = CellRunner(FakeBox)
    run(runner, "x = 1")
    run(runner, "x + 1")
    run(runner, "%%sandbox --session other --timeout 3s\nx")
    run(runner, "%%sandbox bash\necho")
    assert [(s.language, s.wanted, len(s.codes)) for s in boxes[0].sessions] == [
        (Language.PYTHON, {}, 2),
        (Language.PYTHON, {"name": "other"}, 1),
        (Language.COMMAND, {}, 1),
    ]
    assert boxes[0].runs == []


@pytest.mark.parametrize("text", ["%%sandbox --fresh\nx", "%%sandbox rust\nx", "%%sandbox c\nx"])
def test_fresh_cells_and_compiled_languages_never_touch_a_session(boxes, text):
    outcome, _ = run(CellRunner(FakeBox), text)
    assert boxes[0].sessions == []
    assert outcome.result.notes == ()


@pytest.mark.parametrize("line", ["--memory 64M", "--env A=1", "--arg x", "--policy strict", "--mount data:/data"])
def test_a_cell_that_a_running_session_cannot_serve_runs_fresh_and_says_so(boxes, line):
    runner = CellRunner(FakeBox)
    run(runner, "x = 1")
    outcome, _ = run(runner, f"%%sandbox {line}\nx")
    assert outcome.result.notes[0].startswith("ran in a fresh sandbox: ")
    assert len(boxes[-1].runs) == 1


def test_a_language_whose_session_is_not_there_runs_fresh_and_says_so(boxes):
    outcome, _ = run(CellRunner(FakeBox), "%%sandbox js\n1")
    assert outcome.result.notes == ("ran in a fresh sandbox: no sessions for javascript here",)


def test_a_dead_session_is_replaced(boxes):
    runner = CellRunner(FakeBox)
    run(runner, "x")
    boxes[0].sessions[0].alive = False
    run(runner, "x")
    assert len(boxes[0].sessions) == 2


def test_input_comes_from_the_stdin_option_line_by_line(boxes):
    runner = CellRunner(FakeBox)
    _, output = run(runner, "%%sandbox --stdin first\nask")
    assert ("stdout", "first") in output


def test_displays_are_shown_while_the_cell_runs_and_not_again(boxes):
    outcome, output = run(CellRunner(FakeBox), "show")
    assert output == [{"text/plain": "live"}]
    assert outcome.result.displays == ()


def test_a_cancel_interrupts_the_session(boxes):
    async def go():
        runner, cancel = CellRunner(FakeBox), asyncio.Event()
        io = CellIO(on_output=lambda *_: None, cancel=cancel)
        task = asyncio.ensure_future(runner.run(parse_cell("wait", CellOptions()), io))
        await asyncio.sleep(0)
        cancel.set()
        return await asyncio.wait_for(task, 30)

    assert asyncio.run(go()).result.status is Status.INTERRUPTED


def test_options_that_the_facade_does_not_know_are_refused_by_name(boxes):
    class Plain(FreshOnly):
        async def arun(self, code, language, *, timeout, memory_mb, stdin, env, args, limits, on_output, cancel):
            raise AssertionError("must not run")

    with pytest.raises(InvalidRequest, match="--check is not available for typescript"):
        run(CellRunner(Plain), "%%sandbox ts --check\n1")
    with pytest.raises(InvalidRequest, match="--python is not available"):
        run(CellRunner(Plain), "%%sandbox --fresh --python 3.12\n1")


def test_closing_ends_every_session_and_sandbox(boxes):
    runner = CellRunner(FakeBox)
    run(runner, "x")
    run(runner, "%%sandbox --fresh --policy strict\nx")
    runner.close()
    assert boxes[0].sessions[0].closed
    assert all(box.destroyed for box in boxes)
    runner.close()


def test_line_commands_mean_the_session_that_was_used_last(boxes):
    runner = CellRunner(FakeBox)
    assert runner.session(CellOptions()) is None
    run(runner, "x")
    run(runner, "%%sandbox bash\necho")
    assert runner.session(CellOptions()).language is Language.COMMAND
    assert runner.session(CellOptions(language=Language.PYTHON)).language is Language.PYTHON
    assert runner.session(CellOptions(session="nobody")) is None


def test_a_missing_policy_file_is_named_before_anything_runs(boxes):
    from sandbox_kernel import PolicyViolation

    with pytest.raises(PolicyViolation, match=r"nowhere\.toml"):
        run(CellRunner(FakeBox), "%%sandbox --policy nowhere.toml\nx")
    assert boxes == []
