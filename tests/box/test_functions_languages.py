"""Host functions from JavaScript, TypeScript, the shell, and Python inside WebAssembly, in runs and sessions."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import ExecResult, FunctionLimits, InvalidRequest, Sandbox, Status
from sandbox_kernel.model.notes import NoteKind
from sandbox_kernel.session.language_workers import freeze_addon


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


@pytest.fixture(params=["process", "wasm"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def box(backend: str) -> Iterator[Sandbox]:
    with Sandbox(backend=backend, functions=FUNCTIONS) as made:
        yield made


@pytest.fixture
def wasm() -> Iterator[Sandbox]:
    with Sandbox(backend="wasm", functions=FUNCTIONS) as made:
        yield made


def ok(result: ExecResult) -> ExecResult:
    assert result.ok, (result.status, result.stdout, result.stderr, result.notes)
    return result


OUTCOMES = ["ok", "ok", "ok", "ok", "error", "refused"]
JAVASCRIPT = """
console.log(host.search('ship', {limit: 1}), host.search('a', 1));
console.log(host.invert(new Uint8Array([0, 255])), [...host.count(3)]);
try { host.broken() } catch (e) { console.log(e instanceof host.HostError, e.type, e.message) }
try { host.search(5) } catch (e) { console.log(e.message) }
"""
SHOWN = """[ 'ship 0' ] [ 'a 0' ]
Uint8Array(2) [ 255, 0 ] [ 0, 1, 2 ]
true KeyError KeyError: 'no such thing'
TypeError: search() argument 'query': Expected `str`, got `int`
"""


def test_a_run_of_javascript_calls(box: Sandbox, backend: str) -> None:
    result = ok(box.run(JAVASCRIPT, "typescript" if backend == "process" else "javascript"))
    assert result.stdout == SHOWN
    assert [call.outcome for call in result.calls] == OUTCOMES


def test_a_session_of_javascript_calls_in_every_cell(box: Sandbox) -> None:
    with box.session("javascript") as session:
        assert ok(session.run(JAVASCRIPT)).stdout == SHOWN
        result = ok(session.run("console.log(host.search('x').length)"))
        assert (result.stdout, len(result.calls)) == ("2\n", 1)


@pytest.mark.slow
def test_names_of_functions_are_checked_where_types_are(box: Sandbox, backend: str) -> None:
    if backend == "wasm":
        with pytest.raises(InvalidRequest, match="use backend='process'"):
            box.run("1", "typescript", check=True)
        return
    pytest.importorskip("deno", reason="type checking needs the package deno")
    right = "try { host.broken() } catch (e) { if (e instanceof host.HostError) console.log(e.type) }"
    shown = ok(box.run(f"const n: number = host.square(2)\n{right}\nconsole.log(n)", "typescript", check=True)).stdout
    assert shown == "KeyError\n4\n"
    wrong = box.run("console.log('ran')\nhost.serch('x')", "typescript", check=True)
    assert (wrong.status, wrong.stdout) == (Status.COMPILE_FAILED, "") and "serch" in wrong.stderr


BYTES = """
const data = new Uint8Array(300000).map((_, at) => at);
const back = host.mirror(data, [new Uint8Array([10, 10])], {last: new Uint8Array([1]), $name: null});
console.log(back[0][0].every((byte, at) => byte === data[at]), back[0][1][0].join(), back[1].last.join(), back[1].$name);
console.log([...host.lines()].map((line) => line.join()));
"""
SAME_BYTES = "true 10,10 1 null\n[ '97,10', '', '10,98' ]\n"


def test_bytes_of_javascript_arrive_as_they_are(backend: str) -> None:
    functions = {"mirror": lambda *args, **kwargs: [args, kwargs], "lines": lambda: iter([b"a\n", b"", b"\nb"])}
    with Sandbox(backend=backend, functions=functions) as made, made.session("javascript") as session:
        assert ok(made.run(BYTES, "javascript")).stdout == SAME_BYTES
        assert ok(session.run(BYTES)).stdout == SAME_BYTES


OBJECTS = """
const told = (make) => { try { return JSON.stringify(host.mirror(make())[0][0]); } catch (error) { return error.message; } };
class Point { constructor() { this.x = 1; } }
console.log(told(() => [new Date(0), new Map([['a', new Set([1, 2])]]), new String('x'), new Point(), [1, , 3], 7n]));
console.log(told(() => Promise.resolve(1)));
console.log(told(() => ({ error: new Error('x') })));
console.log(told(() => 2n ** 60n + 1n));
"""
SAME_OBJECTS = """["1970-01-01T00:00:00.000Z",{"a":[1,2]},"x",{"x":1},[1,null,3],7]
a host function takes no Promise; send plain objects, arrays or bytes
a host function takes no Error; send plain objects, arrays or bytes
a host function takes no number as large as 1152921504606846977; send a text
"""


def test_an_object_of_javascript_never_arrives_as_an_empty_one(backend: str) -> None:
    functions = {"mirror": lambda *args, **kwargs: [args, kwargs]}
    with Sandbox(backend=backend, functions=functions) as made:
        assert ok(made.run(OBJECTS, "javascript")).stdout == SAME_OBJECTS


needs_addon = pytest.mark.skipif(not freeze_addon()[0], reason=freeze_addon()[1])


@needs_addon
def test_a_call_in_a_javascript_session_starts_no_process() -> None:
    with Sandbox(functions=FUNCTIONS) as made, made.session("javascript") as session:
        assert ok(session.run("process.env.PATH = ''; console.log(host.search('x').length)")).stdout == "2\n"


@needs_addon
def test_javascript_calls_again_after_a_rollback_and_after_an_interrupt() -> None:
    begun = threading.Semaphore(0)

    async def wait() -> None:
        begun.release()
        await asyncio.sleep(600)

    with Sandbox(functions={"wait": wait, "one": lambda: 1}) as made, made.session("javascript") as session:
        ok(session.run("let x = host.one()"))
        undone = session.run("x = 2; host.wait()", timeout=2)
        assert (undone.status, undone.rolled_back, undone.calls[0].outcome) == ("timeout", True, "cancelled")
        assert begun.acquire(timeout=60)
        stopper = threading.Thread(target=lambda: begun.acquire(timeout=60) and session.interrupt())
        stopper.start()
        stopped = session.run("x = 3; try { host.wait() } catch (error) { console.log(error.type) }", timeout=60)
        stopper.join()
        assert (stopped.stdout, stopped.rolled_back) == ("KeyboardInterrupt\n", False)
        assert ok(session.run("console.log(x, host.one())")).stdout == "3 1\n"


def test_the_shell_calls_with_a_command_in_runs_and_in_every_cell(box: Sandbox, backend: str) -> None:
    result = ok(box.run('host search ship limit=1\nhost count 2\nhost broken || echo "exit $?"', "command"))
    assert result.stdout == '["ship 0"]\n0\n1\nexit 1\n'
    assert result.stderr == "host: KeyError: 'no such thing'\n"
    assert [call.name for call in result.calls] == ["search", "count", "broken"]
    if backend == "process":
        with box.session("command") as session:
            for _ in range(2):
                result = ok(session.run("host search x 1"))
                assert (result.stdout, len(result.calls)) == ('["x 0"]\n', 1)


def test_the_command_shows_bytes_and_numbers_that_json_lacks_in_the_same_way(backend: str) -> None:
    with Sandbox(
        backend=backend, functions={"odd": lambda: iter([{"b": b"\0\xff"}, [math.nan, -math.inf], [1.5]])}
    ) as made:
        result = ok(made.run("host odd", "command"))
    assert result.stdout == '{"b":{"$bytes":"AP8="}}\n[{"$float":"nan"},{"$float":"-inf"}]\n[1.5]\n'


def test_the_command_says_how_it_is_used() -> None:
    with Sandbox(functions=FUNCTIONS) as made:
        result = made.run("host", "command")
    assert (result.exit_code, result.stderr) == (2, "host: usage: host FUNCTION [ARGUMENT | NAME=VALUE] ...\n")


def test_without_functions_there_is_no_command_no_module_and_no_global_name(backend: str) -> None:
    with Sandbox(backend=backend) as plain:
        assert "No module named 'host'" in plain.run("import host").stderr
        assert plain.run("console.log(typeof host)", "javascript").stdout == "undefined\n"
        if backend == "wasm":
            assert plain.run("host x", "command").exit_code == 127
        else:
            assert plain.run("echo $HOST_CALL_SOCKET; ls /cell", "command").stdout == "\ncell.sh\n"


PYTHON = """
from host import search, invert, HostError
import host
print(search("ship", limit=1), invert(b"\\x00\\xff"), host.square(7), list(host.count(3)))
try: host.broken()
except HostError as error: print(error.type, error)
try: search(5)
except HostError as error: print(error)
"""
PYTHON_SHOWN = """['ship 0'] b'\\xff\\x00' 49 [0, 1, 2]
KeyError KeyError: 'no such thing'
TypeError: search() argument 'query': Expected `str`, got `int`
"""


def test_a_run_of_python_in_webassembly_calls(wasm: Sandbox) -> None:
    result = ok(wasm.run(PYTHON))
    assert (result.stdout, [call.outcome for call in result.calls]) == (PYTHON_SHOWN, OUTCOMES)


def test_standard_input_and_large_values_do_not_mix_with_calls(wasm: Sandbox) -> None:
    result = ok(wasm.run("from host import search\nprint(len(search(input() * 300_000, 1)[0]))", stdin="ab"))
    assert result.stdout == "600002\n"


@pytest.mark.slow
def test_a_session_of_python_calls_in_every_cell_and_so_does_its_fork(wasm: Sandbox) -> None:
    with wasm.session("python") as session:
        result = ok(session.run(PYTHON))
        assert (result.stdout, [call.outcome for call in result.calls]) == (PYTHON_SHOWN, OUTCOMES)
        with session.fork() as other:  # type: ignore[attr-defined]
            result = ok(other.run("len(search('x'))"))
            assert (result.displays[-1].data["text/plain"], len(result.calls)) == ("2", 1)
        assert len(ok(session.run("search('y')")).calls) == 1


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
def test_a_cell_in_webassembly_that_is_rolled_back_says_which_calls_had_happened(wasm: Sandbox) -> None:
    with wasm.session("javascript") as session:
        result = session.run("host.search('x'); for (;;) {}", timeout=1)
        assert result.rolled_back
        told = [note for note in result.notes if getattr(note, "kind", None) is NoteKind.CALLS_HAPPENED]
        assert "search" in told[0]


def test_a_saved_session_calls_the_functions_of_the_sandbox_that_loads_it(wasm: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "saved.session"
    with wasm.session("javascript") as session:
        ok(session.run("const before = host.square(3)"))
        session.save(file)  # type: ignore[attr-defined]
    with Sandbox(backend="wasm", functions={"square": lambda number: -number}) as other:
        assert (
            ok(other.load_session(file).run("[before, host.square(3)]")).displays[-1].data["text/plain"] == "[ 9, -3 ]"
        )
    with Sandbox(backend="wasm") as none:
        assert "no host functions" in json.dumps(none.load_session(file).run("host.square(3)").error.traceback)  # type: ignore[union-attr]
