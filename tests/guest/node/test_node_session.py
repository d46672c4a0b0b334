"""JavaScript and TypeScript sessions: state, the same rollback as Python's, and what a cell can show and ask."""

from collections.abc import Iterator

import pytest

from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.model import Status
from sandbox_kernel.session import language_workers
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session


@pytest.fixture
def node() -> Iterator[Session]:
    with open_session(ProcessBackend(), "javascript") as session:
        yield session


@pytest.fixture(scope="module")
def shared() -> Iterator[Session]:
    with open_session(ProcessBackend(), "javascript") as session:
        yield session


def value(session: Session, code: str) -> str:
    result = session.run(code)
    assert result.ok, (result.status, result.stderr, result.notes)
    return str(result.displays[-1].data["text/plain"])


def test_names_live_on_and_can_be_declared_again(shared: Session) -> None:
    shared.run("let a = 1; const b = [2]; function f() { return a + b[0] } class C { m() { return 'm' } } var d = 4")
    assert value(shared, "f() + new C().m() + d") == "'3m4'"
    assert value(shared, "let a = 10; const b = [20]; f()") == "30"
    assert value(shared, "_") == "30"


def test_await_works_at_the_top_level_and_timers_go_on_between_cells(shared: Session) -> None:
    assert value(shared, "await new Promise((done) => setTimeout(() => done('later'), 5))") == "'later'"
    shared.run("let ticks = 0; const timer = setInterval(() => ticks++, 1)")
    assert value(shared, "await new Promise((done) => setTimeout(done, 30)); clearInterval(timer); ticks > 3") == "true"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("{ a: 1, b: [2] }", "{ a: 1, b: [ 2 ] }"),
        ("12n ** 20n", "3833759992447475122176n"),
        ("NaN", "NaN"),
        ("-0", "-0"),
        ("null", "null"),
        ("Symbol('s')", "Symbol(s)"),
        ("new Map([[1, { x: 2 }]])", "Map(1) { 1 => { x: 2 } }"),
        ("'text'", "'text'"),
    ],
)
def test_values_are_shown_as_node_shows_them(shared: Session, code: str, shown: str) -> None:
    assert value(shared, code) == shown


def test_nothing_is_shown_for_nothing(shared: Session) -> None:
    assert shared.run("undefined").displays == ()
    assert shared.run("let quiet = 5").displays == ()


def test_modules_are_imported_and_required(shared: Session) -> None:
    shared.run("import fs, { readFileSync as read } from 'node:fs'; import * as path from 'path'\nimport 'node:os'")
    assert value(shared, "fs.readFileSync === read && path.sep") == "'/'"
    assert value(shared, "(await import('node:util')).inspect(1) + require('os').EOL") == "'1\\n'"
    shared.run(
        "fs.writeFileSync('mine.mjs', 'export default 7; export const eight = 8'); fs.writeFileSync('old.js', 'module.exports = 9')"
    )
    assert value(shared, "import seven, { eight } from './mine.mjs'\nseven + eight + require('./old.js')") == "24"


def test_output_comes_in_order_with_displays(shared: Session) -> None:
    seen: list[str] = []
    result = shared.run(
        "console.log('a'); display({ [Symbol.for('Jupyter.display')]: () => ({ 'text/html': '<b>x</b>' }) }); console.log('c'); 4",
        on_output=lambda _, text: seen.append(text.strip()),
        on_display=lambda display: seen.append(display.kind),
    )
    assert [item for item in seen if item] == ["a", "display", "c", "result"]
    assert result.displays[0].data["text/html"] == "<b>x</b>"
    assert shared.run("console.error('e')").stderr == "e\n"


def test_errors_have_their_name_and_the_cells_line_and_nothing_of_ours(shared: Session) -> None:
    result = shared.run("function g() {\n  throw new RangeError('far')\n}\ng()")
    assert (result.status, result.exit_code) == (Status.FAILED, 1)
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("RangeError", "far")
    assert result.error.traceback == ("RangeError: far", "    at g (cell.js:2:9)", "    at cell.js:4:1")
    assert shared.run("let = ;").error.ename == "SyntaxError"  # type: ignore[union-attr]
    assert shared.run("throw 5").error.evalue == "5"  # type: ignore[union-attr]
    assert "Error: lost" in shared.run("Promise.reject(new Error('lost')); await 1").stderr


def test_half_of_a_surrogate_pair_is_a_question_mark_and_ends_no_worker(shared: Session) -> None:
    result = shared.run(r"throw new Error('\\ud800 ' + '😀'.slice(0, 1) + '\ud83d\ude00\udfff')")
    assert (result.status, result.error and result.error.evalue) == (Status.FAILED, r"\ud800 ?😀?"), result.notes


def test_input_is_asked_for_and_awaited(shared: Session) -> None:
    assert (
        shared.run("await input('who? ')", on_input=lambda prompt, _: prompt + "me").displays[-1].data["text/plain"]
        == "'who? me'"
    )
    assert shared.run("await input()").status is Status.FAILED


def test_exit_ends_the_cell_and_not_the_session(shared: Session) -> None:
    assert (shared.run("process.exit()").status, shared.run("process.exit(3)").exit_code) == (Status.OK, 3)
    assert value(shared, "1") == "1"


DEATHS = {
    "abort": ("process.abort()", Status.KILLED),
    "timeout": ("while (true);", Status.TIMEOUT),
    "memory": ("const hog = []; while (true) hog.push(new Array(1e5).fill(1))", Status.MEMORY_EXCEEDED),
    "buffers": ("const hog = []; while (true) hog.push(Buffer.alloc(1 << 26, 1))", Status.MEMORY_EXCEEDED),
    "exit": ("process.reallyExit(3)", Status.KILLED),
    "kill": ("process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})", Status.KILLED),
    "stuck": ("await new Promise(() => {})", Status.TIMEOUT),
}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.one_case
def test_a_cell_that_dies_leaves_the_session_as_it_was(node: Session, death: str) -> None:
    code, status = DEATHS[death]
    node.run("let x = { n: 1 }; const fs = require('fs'); fs.writeFileSync('f', 'old'); process.chdir('/tmp')")
    node.run("let fd = fs.openSync('/box/f'); let left = 3; const tick = setInterval(() => left--, 1e6)")
    result = node.run(
        f"x.n = 2; fs.writeFileSync('/box/f', 'new!'); process.chdir('/'); console.log('said'); {code}", timeout=5
    )
    assert (result.status, result.rolled_back) == (status, True), (result.notes, result.stderr[-500:])
    assert result.stdout == "said\n"
    assert "rolled back to the state before this cell; 5 variables kept" in result.notes
    assert value(node, "[x.n, fs.readFileSync('/box/f', 'utf8'), process.cwd(), left]") == "[ 1, 'old', '/tmp', 3 ]"
    assert value(node, "fs.readSync(fd, Buffer.alloc(9))") == "3"


@pytest.mark.slow
def test_the_engine_is_whole_after_a_rollback(node: Session) -> None:
    node.run("let n = 0; process.on('SIGUSR2', () => n++)")
    for _ in range(3):
        assert node.run("process.reallyExit(1)").rolled_back
    code = """
const { exec } = require('child_process'); const zlib = require('zlib'); const { Worker } = require('worker_threads')
const done = await Promise.all([
  require('fs/promises').readFile('/etc/passwd', 'utf8').then((text) => text.includes('box')),
  new Promise((ok) => exec('echo sub', (error, out) => ok(out.trim()))),
  new Promise((ok) => zlib.gzip('x'.repeat(1e5), (error, data) => ok(data.length < 1000))),
  new Promise((ok) => new Worker("require('worker_threads').parentPort.postMessage(5)", { eval: true }).on('message', ok)),
  new Promise((ok) => { process.kill(process.pid, 'SIGUSR2'); const look = () => n ? ok(n) : setTimeout(look, 5); look() }),
])
let sum = 0; for (let i = 0; i < 3e6; i++) sum = (sum * 31 + i) | 0
globalThis.junk = []; for (let i = 0; i < 1e5; i++) junk.push({ i }); junk = null
done
"""
    result = node.run(code, timeout=30)
    assert result.ok, (result.status, result.stderr, result.notes)
    assert result.displays[-1].data["text/plain"] == "[ true, 'sub', true, 5, 1 ]"


def test_undo_goes_back_cell_by_cell(node: Session) -> None:
    for number in range(4):
        node.run(f"let x = {number}")
    node.undo(2)
    assert value(node, "x") == "1"
    assert [item.cell for item in node.checkpoints()] == [2, 1, 0]


def test_an_interrupt_ends_what_is_awaited_and_keeps_what_was_done(node: Session) -> None:
    result = node.run(
        "let x = 1; console.log('go'); await new Promise(() => {})",
        timeout=60,
        on_output=lambda *_: node.interrupt() and None,
    )
    assert (result.status, result.rolled_back) == (Status.INTERRUPTED, False)
    # The inspector must not notice that what was awaited is garbage now.
    node.run("let junk = []; for (let i = 0; i < 5e5; i++) junk.push({ i }); junk = null")
    assert value(node, "x") == "1"


@pytest.mark.slow
def test_an_interrupt_of_code_that_never_returns_is_a_rollback(node: Session) -> None:
    node.run("let x = 1")
    result = node.run(
        "x = 2; console.log('go'); while (true);", timeout=60, on_output=lambda *_: node.interrupt() and None
    )
    assert (result.status, result.rolled_back) == (Status.INTERRUPTED, True)
    assert value(node, "x") == "1"


def test_questions_look_at_live_objects_without_touching_them(node: Session) -> None:
    node.run(
        "let thing = { methodOfThing() { return 1 }, get trap() { touched = true; return {} } }; let touched = false"
    )
    assert node.complete("thing.meth", 10) == {
        "matches": ["methodOfThing"],
        "cursor_start": 6,
        "cursor_end": 10,
        "metadata": {},
    }
    assert "touched" in node.complete("touc", 4)["matches"]  # type: ignore[operator]
    node.complete("thing.trap.x", 12)
    assert value(node, "touched") == "false"
    assert "methodOfThing() { return 1 }" in str(node.inspect("thing.methodOfThing", 8)["text/plain"])
    assert node.inspect("nothing", 3) == {}
    found = [node.is_complete(code)["status"] for code in ("1 + 1", "if (x) {", "f(1,", "a b", "await 1", "`text")]
    assert found == ["complete", "incomplete", "incomplete", "invalid", "complete", "incomplete"]


@pytest.mark.slow
def test_typescript_loses_its_types_and_keeps_its_enums() -> None:
    with open_session(ProcessBackend(), "ts") as session:
        assert (
            value(
                session,
                "enum E { A = 1, B }\nlet n: number = E.B; interface I { a: string }; const i: I = { a: 'b' }; n",
            )
            == "2"
        )
        assert value(session, "function twice<T>(x: T): T[] { return [x, x] }; twice<string>(i.a)") == "[ 'b', 'b' ]"
        assert session.run("let wrong: string = ;").error.ename == "SyntaxError"  # type: ignore[union-attr]
        assert session.run("while (true);", timeout=0.5).rolled_back
        assert value(session, "n") == "2"


def test_without_a_compiler_the_state_is_lost_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_workers, "freeze_addon", lambda: (b"", "none"))
    with open_session(ProcessBackend(), "js") as session:
        session.run("let x = 1")
        result = session.run("process.reallyExit(1)")
        assert (result.status, result.rolled_back) == (Status.KILLED, False)
        assert any(
            "no C compiler was found to build the addon for JavaScript checkpoints" in note for note in result.notes
        )
        assert session.run("x").error.ename == "ReferenceError"  # type: ignore[union-attr]


def test_a_node_that_is_not_there_is_named() -> None:
    with pytest.raises(BackendUnavailable, match="/no/such/node"):
        open_session(ProcessBackend(ProcessConfig(node_path="/no/such/node")), "javascript")
