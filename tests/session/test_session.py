"""The contract of a session, as others use it."""

import asyncio
import os
import threading
from collections.abc import Callable

import pytest

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, PolicyViolation, SessionError
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecResult, Language, Status
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.session.cell.run_cell import Cell
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session

Open = Callable[..., Session]
Value = Callable[[Session, str], str]


def test_a_closed_session_says_so_and_closing_twice_is_fine(open_one: Open) -> None:
    session = open_one(name="mine")
    assert session.alive
    session.close()
    session.close()
    assert not session.alive
    for use in (lambda: session.run("1"), session.undo, session.checkpoints, session.restart):
        with pytest.raises(SessionError, match="session 'mine' is closed; open a new one"):
            use()


def test_it_is_what_it_was_asked_to_be(open_one: Open) -> None:
    with open_one("py", name="n", memory_mb=300) as session:
        assert (session.name, session.language, session.memory_mb) == ("n", Language.PYTHON, 300)
        result = session.run("1")
        assert (result.memory_limit_mb, result.timeout, result.language) == (300, 30.0, "python")
        assert (result.backend, result.isolation) == ("process", "process+sandbox")
    assert not session.alive


@pytest.mark.slow
def test_output_streams_as_it_comes_and_displays_between(session: Session) -> None:
    seen: list[str] = []
    result = session.run(
        "import sys\nprint('a')\ndisplay('b')\nprint('c')\nprint('d', file=sys.stderr)\ndisplay('e')\n6",
        on_output=lambda stream, text: seen.append(f"{stream}:{text}") if text.strip() else None,
        on_display=lambda display: seen.append(str(display.data["text/plain"])),
    )
    assert [item.strip() for item in seen] == ["stdout:a", "'b'", "stdout:c", "stderr:d", "'e'", "6"]
    assert (result.stdout, result.stderr) == ("a\nc\n", "d\n")


def test_updates_and_clearings_are_told_apart(session: Session) -> None:
    seen: list[SessionDisplay] = []
    code = "from IPython.display import clear_output\nh = display(1, display_id='it'); display(2); h.update(3)"
    result = session.run(code, on_display=seen.append)
    assert [(d.kind, d.display_id) for d in seen] == [("display", "it"), ("display", None), ("update", "it")]
    assert [d.data["text/plain"] for d in result.displays] == ["3", "2"]
    result = session.run("display(1); clear_output(wait=True); display(2)", on_display=seen.append)
    assert [d.kind for d in seen[3:]] == ["display", "clear", "display"]
    assert seen[4].metadata == {"wait": True}
    assert [d.data["text/plain"] for d in result.displays] == ["2"]


def test_input_asks_with_the_prompt_and_says_whether_it_is_a_secret(session: Session) -> None:
    asked: list[tuple[str, bool]] = []

    def answer(prompt: str, password: bool) -> str:
        asked.append((prompt, password))
        return "yes"

    result = session.run("import getpass\ninput('sure? '), getpass.getpass('pin ')", on_input=answer)
    assert result.displays[-1].data["text/plain"] == "('yes', 'yes')"
    assert asked == [("sure? ", False), ("pin ", True)]


def test_input_with_nobody_to_ask_is_the_end_of_file(session: Session) -> None:
    result = session.run("input()")
    assert result.error is not None
    assert result.error.ename == "EOFError"
    assert "session_worker" not in result.stderr


def test_async_runs_call_back_on_the_loop_and_may_ask_asynchronously(session: Session) -> None:
    async def main() -> tuple[ExecResult, list[str], set[int]]:
        seen: list[str] = []
        threads: set[int] = set()

        def note(text: str) -> None:
            threads.add(threading.get_ident())
            seen.append(text.strip())

        async def ask(prompt: str, password: bool) -> str:
            note(prompt)
            await asyncio.sleep(0)
            return "async"

        result = await session.arun(
            "print('out\\n', end=''); display(1); input('in ')",
            on_output=lambda _, text: note(text),
            on_display=lambda display: note(str(display.data["text/plain"])),
            on_input=ask,
        )
        return result, seen, threads

    result, seen, threads = asyncio.run(main())
    assert result.displays[-1].data["text/plain"] == "'async'"
    assert seen == ["out", "1", "in", "'async'"]
    assert threads == {threading.get_ident()}


def test_a_listener_that_raises_on_the_loop_interrupts_the_cell(session: Session) -> None:
    def fail(stream: str, text: str) -> None:
        raise RuntimeError("listener")

    async def main() -> None:
        with pytest.raises(RuntimeError, match="listener"):
            await session.arun("print('go')\nimport time; time.sleep(1000)", timeout=60, on_output=fail)

    asyncio.run(main())
    assert session.run("1").ok


@pytest.mark.attack("O16", "session")
def test_many_callers_at_once_each_get_their_own_output(session: Session) -> None:
    async def main() -> list[ExecResult | BaseException]:
        tasks = [asyncio.ensure_future(session.arun(f"print('token {n}')")) for n in range(60)]
        await asyncio.sleep(0)
        for task in tasks[1::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    for number, result in enumerate(asyncio.run(main())):
        if isinstance(result, ExecResult):
            assert result.stdout == f"token {number}\n"
        else:
            assert isinstance(result, asyncio.CancelledError)
            assert number % 2


@pytest.mark.attack("O16", "session")
def test_threads_wait_for_their_turn(session: Session) -> None:
    session.run("n = 0")
    results: list[str] = []

    def work(number: int) -> None:
        results.append(f"{number} {session.run(f'n += 1; print({number}, n)').stdout}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line.split()[0] == line.split()[1] for line in results) == [True] * 8
    assert sorted(int(line.split()[2]) for line in results) == list(range(1, 9))


def test_a_cell_cannot_be_run_from_within_a_cells_listener(session: Session) -> None:
    with pytest.raises(SessionError, match="is already running a cell on this thread"):
        session.run("print('x')", on_output=lambda *_: session.run("1") and None)
    assert session.run("1").ok


def test_a_listener_that_fails_on_the_last_words_of_a_cell_is_told_as_it_failed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(stream: str, text: str) -> None:
        raise ZeroDivisionError("the listener's own")

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Cell, "_read_output", lambda self, fd: None)
        session.run("print('x')", on_output=fail)
    assert session.run("1").ok


def test_questions_during_a_cell_are_answered_with_nothing_at_once(session: Session) -> None:
    seen: list[object] = []
    session.run(
        "print('go\\n', end='')",
        on_output=lambda *_: seen.append((session.complete("imp", 3)["matches"], session.inspect("len", 1))),
    )
    assert seen == [([], {})]


@pytest.mark.slow
def test_completion_knows_live_objects_and_types(session: Session) -> None:
    session.run("class Thing:\n    def method_of_thing(self): 'does it'\nthing = Thing()")
    found = session.complete("thing.meth", 10)
    assert [str(match).lstrip(".") for match in found["matches"]] == ["method_of_thing"]  # type: ignore[attr-defined]
    assert found["cursor_end"] == 10
    types = found["metadata"]["_jupyter_types_experimental"]  # type: ignore[index]
    assert types[0]["text"].endswith("method_of_thing")
    assert session.complete("x", 99)["cursor_start"] in (0, 1)


def test_names_of_live_objects_are_there_before_jedi_is_and_the_next_cell_does_not_wait_for_it(
    session: Session,
) -> None:
    session.run(
        "import jedi, time\nclass Thing: alpha = 1\nthing = Thing()\n"
        "def never(*given, **named):\n    while True: time.sleep(0.01)\njedi.Interpreter = never"
    )
    for _ in range(2):
        assert session.complete("thing.al", 8)["matches"] == [".alpha"]
        assert session.complete("thi", 3)["matches"] == ["thing"]
        assert session.run("thing.alpha").ok


def test_inspection_and_completeness(session: Session) -> None:
    session.run("def f(a: int) -> str:\n    'the docs'")
    assert "the docs" in str(session.inspect("f(1)", 1)["text/plain"])
    assert session.inspect("nothing_of_that_name", 3) == {}
    assert session.is_complete("for i in x:") == {"status": "incomplete", "indent": "    "}
    assert session.is_complete("1 + 1")["status"] == "complete"
    assert session.is_complete("a b c")["status"] == "invalid"


def test_a_question_that_hangs_is_given_up_and_costs_no_state(
    session: Session, value: Value, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.session.session.ASK_S", 1.0)
    session.run(
        "import signal\nsignal.signal = None\nclass Trap:\n    def __dir__(self):\n        while True: pass\nt = Trap()"
    )
    assert session.complete("t.x", 3)["matches"] == []
    assert value(session, "type(t).__name__") == "'Trap'"


def test_checkpoints_name_cell_time_and_memory_and_bound_undo(open_one: Open, value: Value) -> None:
    session = open_one(checkpoints=2)
    for number in range(5):
        session.run(f"x = {number}")
    found = session.checkpoints()
    assert [item.cell for item in found] == [4, 3]
    assert all(item.memory_bytes is not None and item.time > 0 for item in found)
    with pytest.raises(SessionError, match="undo of 3 cells is not possible here; possible are: 1, 2"):
        session.undo(3)
    session.undo(2)
    assert value(session, "x") == "2"
    with pytest.raises(InvalidRequest, match="at least 1"):
        session.undo(0)


def test_without_checkpoints_a_death_loses_the_state_and_says_why(open_one: Open) -> None:
    session = open_one(checkpoints=0)
    session.run("x = 1")
    result = session.run("import os; os._exit(1)")
    assert (result.status, result.rolled_back) == (Status.KILLED, False)
    assert "the session's state is lost: checkpoints are switched off; a new session was started" in result.notes
    assert session.run("x").error.ename == "NameError"  # type: ignore[union-attr]
    with pytest.raises(SessionError, match="nothing can be undone"):
        session.undo()


def start_once(thread: threading.Thread) -> None:
    if thread.ident is None:
        thread.start()


def test_restart_begins_with_nothing_and_ends_a_running_cell(session: Session, value: Value) -> None:
    session.run("x = 1; open('f', 'w').close()")
    thread = threading.Thread(target=session.restart)
    result = session.run("print('go')\nwhile True: pass", timeout=60, on_output=lambda *_: start_once(thread))
    assert (result.status, result.rolled_back) == (Status.KILLED, False)
    thread.join()
    assert value(session, "import os; ('x' in globals(), os.listdir('.'))") == "(False, [])"


def test_closing_from_another_thread_ends_a_running_cell(session: Session) -> None:
    result = session.run(
        "print('go\\n', end='')\nwhile True: pass",
        timeout=60,
        on_output=lambda *_: threading.Thread(target=session.close).start(),
    )
    assert result.status is Status.KILLED
    assert not session.alive


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "rust"}, "there are no sessions for rust"),
        ({"language": "klingon"}, "unsupported language 'klingon'"),
        ({"memory_mb": 10}, "needs at least 64 MB"),
        ({"memory_mb": "lots"}, "the memory limit in MB must be a whole number"),
        ({"checkpoints": -1}, "checkpoints must be a whole number between 0 and 100"),
        ({"checkpoints": True}, "checkpoints must be a whole number between 0 and 100"),
        ({"name": ""}, "a session's name must be a short text"),
    ],
)
def test_bad_options_are_typed_errors_before_anything_starts(
    backend: ProcessBackend, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        open_session(backend, **options)  # type: ignore[arg-type]


def test_an_interpreter_that_is_not_there_is_named(backend: ProcessBackend) -> None:
    with pytest.raises(BackendUnavailable, match="/no/such/python"):
        open_session(backend, python="/no/such/python")


def test_bad_code_is_a_typed_error_and_the_session_goes_on(session: Session) -> None:
    for code in ("", "   ", "x\0y", "\ud800", 5):
        with pytest.raises(InvalidRequest):
            session.run(code)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="timeout"):
        session.run("1", timeout=-1)
    assert session.run("1").ok


def test_the_notebooks_number_is_the_one_in_tracebacks(session: Session) -> None:
    assert "Cell In[17], line 1" in session.run("1/0", number=17).stderr
    assert session.run("In[17]").displays[-1].data["text/plain"] == "'1/0'"


@pytest.mark.slow
def test_a_large_cell_and_a_large_answer_go_over_the_channel(session: Session) -> None:
    text = "é" * 3_000_000
    result = session.run(f"s = '{text}'\nfrom IPython.display import HTML; HTML(s)", timeout=90)
    assert result.displays[-1].data["text/html"] == text


def test_a_disk_that_was_full_before_is_not_blamed_on_a_later_cell(open_one: Open) -> None:
    session = open_one(limits=Limits(disk_mb=8))
    assert session.run("f = open('f', 'wb', 0)\nwhile True: f.write(bytes(1 << 20))").limit == "disk"
    assert session.run("1").limit is None
    assert session.run("import os; os._exit(1)").limit is None
    assert session.run("open('g', 'wb', 0).write(bytes(1 << 20))").limit == "disk"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's host sees which files a sealed checkpoint has open")
def test_a_full_work_folder_costs_no_other_state(open_one: Open) -> None:
    session = open_one(limits=Limits(disk_mb=8))
    fill = "try:\n    while True: {0}.write(bytes(1 << 16))\nexcept OSError: pass"
    assert session.run("held = open('held', 'wb', 0); held.write(bytes(3 << 20))").ok
    session.checkpoint("named")
    assert session.run(f"f = open('f', 'wb', 0)\n{fill.format('f')}").limit == "disk"
    assert all(node.alive for node in session.history()), "no removed file takes room"
    again = f"import os; os.unlink('held'); os.unlink('f'); held.close(); f.close(); g = open('g', 'wb', 0)\n{fill.format('g')}"
    assert session.run(again).ok
    assert [node.alive for node in session.history()] == [True, True, False, True], "f takes room in one state"
    assert session.run("open('h', 'wb', 0).write(bytes(1 << 20))").ok


def test_a_working_folder_deeper_than_any_path_costs_no_state(session: Session, value: Value) -> None:
    assert session.run("import os\nfor _ in range(9000): os.mkdir('a'); os.chdir('a')\nx = 1", timeout=60).ok
    assert session.run("x = 2; os._exit(1)").rolled_back
    assert value(session, "x") == "1"


def test_a_shell_session_under_a_policy_without_processes_is_refused(backend: ProcessBackend) -> None:
    strict = ProcessBackend(policy=SandboxPolicy.preset("strict"))
    with pytest.raises(PolicyViolation, match="allow_process_spawn"):
        open_session(strict, "command")
