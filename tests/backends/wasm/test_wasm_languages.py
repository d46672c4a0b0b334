"""Languages inside WebAssembly, each run for real from its pinned package."""

from collections.abc import Callable

import pytest

from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status

pytestmark = pytest.mark.timeout(900)
Run = Callable[..., ExecResult]


@pytest.fixture(scope="module")
def run(guest_backend: WasmBackend) -> Run:
    def go(language: str, code: str, *, timeout: float = 60, **fields: object) -> ExecResult:
        request = ExecRequest(language=Language(language), code=code, timeout=timeout, **fields)  # type: ignore[arg-type]
        return guest_backend.run(request)

    return go


# ---- JavaScript ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "stdout"),
    [
        ("console.log('hello', 1, [1, 2], {a: 1})", "hello 1 [ 1, 2 ] { a: 1 }\n"),
        ("console.log(new Map([[1, 'x']]), new Set([2]), null, undefined, -0, 5n)", "Map(1) { 1 => 'x' } Set(1) { 2 } null undefined -0 5n\n"),
        ("const v = await new Promise(r => setTimeout(() => r('later'), 5)); console.log(v)", "later\n"),
        ("setTimeout(() => console.log(2), 5); Promise.resolve().then(() => console.log(1)); console.log(0)", "0\n1\n2\n"),
        ("console.log(process.argv.slice(2), process.env.NAME)", "[ 'one two' ] value\n"),
        ("import { readdirSync } from 'node:fs'; console.log(readdirSync('.'))", "[ 'given.txt' ]\n"),
        ("const fs = require('fs'); console.log(fs.readFileSync('given.txt', 'utf8'))", "text\n"),
        ("console.log(require('fs').readFileSync(0, 'utf8').trim())", "input\n"),
        ("console.log(prompt('? '))", "? input\n"),
        ("console.log([3, 1, 2].toSorted(), Object.groupBy([1, 2], v => v % 2))", "[ 1, 2, 3 ] [Object: null prototype] { '0': [ 2 ], '1': [ 1 ] }\n"),
        ("console.log('%s is %d', 'x', 3)", "x is 3\n"),
        ("console.log(btoa('hi'), new TextDecoder().decode(new TextEncoder().encode('é')))", "aGk= é\n"),
        ("class A { #p = 3; get p() { return this.#p } } console.log(new A().p, /(\\d+)/.exec('a12')[1])", "3 12\n"),
    ],
)  # fmt: skip
@pytest.mark.one_case
def test_javascript_programs_run(run: Run, code: str, stdout: str) -> None:
    result = run(
        "javascript", code, args=["one two"], env={"NAME": "value"}, files={"given.txt": "text"}, stdin="input\n"
    )
    assert (result.stdout, result.stderr, result.status) == (stdout, "", Status.OK)


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("throw new TypeError('bad')", 1, "TypeError: bad"),
        ("Promise.reject(new Error('nobody looked'))", 1, "nobody looked"),
        ("this is no javascript", 1, "SyntaxError"),
        ("function f() { return f() } f()", 1, "RangeError: Maximum call stack size exceeded"),
        ("await new Promise(() => {})", 13, "still awaited"),
        ("process.exit(200); console.log('never')", 200, ""),
        ("try { process.exit(7) } finally { console.log('never') }", 7, ""),
        ("process.exitCode = 3", 3, ""),
        ("require('left-pad')", 1, "there are no packages in this sandbox"),
        ("require('fs').readFileSync('/etc/passwd')", 1, "ENOENT"),
        ("require('fs').readFileSync('../../etc/passwd')", 1, "ENOENT"),
        ("require('fs').writeFileSync('/cell/x', '')", 1, "EROFS"),
    ],
)
@pytest.mark.one_case
def test_javascript_failures_are_told(run: Run, code: str, exit_code: int, stderr: str) -> None:
    result = run("javascript", code)
    assert (result.status, result.exit_code, result.stdout) == (Status.FAILED, exit_code, "")
    assert stderr in result.stderr


@pytest.mark.slow
def test_javascript_meets_its_limits(run: Run) -> None:
    stopped = run("javascript", "console.log('one'); console.error('two'); for (;;);", timeout=5)
    assert (stopped.status, stopped.stdout, stopped.stderr) == (Status.TIMEOUT, "one\n", "two\n")
    assert run("javascript", "await new Promise(r => setTimeout(r, 1e6))", timeout=5).status is Status.TIMEOUT
    hungry = "const a = []; for (;;) a.push(new Array(1e5).fill(1))"
    result = run("javascript", hungry, memory_limit_mb=64)
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "memory")
    result = run("javascript", "for (;;);", limits=Limits(fuel=50_000_000))
    assert (result.status, result.limit) == (Status.FUEL_EXHAUSTED, "fuel")


@pytest.mark.slow
def test_javascript_prints_a_lot_and_is_cut(run: Run) -> None:
    code = "const line = 'x'.repeat(999); for (let i = 0; i < 20000; i++) console.log(line)"
    result = run("javascript", code, timeout=120, limits=Limits(output_bytes=10_000))
    assert (result.status, result.limit, result.stdout_bytes) == (Status.OK, "output", 20_000_000)


def test_what_one_program_leaves_is_not_there_for_the_next(run: Run) -> None:
    run("javascript", "globalThis.left = 1; Array.prototype.left = 2; require('fs').writeFileSync('left', '')")
    result = run("javascript", "console.log(typeof left, [].left, require('fs').existsSync('left'))")
    assert result.stdout == "undefined undefined false\n"


# ---- TypeScript ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_typescript_runs_with_all_its_syntax(run: Run) -> None:
    code = """
enum Colour { Red = 3, Green }
namespace Shapes { export const sides: number = Colour.Red }
interface Point { x: number; readonly y?: string }
type Pair<T> = [T, T]
abstract class Base<T> { constructor(protected value: T, public label = 'l') {} abstract show(): string }
class Box extends Base<number> { show(): string { return `${this.label}${this.value}` } }
const point = { x: 1 } satisfies Point
const pair: Pair<string> = ['a', 'b']
console.log(Colour[4], Shapes.sides, point.x, pair.join(''), new Box(7).show(), (5 as unknown as string))
"""
    result = run("typescript", code)
    assert (result.stdout, result.stderr, result.status) == ("Green 3 1 ab l7 5\n", "", Status.OK)


def test_a_typescript_syntax_error_is_a_failed_compilation(run: Run) -> None:
    result = run("typescript", "const x: number = ;")
    assert result.status is Status.COMPILE_FAILED
    assert "cell.ts(1,19): error TS1109" in result.stderr


def test_types_are_only_taken_off(run: Run) -> None:
    assert run("typescript", "const x: number = 'text'; console.log(x)").stdout == "text\n"


# ---- Python, SQL, Ruby, PHP ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_python_programs_run(run: Run) -> None:
    code = """
import sys, json, asyncio, sqlite3
async def later():
    await asyncio.sleep(0.01)
    return 3
print(sys.argv[1:], input(), asyncio.run(later()), open('given.txt').read())
open('made.txt', 'w').write('x')
sys.exit(200)
"""
    result = run("python", code, args=["a b"], stdin="line\n", files={"given.txt": "text"})
    assert (result.stdout, result.stderr) == ("['a b'] line 3 text\n", "")
    assert (result.exit_code, [change.path for change in result.changes]) == (200, ["made.txt"])


@pytest.mark.slow
def test_python_meets_its_limits(run: Run) -> None:
    result = run("python", "x = [0] * 10**9", memory_limit_mb=64)
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "memory")
    result = run("python", "x = []\nwhile True: x.append('y' * 10**6)", memory_limit_mb=64)
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "memory")
    assert run("python", "while True: pass", timeout=5).status is Status.TIMEOUT
    assert run("python", "import time; time.sleep(1000)", timeout=5).status is Status.TIMEOUT
    result = run("python", "def f(): return f()\nf()")
    assert "RecursionError" in result.stderr


def test_sql_scripts_run(run: Run) -> None:
    code = """create table t(a, b); insert into t values (1, 'x;y'), (2, null);
select * from t; select sum(a) as total from t;"""
    result = run("sql", code)
    shown = "a  b\n-  ----\n1  x;y\n2  NULL\ntotal\n-----\n3\n"
    assert (result.stdout, result.status) == (shown, Status.OK)
    result = run("sql", "select oops")
    assert (result.status, result.exit_code) == (Status.FAILED, 1)
    assert result.stderr == "/cell/cell.sql:1: OperationalError: no such column: oops\n"
    result = run("sql", "create table kept(a)", args=["data.db"])
    assert [change.path for change in result.changes] == ["data.db"]


@pytest.mark.slow
def test_ruby_and_php_run(run: Run) -> None:
    result = run("ruby", "puts $stdin.read.upcase; File.write('made', '1'); exit 5", stdin="line")
    assert (result.stdout, result.exit_code, [c.path for c in result.changes]) == ("LINE\n", 5, ["made"])
    result = run(
        "php", "<?php echo json_encode([1, 2]), $argv[1]; file_put_contents('made', 'x'); exit(5);", args=["z"]
    )
    assert (result.stdout, result.exit_code, [c.path for c in result.changes]) == ("[1,2]z", 5, ["made"])


# ---- C, C++, Zig -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_c_programs_run(run: Run) -> None:
    code = """#include <stdio.h>
#include "given.h"
int main(int count, char **words) {
  char line[99];
  printf("%d %s %d %s", count, words[1], GIVEN, fgets(line, 99, stdin));
  fclose(fopen("made.txt", "w"));
  return 200;
}"""
    result = run("c", code, args=["arg"], stdin="line\n", files={"given.h": "#define GIVEN 7"})
    assert (result.stdout, result.stderr, result.exit_code) == ("2 arg 7 line\n", "", 200)
    assert [change.path for change in result.changes] == ["made.txt"]


@pytest.mark.slow
def test_errors_and_traps_of_c_are_told(run: Run) -> None:
    result = run("c", "int main() { return undeclared; }")
    assert (result.status, result.stdout) == (Status.COMPILE_FAILED, "")
    assert "undeclared" in result.stderr
    result = run("c", "#include <stdlib.h>\nstatic void inner(void) { abort(); }\nint main(void) { inner(); }")
    assert result.status is Status.FAILED
    assert "wasm trap: wasm `unreachable`" in result.stderr
    hungry = """#include <stdlib.h>
#include <string.h>
char *volatile last;
int main(void) { for (;;) { last = malloc(1 << 20); if (!last) return 1; memset(last, 1, 1 << 20); } }"""
    result = run("c", hungry, memory_limit_mb=64)
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "memory")


@pytest.mark.slow
def test_zig_programs_run(run: Run) -> None:
    code = """const std = @import("std");
pub fn main(init: std.process.Init) !void {
    try std.Io.File.stdout().writeStreamingAll(init.io, "hello from zig\\n");
}"""
    result = run("zig", code, timeout=300)
    assert (result.stdout, result.status) == ("hello from zig\n", Status.OK), result.stderr


# ---- all -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("language", "least"), [("javascript", 16), ("typescript", 128), ("python", 48)])
def test_too_little_memory_is_refused_with_the_least(run: Run, language: str, least: int) -> None:
    with pytest.raises(InvalidRequest, match=f"give at least {least} MB"):
        run(language, "1", memory_limit_mb=least - 1)


def test_a_language_that_is_not_listed_names_those_that_are(run: Run) -> None:
    with pytest.raises(InvalidRequest, match="it runs wasm, javascript"):
        run("r", "1")


@pytest.mark.slow
def test_the_report_says_what_is_ready(guest_backend: WasmBackend) -> None:
    guest_backend.prepare([Language.JAVASCRIPT])
    found = guest_backend.capabilities().languages
    assert (found[Language.JAVASCRIPT].available, found[Language.JAVASCRIPT].origin) == (True, "ready")
    assert found[Language.WASM].version
