"""Python sessions in the image of the light CPython: no preparation of minutes; forked, saved, loaded, rolled back."""

import json
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import ExecRequest, Language, Sandbox, SandboxPolicy
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SessionError
from sandbox_kernel.languages.guest_catalogue import WasmLanguage
from sandbox_kernel.model import ExecResult, Status
from sandbox_kernel.session.open_wasm import WasmSession, load_wasm_session, open_wasm_session
from sandbox_kernel.session.saved_file import ALIGNMENT, MAGIC
from sandbox_kernel.session.take_state import take_state
from tests.backends.wasm.test_wheels import made

pytestmark = pytest.mark.timeout(600)


class LightBackend(WasmBackend):
    """A backend for which the large Python was never prepared."""

    def is_prepared(self, guest: WasmLanguage) -> bool:
        return guest.entry != "turn" and super().is_prepared(guest)


def value(result: ExecResult) -> str:
    assert result.status is Status.OK, result.stderr
    return str(result.displays[-1].data["text/plain"])


@pytest.fixture(scope="module")
def backend() -> WasmBackend:
    return LightBackend()


@pytest.fixture
def session(backend: WasmBackend) -> Iterator[WasmSession]:
    with open_wasm_session(backend, "python") as opened:
        yield opened


def test_state_values_errors_and_exits_are_those_of_python(session: WasmSession) -> None:
    assert session.run("import sys; x = 41").displays == ()
    assert value(session.run("x + 1, sys.version.split()[0]")) == "(42, '3.12.0')"
    failed = session.run("1 / 0")
    assert (failed.status, failed.error.ename if failed.error else "") == (Status.FAILED, "ZeroDivisionError")
    assert 'File "cell 3", line 1' in failed.stderr and "_sandbox" not in failed.stderr
    ended = session.run("print('out'); raise SystemExit(3)")
    assert (ended.status, ended.exit_code, ended.stdout) == (Status.FAILED, 3, "out\n")
    assert value(session.run("x")) == "41"


def test_undo_input_files_questions_and_displays_work(session: WasmSession) -> None:
    session.run("x = 1")
    session.run("x = 2; open('f.txt', 'w').write('made')")
    session.undo()
    assert value(session.run("import os; x, os.listdir('.'), os.listdir('/'), os.getcwd()")) == "(1, [], [], '/box')"
    asked: list[str] = []
    answered = session.run("input('name? ')", on_input=lambda prompt, _hidden=False: asked.append(prompt) or "bob")
    assert (value(answered), asked) == ("'bob'", ["name? "])
    assert session.complete("x.bit", 5)["matches"] == ["x.bit_count", "x.bit_length"]
    assert "import" in session.complete("impo", 4)["matches"]
    assert session.is_complete("for i in x:")["status"] == "incomplete"
    assert "number of items" in str(session.inspect("len", 3))
    shown = session.run("class A:\n def _repr_html_(self): return '<b>a</b>'\ndisplay(A()); A()")
    assert [display.data["text/html"] for display in shown.displays] == ["<b>a</b>"] * 2


@pytest.mark.slow
def test_a_cell_that_is_stopped_is_rolled_back(session: WasmSession) -> None:
    session.run("x = 1")
    for code in ("x = 2\nwhile True: pass", "x = 2\nimport time; time.sleep(60)"):
        stopped = session.run(code, timeout=1)
        assert (stopped.status, stopped.rolled_back) == (Status.TIMEOUT, True)
        assert value(session.run("x")) == "1"
    full = session.run("x = 2; b = bytearray(900 << 20)")
    assert (full.status, full.limit) == (Status.MEMORY_EXCEEDED, "memory")
    session.interrupt()  # between cells: it meets nothing
    assert value(session.run("x")) == "1"


def test_forks_and_saved_sessions_have_all_of_the_memory_and_go_on_apart(
    backend: WasmBackend, session: WasmSession, tmp_path: Path
) -> None:
    session.run("import random; x = [random.random() for _ in range(100_000)]; total = sum(x)")
    session.run("open('f', 'w').write('kept')")
    session.save(tmp_path / "s")
    whole = "(True, 100000, 'kept')"
    with session.fork() as one, one.fork() as two, load_wasm_session(backend, tmp_path / "s") as loaded:
        one.run("x.clear()")
        with loaded.fork() as three:
            for each in (session, two, loaded, three):
                assert value(each.run("sum(x) == total, len(x), open('f').read()")) == whole
        assert value(one.run("len(x)")) == "0"


def test_a_fork_copies_only_what_the_session_has_changed(session: WasmSession) -> None:
    session.run("x = 1")
    with session._supervisor.turn() as worker:
        changed, whole = take_state(worker, for_fork=True), take_state(worker)
    assert (changed.changes, whole.changes) == (True, False)
    assert len(changed.memory) == len(whole.memory)
    held = [os.fstat(state.memory.fileno()).st_blocks for state in (changed, whole)]
    assert held[0] * 3 < held[1]


def test_mounts_are_named_and_keep_their_rights(backend: WasmBackend, tmp_path: Path) -> None:
    for name in ("ro", "rw"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    policy = SandboxPolicy().mount(tmp_path / "ro", "/data/ro").mount(tmp_path / "rw", "/rw", writable=True)
    with open_wasm_session(LightBackend(policy, store=backend.store), "python") as session:
        assert value(session.run("open('/data/ro/f').read(), open('/rw/f').read()")) == "('ro', 'rw')"
        assert session.run("open('/rw/g', 'w').write('new')").status is Status.OK
        assert session.run("open('/data/ro/g', 'w')").error is not None
    assert (tmp_path / "rw" / "g").read_text() == "new"


def test_nothing_of_the_jail_can_be_opened_and_the_letter_box_believes_nothing(session: WasmSession) -> None:
    session.run("x = 1")
    for path in ("/etc/passwd", "/proc/self/environ", "../../etc/passwd", "/root", "/sandbox"):
        assert session.run(f"open({path!r}).read()").error is not None
    session.run("import os\nfor letter in (b'{}\\n', b'[1]\\n', b'\\xff\\n', b'{\"op\": 3}\\n'): os.write(6, letter)")
    assert value(session.run("x")) == "1"


def interrupted(session: WasmSession, code: str) -> ExecResult:
    """Run a cell and interrupt it once it has said that it goes."""
    return session.run(code, timeout=60, on_output=lambda stream, text: session.interrupt() and None)


@pytest.mark.parametrize(
    "endless",
    ["while True: pass", "import time; time.sleep(1000)", "try:\n  while True: pass\nfinally: before = 3"],
)
@pytest.mark.one_case
def test_an_interrupt_ends_the_cell_and_rolls_it_back(session: WasmSession, endless: str) -> None:
    session.run("before = 1")
    result = session.run(
        f"before = 2\nprint('go', flush=True)\n{endless}\nnever = 1",
        timeout=60,
        on_output=lambda *_: session.interrupt() and None,
    )
    assert (result.status, result.rolled_back) == (Status.INTERRUPTED, True), (result.notes, result.stderr)
    assert value(session.run("before, 'never' in globals()")) == "(1, False)"


def test_an_interrupt_ends_a_question_to_the_user(session: WasmSession) -> None:
    def ask(prompt: str, _hidden: bool = False) -> str:
        raise KeyboardInterrupt

    session.run("x = 1")
    result = session.run("x = 2\ninput('name? ')\nx = 3", on_input=ask, timeout=60)
    assert (result.status, result.rolled_back) == (Status.INTERRUPTED, True), result.stderr
    assert value(session.run("x")) == "1"


@pytest.mark.slow
def test_an_interrupt_works_after_a_rollback_in_a_fork_and_in_a_loaded_session(
    backend: WasmBackend, session: WasmSession, tmp_path: Path
) -> None:
    session.run("x = 1")
    session.run("x = 2\nwhile True: pass", timeout=1)
    session.save(tmp_path / "s")
    with session.fork() as other, load_wasm_session(backend, tmp_path / "s") as loaded:
        for each in (session, other, loaded):
            result = interrupted(each, "x += 1\nprint('go', flush=True)\nwhile True: pass")
            assert (result.status, result.rolled_back) == (Status.INTERRUPTED, True)
            assert value(each.run("x")) == "1"


def test_a_fork_with_an_open_file_is_refused_by_name_and_says_what_to_do(session: WasmSession) -> None:
    session.run("f = open('kept.txt', 'w')")
    for _ in range(300):  # more than it may have descriptors
        with pytest.raises(SessionError, match=r"kept\.txt'; close them first\Z"):
            session.fork()
    session.run("f.close()")
    with session.fork() as other:
        assert value(other.run("f.closed")) == "True"


def test_cells_of_any_length_are_given_to_the_guest(session: WasmSession) -> None:
    for size in (10, 16_000, 16_400, 70_000, 2_000_000):
        assert value(session.run(f"x = {'é' * size!r}\nlen(x)")) == str(size)


def test_a_fork_that_has_started_and_frozen_before_it_is_used_runs_its_cells(session: WasmSession) -> None:
    session.run("x = [1]")
    with session.fork() as other:
        worker = other._supervisor.live
        assert worker is not None
        said = b""
        while b"frozen" not in said:  # both of its first messages wait to be read
            select.select([worker.jail.channel], [], [])
            said = worker.jail.channel.recv(1 << 16, socket.MSG_PEEK)
        assert value(other.run("x.append(2); x")) == "[1, 2]"
        other.undo()
        assert value(other.run("x")) == "[1]"


def test_a_fork_that_ended_before_its_first_cell_says_that_its_state_is_lost_and_one_never_used_ends(
    session: WasmSession,
) -> None:
    session.run("x = 1")
    with session.fork() as other:
        worker = other._supervisor.live
        assert worker is not None
        worker.jail.kill()
        with pytest.raises(SessionError, match="its state is lost; it was started anew"):
            other.run("x")
        assert value(other.run("'x' in globals()")) == "False"
    unused = session.fork()
    unused.close()
    assert not unused.alive
    assert value(session.run("x")) == "1"


# Odd programs, odd saved files and odd mounts.


def test_a_letter_that_cannot_be_read_is_none_in_a_cell_and_in_a_question(session: WasmSession) -> None:
    # Reading this letter is a RecursionError in the worker; an object whose ``__dir__`` returns nothing raises too.
    deep = "os.write(6, b'[' * 200_000 + b']' * 200_000 + b'\\n')"
    result = session.run(f"import os; x = 1; {deep}\nclass A:\n  def __dir__(self): {deep}\na = A()")
    assert (result.status, result.rolled_back) == (Status.OK, False), result
    assert session.complete("a.", 2).get("matches", []) == []
    for _ in range(3):
        assert value(session.run("x")) == "1"


def test_a_memory_error_of_the_program_is_not_called_the_limit(session: WasmSession) -> None:
    session.run("x = 1")
    result = session.run("x = 2; raise MemoryError('mine')")
    assert (result.status, result.limit, result.rolled_back) == (Status.FAILED, None, False)
    assert value(session.run("x")) == "2"
    full = session.run("b = bytearray(900 << 20)")
    assert (full.status, full.limit) == (Status.MEMORY_EXCEEDED, "memory")
    again = session.run("raise MemoryError('mine')")
    assert (again.status, again.limit) == (Status.FAILED, None)


def test_forks_and_loaded_sessions_draw_other_numbers(
    backend: WasmBackend, session: WasmSession, tmp_path: Path
) -> None:
    with open_wasm_session(backend, "python") as another:
        drawn = {value(another.run("import random; random.random()"))}
    session.run("import random; random.random()")
    session.save(tmp_path / "s")
    drawn.add(value(session.run("random.random()")))
    with session.fork() as one, session.fork() as two:
        drawn |= {value(each.run("random.random()")) for each in (one, two)}
    for _ in range(2):
        with load_wasm_session(backend, tmp_path / "s") as loaded:
            drawn.add(value(loaded.run("random.random()")))
    assert len(drawn) == 6


def rewritten(path: Path, **changes: object) -> None:
    """Change the header of a saved session, as anybody can."""
    data = path.read_bytes()
    start = len(MAGIC) + 4
    size = int.from_bytes(data[len(MAGIC) : start], "big")
    padded = -(-(start + size) // ALIGNMENT) * ALIGNMENT
    header = json.dumps({**json.loads(data[start : start + size]), **changes}).encode()
    begun = MAGIC + len(header).to_bytes(4, "big") + header
    path.write_bytes(begun + bytes(-len(begun) % ALIGNMENT) + data[padded:])


def test_a_saved_file_does_not_raise_its_own_memory(backend: WasmBackend, session: WasmSession, tmp_path: Path) -> None:
    saved = tmp_path / "s"
    session.run("x = 1")
    session.save(saved)
    rewritten(saved, memory_mb=4000)
    with load_wasm_session(backend, saved) as loaded:
        assert loaded.run("x").memory_limit_mb == 512
        assert loaded.run("b = bytearray(700 << 20)").status is Status.MEMORY_EXCEEDED
    with load_wasm_session(backend, saved, memory_mb=600) as loaded:
        assert loaded.run("x").memory_limit_mb == 600
    rewritten(saved, memory_mb=256)
    with load_wasm_session(backend, saved) as loaded:
        assert loaded.run("x").memory_limit_mb == 256


@pytest.mark.slow
def test_a_saved_file_that_needs_more_memory_is_refused_by_what_to_do(backend: WasmBackend, tmp_path: Path) -> None:
    with open_wasm_session(backend, "python", memory_mb=700) as session:
        session.run("b = bytearray(550 << 20)")
        session.save(tmp_path / "s")
    with pytest.raises(InvalidRequest, match="memory_mb=700"):
        load_wasm_session(backend, tmp_path / "s")
    with load_wasm_session(backend, tmp_path / "s", memory_mb=700) as loaded:
        assert value(loaded.run("len(b) >> 20")) == "550"


def test_a_mount_that_would_hide_the_wheels_is_refused(tmp_path: Path) -> None:
    thing = made(tmp_path, {"thing.py": ""})
    box = Sandbox(SandboxPolicy().mount(tmp_path, "/wheels"), backend="wasm", wheels=[thing])
    with box, pytest.raises(PolicyViolation, match="/wheels"):
        box.run("print(1)")


@pytest.mark.slow
def test_a_mount_in_the_work_folder_does_not_count_as_its_size(tmp_path: Path) -> None:
    with Sandbox(SandboxPolicy().mount(tmp_path, "/box/sub"), backend="wasm") as box, box.session("python") as session:
        for _ in range(2):
            assert box.run("open('new.txt', 'w').write('1')").notes == ()
            assert session.run("x = 1").notes == ()


def test_an_exit_of_the_cell_is_told_with_its_code(session: WasmSession) -> None:
    session.run("x = 1")
    for code in (3, 0):
        ended = session.run(f"x = 2; import os; os._exit({code})")
        assert (ended.stderr, ended.rolled_back) == ("", True)
        assert f"the cell ended its own process with exit code {code}" in ended.notes
        assert value(session.run("x")) == "1"


def test_the_rest_of_a_cell_that_another_task_ended_does_not_run_with_a_later_cell(session: WasmSession) -> None:
    ends = "import asyncio\nasync def end():\n    raise SystemExit(3)\nt = asyncio.ensure_future(end())\n"
    assert session.run(ends + "await asyncio.sleep(0.2)\nprint('the rest')").exit_code == 3
    assert session.run("await asyncio.sleep(0.5)\nprint('mine')").stdout == "mine\n"


def test_a_thread_is_refused_with_the_true_reason(session: WasmSession, backend: WasmBackend) -> None:
    code = "import threading; threading.Thread(target=print).start()"
    for result in (session.run(code), backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=60))):
        assert "RuntimeError: can't start new thread: WebAssembly has none; use asyncio" in result.stderr


@pytest.mark.parametrize("broken", ["sys.stdout = None", "sys.stderr = 3", "sys.stdout.close()"])
def test_a_cell_that_breaks_its_streams_is_kept(session: WasmSession, broken: str) -> None:
    done = session.run(f"import sys; x = 1; {broken}")
    assert (done.status, done.rolled_back) == (Status.OK, False), done.notes
    assert value(session.run("x")) == "1"
