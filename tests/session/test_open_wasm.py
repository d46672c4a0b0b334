"""JavaScript sessions in WebAssembly: state, rollback, fork, save and load, each for real."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.model import ExecResult, Language, Status
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.session import open_wasm
from sandbox_kernel.session.open_wasm import WasmSession, load_wasm_session, open_wasm_session

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def backend() -> WasmBackend:
    made = WasmBackend(SandboxPolicy().with_env("GIVEN", "yes"))
    made.prepare([Language.JAVASCRIPT])
    return made


@pytest.fixture
def session(backend: WasmBackend) -> Iterator[WasmSession]:
    with open_wasm_session(backend) as opened:
        assert isinstance(opened, WasmSession)
        yield opened


def shown(result: ExecResult) -> str | None:
    assert result.status is Status.OK, result
    return str(result.displays[-1].data["text/plain"]) if result.displays else None


def value(session: WasmSession, code: str) -> str | None:
    return shown(session.run(code, timeout=60))


def test_state_lives_on_and_the_last_value_is_shown(session: WasmSession) -> None:
    assert value(session, "let x = 41; const f = n => n * 2; var o = { a: 1 }") is None
    assert value(session, "x + 1") == "42"
    assert value(session, "class A { #p = f(4); get p() { return this.#p } } new A().p") == "8"
    assert value(session, "new A().p + o.a") == "9"
    result = session.run("console.log('out'); console.error('err'); ({ a: [1] })")
    assert (result.stdout, result.stderr, shown(result)) == ("out\n", "err\n", "{ a: [ 1 ] }")
    assert (result.backend, result.isolation, result.language) == ("wasm", "wasm", "javascript")


def test_an_error_keeps_the_state_and_is_told(session: WasmSession) -> None:
    session.run("let x = 1")
    result = session.run("x = 2; null.foo")
    assert result.status is Status.FAILED
    assert result.error is not None and result.error.ename == "TypeError"
    assert "cannot read property 'foo' of null" in result.stderr
    assert value(session, "x") == "2"
    assert session.run("nonsense here").error.ename == "SyntaxError"  # type: ignore[union-attr]


def test_awaiting_timers_input_files_and_environment_work(session: WasmSession) -> None:
    assert value(session, "await new Promise(r => setTimeout(() => r('late'), 20))") == "'late'"
    asked: list[str] = []

    def answer(prompt: str, _password: bool) -> str:
        asked.append(prompt)
        return "bob"

    result = session.run("prompt('name? ').toUpperCase()", on_input=answer)
    assert (shown(result), asked) == ("'BOB'", ["name? "])
    assert value(session, "require('fs').writeFileSync('a.txt', 'x'); require('fs').readdirSync('.')") == "[ 'a.txt' ]"
    assert value(session, "process.env.GIVEN") == "'yes'"
    assert value(session, "prompt('nobody? ')") == "null"


def test_undo_takes_back_variables_and_files(session: WasmSession) -> None:
    session.run("let x = 1; require('fs').writeFileSync('f', 'one')")
    session.run("x = 2; require('fs').writeFileSync('f', 'two')")
    session.undo()
    assert value(session, "[x, require('fs').readFileSync('f', 'utf8')]") == "[ 1, 'one' ]"


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("try { process.exit(3) } finally { x = 2 }", Status.FAILED, 3),
        ("x = 2; const a = []; for (;;) a.push(new Array(1e5).fill(1))", Status.MEMORY_EXCEEDED, None),
        pytest.param("x = 2; for (;;);", Status.TIMEOUT, None, marks=pytest.mark.slow),
    ],
    ids=["exit", "memory", "stopped"],
)
def test_a_cell_that_exits_is_stopped_or_takes_all_memory_is_rolled_back_and_the_session_goes_on(
    backend: WasmBackend, code: str, status: Status, exit_code: int | None
) -> None:
    with open_wasm_session(backend, memory_mb=64) as session:
        session.run("let x = 1")
        result = session.run(f"console.log('so far'); {code}", timeout=5 if status is Status.TIMEOUT else 120)
        assert (result.status, result.stdout) == (status, "so far\n")
        assert exit_code is None or result.exit_code == exit_code
        assert status is Status.FAILED or (result.rolled_back, result.limit) == (True, str(result.limit))
        assert value(session, "x") == "1"


@pytest.mark.parametrize("code", ["x = 2; for (;;);", "x = 2; await new Promise(r => setTimeout(r, 1e6))"])
def test_an_interrupt_keeps_what_was_done(session: WasmSession, code: str) -> None:
    session.run("let x = 1")
    begun = threading.Event()
    timer = threading.Thread(target=lambda: (begun.wait(30), session.interrupt()))
    timer.start()
    result = session.run("console.log('begun');" + code, timeout=60, on_output=lambda *_: begun.set())
    timer.join()
    assert (result.status, result.rolled_back) == (Status.INTERRUPTED, False)
    assert value(session, "x") == "2"


def test_questions_about_code_run_none_of_it(session: WasmSession) -> None:
    session.run(
        "let calls = 0; var trap = { get secret() { calls++; return {} } }; function add(a, b) { return a + b }"
    )
    assert session.complete("conso", 5)["matches"] == ["console"]
    assert session.complete("console.lo", 10)["matches"] == ["log"]
    assert session.complete("trap.secret.x", 13)["matches"] == []
    assert session.inspect("add", 2) == {"text/plain": "function add(a, b) { return a + b }"}
    assert value(session, "calls") == "0"
    found = [session.is_complete(code)["status"] for code in ("1 + 1", "function f() {", "`open", "1 + )", "await 1")]
    assert found == ["complete", "incomplete", "incomplete", "invalid", "complete"]


def test_a_fork_has_the_state_and_goes_its_own_way(session: WasmSession) -> None:
    session.run("let x = [1]; require('fs').writeFileSync('f', 'kept'); const later = () => x.length")
    with session.fork() as other:
        assert value(other, "x.push(2); [later(), require('fs').readFileSync('f', 'utf8')]") == "[ 2, 'kept' ]"
        assert value(session, "later()") == "1"
        session.run("x = 'gone'")
        assert value(other, "x") == "[ 1, 2 ]"
        with other.fork() as third:
            assert value(third, "later()") == "2"


@pytest.mark.slow
def test_a_saved_session_goes_on_in_another_process(session: WasmSession, tmp_path: Path) -> None:
    session.run("const m = new Map([['k', { deep: [1, 2] }]]); let n = 0; const next = () => ++n; next()")
    session.run("const fs = require('fs'); fs.writeFileSync('data/x.txt'.slice(5), 'content'); fs.mkdirSync('empty')")
    session.save(tmp_path / "s.session")
    session.run("n = 99")
    program = """
import json, sys
from sandbox_kernel.box.sandbox import Sandbox
with Sandbox() as box:
    s = box.load_session(sys.argv[1])
    code = "[next(), m.get('k').deep[1], require('fs').readFileSync('x.txt', 'utf8'), fs.readdirSync('empty').length]"
    print(json.dumps(s.run(code, timeout=60).displays[-1].data["text/plain"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s.session")], capture_output=True, text=True, timeout=120
    )
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == "[ 2, 2, 'content', 0 ]"


def test_timers_go_on_after_a_load(session: WasmSession, backend: WasmBackend, tmp_path: Path) -> None:
    session.run("let fired = 0; setTimeout(() => { fired = 1 }, 50); 0")
    session.save(tmp_path / "s")
    with load_wasm_session(backend, tmp_path / "s") as other:
        assert value(other, "await new Promise(r => setTimeout(r, 100)); fired") == "1"


def test_a_large_session_is_saved_and_loaded(session: WasmSession, backend: WasmBackend, tmp_path: Path) -> None:
    session.run("const big = new Uint8Array(60e6).fill(7); big[5e7] = 8; 0", timeout=60)
    session.save(tmp_path / "big")
    assert (tmp_path / "big").stat().st_size > 60e6
    with load_wasm_session(backend, tmp_path / "big") as other:
        assert value(other, "big[5e7] + big[5e7 + 1]") == "15"
    assert [name for name in Path(backend.store.folder).iterdir() if name.name.startswith(".image")] == []


def test_a_damaged_session_and_one_of_another_version_are_refused(
    session: WasmSession, backend: WasmBackend, tmp_path: Path, monkeypatch
) -> None:
    session.save(tmp_path / "s")
    data = bytearray((tmp_path / "s").read_bytes())
    data[-5] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(InvalidRequest, match="damaged"):
        load_wasm_session(backend, tmp_path / "damaged")
    monkeypatch.setattr(open_wasm, "guest_digest", lambda _guest: "0" * 64)
    with pytest.raises(InvalidRequest, match="load it with the version that saved it"):
        load_wasm_session(backend, tmp_path / "s")


def test_saving_leaves_no_descriptor_open(session: WasmSession, tmp_path: Path) -> None:
    counts = []
    for _ in range(5):
        session.save(tmp_path / "s")
        counts.append(len(os.listdir("/proc/self/fd")))
    # Threads of this process may open something meanwhile; what a save leaves open would be more each time.
    assert any(later <= earlier for earlier, later in pairwise(counts))


def test_memory_of_a_hostile_file_stays_inside(
    session: WasmSession, backend: WasmBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody writes garbage with right checksums: the guest breaks, and nothing else does."""
    from sandbox_kernel.session.saved_file import State, read_saved, write_saved

    session.save(tmp_path / "s")
    saved = read_saved(str(tmp_path / "s"))
    monkeypatch.setattr("sandbox_kernel.session.worker.jailed_worker.WORKER_START_S", 3.0)
    garbage = SealedMemory(b"\xa5" * saved.header.memory_bytes)
    write_saved(str(tmp_path / "evil"), saved.header, State(garbage))
    with pytest.raises(SessionError), load_wasm_session(backend, tmp_path / "evil") as evil:
        evil.run("1", timeout=5)
        raise SessionError("it answered")


def test_what_is_asked_wrongly_is_refused(backend: WasmBackend, session: WasmSession) -> None:
    with pytest.raises(InvalidRequest, match="no wasm sessions for ruby"):
        open_wasm_session(backend, "ruby")
    with pytest.raises(InvalidRequest, match="at least 64 MB"):
        open_wasm_session(backend, memory_mb=32)
    with pytest.raises(InvalidRequest, match="checkpoints"):
        open_wasm_session(backend, checkpoints=-1)
    with pytest.raises(InvalidRequest, match="saved to a path"):
        session.save("")


def test_the_facade_opens_and_loads_them(tmp_path: Path) -> None:
    with Sandbox(backend="wasm") as box:
        session = box.session("javascript")
        assert isinstance(session, WasmSession)
        session.run("let x = 5")
        session.save(tmp_path / "s")
        other = box.load_session(tmp_path / "s")
        assert other.run("x").displays[-1].data["text/plain"] == "5"
        forked = session.fork()
    assert not session.alive and not other.alive and not forked.alive
    with Sandbox.load_session(tmp_path / "s", name="again") as other:  # without making a sandbox first
        assert (other.name, other.run("x").displays[-1].data["text/plain"]) == ("again", "5")
