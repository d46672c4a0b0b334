"""TypeScript: everything that is more than types, and errors that name the cell's line and column."""

from collections.abc import Callable

import pytest

from sandbox_kernel import ExecResult, ProcessBackend, Sandbox, Status
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.languages import node as room
from sandbox_kernel.languages.recipe import availability
from sandbox_kernel.model import ExecRequest, Language


@pytest.fixture(autouse=True)
def node(needs: Callable[[str], None]) -> None:
    needs("typescript")


TYPED = """\
enum Color { Red = 1, Green }
namespace Inner { export const depth: number = 3; }
class Point {
  constructor(public x: number, private y = 2) {}
  sum(): number { return this.x + this.y; }
}
console.log(new Point(40).sum(), Color.Green, Color[1], Inner.depth);
"""


def test_enums_namespaces_and_parameter_properties_run(box: Sandbox) -> None:
    result = box.run(TYPED, "ts")
    assert (result.stdout, result.stderr) == ("42 2 Red 3\n", "")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("enum A { B = 4 }\nconsole.log(A.B)", "4"),
        ("namespace N { export const x = 5 }\nconsole.log(N.x)", "5"),
        ("class P { constructor(public a: number) {} }\nconsole.log(new P(6).a)", "6"),
        ("const f = <T,>(x: T): T => x\nconsole.log(f<number>(7))", "7"),
        ("abstract class A { abstract n: number }\nclass B extends A { n = 8 }\nconsole.log(new B().n)", "8"),
        ("const x = { a: 9 } satisfies Record<string, number>\nconsole.log(x!.a as unknown)", "9"),
        ("import type { Stats } from 'fs'\nlet s: Stats | null = null\nconsole.log(s ?? await 10)", "10"),
        ("declare const nowhere: string\nconsole.log(11)", "11"),
    ],
)  # fmt: skip
@pytest.mark.one_case
def test_what_is_only_typescript_is_taken_out_or_transformed(box: Sandbox, code: str, shown: str) -> None:
    result = box.run(code, "ts")
    assert (result.stdout.strip(), result.stderr) == (shown, "")


def test_an_error_names_line_and_column_although_lines_were_transformed(box: Sandbox) -> None:
    result = box.run("enum A { B, C }\nclass P { constructor(public a: number) {} }\n\n  throw new Error('here')", "ts")
    assert result.status is Status.FAILED
    assert "/cell/cell.ts:4:9" in result.stderr


def test_parts_in_typescript_are_found_in_the_work_folder(box: Sandbox) -> None:
    part = "export enum E { A = 4 }\nexport const four: number = E.A"
    result = box.run("import { four } from './part.ts'\nconsole.log(four)", "ts", files={"part.ts": part})
    assert (result.stdout, result.stderr) == ("4\n", "")


def checked(code: str, memory_mb: int = 512, **rest: object) -> ExecResult:
    backend = ProcessBackend(ProcessConfig(check_types=True))
    request = ExecRequest(language=Language.TYPESCRIPT, code=code, timeout=90, memory_limit_mb=memory_mb, **rest)  # type: ignore[arg-type]
    return backend.run(request)


@pytest.mark.slow
def test_a_wrong_type_is_found_before_the_cell_runs_when_checking_is_asked_for() -> None:
    result = checked("console.log('ran')\n\nconst n: number = 'one'", memory_mb=256)
    assert (result.status, result.stdout) == (Status.COMPILE_FAILED, "")
    assert "/cell/cell.ts:3:7" in result.stderr
    assert "TS2322" in result.stderr


@pytest.mark.slow
def test_a_right_program_passes_the_check_and_runs() -> None:
    result = checked(
        "import { n } from './part.ts'\nconsole.log(process.argv.length + n)", files={"part.ts": "export const n = 2"}
    )
    assert (result.status, result.stdout) == (Status.OK, "4\n"), result.stderr


def test_without_asking_types_are_not_checked(box: Sandbox) -> None:
    assert box.run("const n: number = 'one' as any as number\nconsole.log(n)", "ts").stdout == "one\n"


def test_checking_that_cannot_be_had_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "find_deno", lambda: None)
    availability.cache_clear()
    found = availability(ProcessConfig(check_types=True), Language.TYPESCRIPT)
    availability.cache_clear()
    assert (found.available, found.remedy) == (False, "pip install 'sandbox-kernel[typescript]'")
