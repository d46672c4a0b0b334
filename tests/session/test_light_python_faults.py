"""Sessions of the light Python under odd programs, odd saved files and odd mounts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import ExecRequest, Language, Sandbox, SandboxPolicy
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.model import Status
from sandbox_kernel.session.open_wasm import WasmSession, load_wasm_session, open_wasm_session
from sandbox_kernel.session.saved_file import ALIGNMENT, MAGIC
from tests.backends.wasm.test_wheels import made
from tests.session.test_light_python import LightBackend, value

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def backend() -> WasmBackend:
    return LightBackend()


@pytest.fixture
def session(backend: WasmBackend) -> Iterator[WasmSession]:
    with open_wasm_session(backend, "python") as opened:
        yield opened


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


def test_a_saved_name_that_is_a_file_and_a_folder_is_refused(
    backend: WasmBackend, session: WasmSession, tmp_path: Path
) -> None:
    session.save(tmp_path / "s")
    nothing = [0, hashlib.sha256(b"").hexdigest()]
    rewritten(tmp_path / "s", files={"a": nothing, "a/b": nothing})
    with pytest.raises(InvalidRequest, match="damaged"):
        load_wasm_session(backend, tmp_path / "s")


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
