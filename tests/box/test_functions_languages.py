"""Host functions from JavaScript, TypeScript and the shell, in runs and sessions."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator

import pytest

from sandbox_kernel import ExecResult, Sandbox
from sandbox_kernel.session.worker.node_freeze import freeze_addon


def search(query: str, limit: int = 2) -> list[str]:
    """Search the catalogue."""
    return [f"{query} {number}" for number in range(limit)]


def invert(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


def count(to: int) -> Iterator[int]:
    yield from range(to)


def broken() -> None:
    raise KeyError("no such thing")


@pytest.fixture
def box() -> Iterator[Sandbox]:
    functions = {"search": search, "invert": invert, "count": count, "broken": broken}
    with Sandbox(functions=functions) as made:
        yield made


def ok(result: ExecResult) -> ExecResult:
    assert result.ok, (result.status, result.stdout, result.stderr, result.notes)
    return result


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


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_a_run_of_javascript_calls(box: Sandbox, language: str) -> None:
    result = ok(box.run(JAVASCRIPT, language))
    assert result.stdout == SHOWN
    assert [(call.name, call.outcome) for call in result.calls] == [
        ("search", "ok"), ("search", "ok"), ("invert", "ok"), ("count", "ok"), ("broken", "error"), ("search", "refused"),
    ]  # fmt: skip


def test_a_session_of_javascript_calls_in_every_cell(box: Sandbox) -> None:
    with box.session("javascript") as session:
        assert ok(session.run(JAVASCRIPT)).stdout == SHOWN
        result = ok(session.run("console.log(host.search('x').length)"))
        assert (result.stdout, len(result.calls)) == ("2\n", 1)


def test_names_of_functions_are_checked_where_types_are(box: Sandbox) -> None:
    pytest.importorskip("deno", reason="type checking needs the package deno")
    right = box.run(
        "const found: string[] = host.search('a', {limit: 1}); console.log(found)", "typescript", check=True
    )
    assert (right.status, right.stdout) == ("ok", "[ 'a 0' ]\n"), right.stderr
    wrong = box.run("host.serch('a')", "typescript", check=True)
    assert wrong.status == "compile_failed" and "serch" in wrong.stderr


BYTES = """
const data = new Uint8Array(300000).map((_, at) => at);
const back = host.mirror(data, [new Uint8Array([10, 10])], {last: new Uint8Array([1]), $name: null});
console.log(back[0][0].every((byte, at) => byte === data[at]), back[0][1][0].join(), back[1].last.join(), back[1].$name);
console.log([...host.lines()].map((line) => line.join()));
"""
SAME_BYTES = "true 10,10 1 null\n[ '97,10', '', '10,98' ]\n"


@pytest.mark.parametrize("backend", ["process", "wasm"])
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


@pytest.mark.parametrize("backend", ["process", "wasm"])
def test_an_object_of_javascript_never_arrives_as_an_empty_one(backend: str) -> None:
    functions = {"mirror": lambda *args, **kwargs: [args, kwargs]}
    with Sandbox(backend=backend, functions=functions) as made:
        assert ok(made.run(OBJECTS, "javascript")).stdout == SAME_OBJECTS


needs_addon = pytest.mark.skipif(not freeze_addon()[0], reason=freeze_addon()[1])


@needs_addon
def test_a_call_in_a_javascript_session_starts_no_process(box: Sandbox) -> None:
    with box.session("javascript") as session:
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


SHELL = """
host search ship limit=1
host count 3
printf '%s' "$(host search a 1)"
host broken || echo "exit $?"
"""


def test_the_shell_calls_with_a_command(box: Sandbox) -> None:
    result = ok(box.run(SHELL, "command"))
    assert result.stdout == '["ship 0"]\n0\n1\n2\n["a 0"]exit 1\n'
    assert result.stderr == "host: KeyError: 'no such thing'\n"
    assert [call.name for call in result.calls] == ["search", "count", "search", "broken"]


def test_a_shell_session_calls_in_every_cell(box: Sandbox) -> None:
    with box.session("command") as session:
        for _ in range(2):
            result = ok(session.run("host search x 1"))
            assert (result.stdout, len(result.calls)) == ('["x 0"]\n', 1)


@pytest.mark.parametrize("backend", ["process", "wasm"])
def test_the_command_shows_bytes_and_numbers_that_json_lacks_in_the_same_way(backend: str) -> None:
    with Sandbox(
        backend=backend, functions={"odd": lambda: iter([{"b": b"\0\xff"}, [math.nan, -math.inf], [1.5]])}
    ) as made:
        result = ok(made.run("host odd", "command"))
    assert result.stdout == '{"b":{"$bytes":"AP8="}}\n[{"$float":"nan"},{"$float":"-inf"}]\n[1.5]\n'


def test_the_command_says_how_it_is_used(box: Sandbox) -> None:
    result = box.run("host", "command")
    assert (result.exit_code, result.stderr) == (2, "host: usage: host FUNCTION [ARGUMENT | NAME=VALUE] ...\n")


def test_without_functions_there_is_no_command_and_no_global_name() -> None:
    with Sandbox() as plain:
        assert plain.run("echo $HOST_HATCH; ls /cell", "command").stdout == "\ncell.sh\n"
        assert plain.run("console.log(typeof host)", "javascript").stdout == "undefined\n"
