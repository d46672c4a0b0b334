"""Host functions from inside WebAssembly: Python, JavaScript, TypeScript and the shell, in runs and sessions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import ExecResult, FunctionLimits, Sandbox, Status
from sandbox_kernel.model.notes import NoteKind


def search(query: str, limit: int = 2) -> list[str]:
    """Search the catalogue."""
    return [f"{query} {number}" for number in range(limit)]


def invert(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


async def square(number: int) -> int:
    return number * number


def count(to: int) -> Iterator[int]:
    yield from range(to)


def broken() -> None:
    raise KeyError("no such thing")


FUNCTIONS = {each.__name__: each for each in (search, invert, square, count, broken)}


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox(backend="wasm", functions=FUNCTIONS) as made:
        yield made


def ok(result: ExecResult) -> ExecResult:
    assert result.ok, (result.status, result.stdout, result.stderr, result.notes)
    return result


PYTHON = """
from host import search, invert, HostError
import host
print(search("ship", limit=1), invert(b"\\x00\\xff"), host.square(7), list(host.count(3)))
try: host.broken()
except HostError as error: print(error.type, error)
try: search(5)
except HostError as error: print(error)
"""
SHOWN = """['ship 0'] b'\\xff\\x00' 49 [0, 1, 2]
KeyError KeyError: 'no such thing'
TypeError: search() argument 'query': Expected `str`, got `int`
"""
OUTCOMES = ["ok", "ok", "ok", "ok", "error", "refused"]


def test_a_run_of_python_calls(box: Sandbox) -> None:
    result = ok(box.run(PYTHON))
    assert result.stdout == SHOWN
    assert [str(call.outcome) for call in result.calls] == OUTCOMES


@pytest.mark.slow
def test_a_python_that_starts_from_nothing_calls_too(box: Sandbox) -> None:
    assert ok(box.run(PYTHON, env={"PYTHONHASHSEED": "1"})).stdout == SHOWN


def test_standard_input_and_large_values_do_not_mix_with_calls(box: Sandbox) -> None:
    result = ok(box.run("from host import search\nprint(len(search(input() * 300_000, 1)[0]))", stdin="ab"))
    assert result.stdout == "600002\n"


@pytest.mark.slow
def test_a_session_of_python_calls_in_every_cell_and_so_does_its_fork(box: Sandbox) -> None:
    with box.session("python") as session:
        result = ok(session.run(PYTHON))
        assert (result.stdout, [str(call.outcome) for call in result.calls]) == (SHOWN, OUTCOMES)
        with session.fork() as other:  # type: ignore[attr-defined]
            result = ok(other.run("len(search('x'))"))
            assert (result.displays[-1].data["text/plain"], len(result.calls)) == ("2", 1)
        assert len(ok(session.run("search('y')")).calls) == 1


JAVASCRIPT = """
console.log(host.search('ship', {limit: 1}), host.invert(new Uint8Array([0, 255])), [...host.count(3)]);
try { host.broken() } catch (e) { console.log(e instanceof host.HostError, e.type, e.message) }
"""
JAVASCRIPT_SHOWN = """[ 'ship 0' ] Uint8Array(2) [ 255, 0 ] [ 0, 1, 2 ]
true KeyError KeyError: 'no such thing'
"""


@pytest.mark.parametrize("language", ["javascript", "typescript"])
@pytest.mark.one_case
def test_a_run_of_javascript_calls(box: Sandbox, language: str) -> None:
    result = ok(box.run(JAVASCRIPT, language))
    assert result.stdout == JAVASCRIPT_SHOWN
    assert [call.name for call in result.calls] == ["search", "invert", "count", "broken"]


@pytest.mark.slow
def test_typescript_is_checked_against_the_names_of_the_functions(box: Sandbox) -> None:
    right = "try { host.broken() } catch (e) { if (e instanceof host.HostError) console.log(e.type) }"
    shown = ok(box.run(f"const n: number = host.square(2)\n{right}\nconsole.log(n)", "typescript", check=True)).stdout
    assert shown == "KeyError\n4\n"
    wrong = box.run("console.log('ran')\nhost.serch('x')", "typescript", check=True)
    assert (wrong.status, wrong.stdout) == (Status.COMPILE_FAILED, "")
    assert "cell.ts(2," in wrong.stderr, wrong.stderr


def test_a_session_of_javascript_calls_in_every_cell(box: Sandbox) -> None:
    with box.session("javascript") as session:
        assert ok(session.run(JAVASCRIPT)).stdout == JAVASCRIPT_SHOWN
        assert len(ok(session.run("host.search('x')")).calls) == 1


def test_the_shell_calls_with_a_command(box: Sandbox) -> None:
    result = ok(box.run("host search ship limit=1\nhost count 2\nhost broken || echo failed", "command"))
    assert result.stdout == '["ship 0"]\n0\n1\nfailed\n'
    assert result.stderr == "host: KeyError: 'no such thing'\n"


@pytest.mark.parametrize(
    ("language", "code"),
    [("python", "from host import square\nfor n in range(9): square(n)"), ("javascript", "for (;;) host.square(1)")],
)
def test_the_budget_holds_inside_webassembly(language: str, code: str) -> None:
    with Sandbox(backend="wasm", functions=FUNCTIONS, function_limits=FunctionLimits(calls=3)) as box:
        result = box.run(code, language)
    assert result.status is Status.FAILED
    assert "the limit of 3 calls of host functions is reached" in result.stderr
    assert len(result.calls) == 3


@pytest.mark.parametrize(
    ("language", "code"), [("python", "n = 1\nimport host\nhost.wait()"), ("javascript", "var n = 1; host.wait()")]
)
@pytest.mark.one_case
def test_an_interrupt_ends_a_call_and_a_session_goes_on(language: str, code: str) -> None:
    called, over = threading.Event(), threading.Event()

    def wait() -> None:
        called.set()
        over.wait(60)

    with Sandbox(backend="wasm", functions={"wait": wait}) as box, box.session(language) as session:
        ok(session.run("1"))
        ends: list[ExecResult] = []
        runner = threading.Thread(target=lambda: ends.append(session.run(code, timeout=60)))
        runner.start()
        assert called.wait(60)
        session.interrupt()
        runner.join(60)
        over.set()
        assert [(str(call.name), str(call.outcome)) for call in ends[0].calls] == [("wait", "cancelled")]
        assert ends[0].status is Status.INTERRUPTED
        ok(session.run("2"))


@pytest.mark.slow
def test_a_cell_that_is_rolled_back_says_which_calls_had_happened(box: Sandbox) -> None:
    with box.session("javascript") as session:
        result = session.run("host.search('x'); for (;;) {}", timeout=1)
        assert result.rolled_back
        told = [note for note in result.notes if getattr(note, "kind", None) is NoteKind.CALLS_HAPPENED]
        assert "search" in told[0]


def test_a_saved_session_calls_the_functions_of_the_sandbox_that_loads_it(box: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "saved.session"
    with box.session("javascript") as session:
        ok(session.run("const before = host.square(3)"))
        session.save(file)  # type: ignore[attr-defined]
    with Sandbox(backend="wasm", functions={"square": lambda number: -number}) as other:
        assert (
            ok(other.load_session(file).run("[before, host.square(3)]")).displays[-1].data["text/plain"] == "[ 9, -3 ]"
        )
    with Sandbox(backend="wasm") as none:
        assert "no host functions" in json.dumps(none.load_session(file).run("host.square(3)").error.traceback)  # type: ignore[union-attr]


def test_without_functions_there_is_no_module_and_no_global_name() -> None:
    with Sandbox(backend="wasm") as plain:
        assert "No module named 'host'" in plain.run("import host").stderr
        assert plain.run("console.log(typeof host)", "javascript").stdout == "undefined\n"
        assert plain.run("host x", "command").exit_code == 127
