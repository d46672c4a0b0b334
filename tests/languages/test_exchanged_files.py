"""Variables that pass as files, for languages that have no statement for them."""

import asyncio
import json
from collections.abc import Callable

import pytest

from sandbox_kernel import InvalidRequest, Sandbox
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import parse_cell
from sandbox_kernel.notebook.options.variables import MAX_JSON, exchange_files, output_file, output_value
from sandbox_kernel.notebook.sandboxes import CellIO, CellOutcome, NotebookSandboxes


def test_text_goes_in_as_it_is_and_the_rest_as_json() -> None:
    values = {"s": json.dumps("grün\n"), "n": "5", "l": "[1, null]"}
    assert exchange_files(values, ["out"]) == {
        "inputs/s": "grün\n", "inputs/n": "5", "inputs/l": "[1, null]", "outputs/out": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"5", 5),
        (b"5\n", 5),
        (b"[1, 2.5, null]\n", [1, 2.5, None]),
        (b'"5"', "5"),
        (b"plain words\n", "plain words"),
        (b"NaN", "NaN"),
        (b"\xff\n", "\ufffd"),
        (b"[" * 50_000, "[" * 50_000),
    ],
)
def test_what_reads_as_json_is_that_and_all_else_is_text(data: bytes, value: object) -> None:
    assert output_value("x", data) == value


def test_nothing_written_and_too_much_written_are_said_with_the_name() -> None:
    with pytest.raises(InvalidRequest, match="-o x: the cell wrote nothing into the file outputs/x"):
        output_value("x", b"")
    with pytest.raises(InvalidRequest, match=r"-o x: \d+ bytes"):
        output_value("x", b"1" * (MAX_JSON + 1))


SQUARES = {
    "c": "#include <stdio.h>\nint main(void) { int n; if (fscanf(fopen(\"inputs/n\", \"r\"), \"%d\", &n)) "
    "fprintf(fopen(\"outputs/square\", \"w\"), \"%d\", n * n); }",
    "cpp": "#include <fstream>\nint main() { int n; std::ifstream(\"inputs/n\") >> n; "
    "std::ofstream(\"outputs/square\") << n * n; }",
    "rust": 'let n: i32 = std::fs::read_to_string("inputs/n")?.parse()?;\n'
    'std::fs::write("outputs/square", (n * n).to_string())?;',
    "sql": "select writefile('outputs/square', n * n) from (select cast(cast(readfile('inputs/n') as text) as int) n)",
    "ruby": "n = File.read('inputs/n').to_i; File.write('outputs/square', n * n)",
    "lua": "local n = tonumber(io.open('inputs/n'):read('a')); io.open('outputs/square', 'w'):write(n * n)",
    "perl": "open $i, '<', 'inputs/n'; $n = <$i>; open $o, '>', 'outputs/square'; print $o $n * $n",
    "php": "$n = (int) file_get_contents('inputs/n'); file_put_contents('outputs/square', $n * $n);",
    "r": "n <- scan('inputs/n', quiet = TRUE)\ncat(n * n, file = 'outputs/square')",
    "go": 'import ("fmt"; "os")\nfunc main() { var n int; i, _ := os.Open("inputs/n"); fmt.Fscan(i, &n); '
    'os.WriteFile("outputs/square", []byte(fmt.Sprint(n*n)), 0644) }',
}  # fmt: skip


@pytest.mark.parametrize("language", SQUARES)
@pytest.mark.one_case
def test_a_number_goes_in_and_its_square_comes_out(box: Sandbox, needs: Callable[[str], None], language: str) -> None:
    needs(language)
    result = box.run(SQUARES[language], language, files=exchange_files({"n": "12"}, ["square"]))
    assert result.ok, result.stderr
    assert output_value("square", box.read_file(output_file("square"))) == 144


def run_cell(sandboxes: NotebookSandboxes, cell: str, **variables: str) -> CellOutcome:
    async def work() -> CellOutcome:
        io = CellIO(on_output=lambda stream, text: None, cancel=asyncio.Event())
        return await sandboxes.run(parse_cell(cell, CellOptions()), io, variables=variables)

    return asyncio.run(work())


def test_a_cell_of_a_notebook_exchanges_files_when_its_language_needs_them(needs: Callable[[str], None]) -> None:
    needs("c")
    sandboxes = NotebookSandboxes()
    try:
        _, variables = run_cell(sandboxes, "%%sandbox c -i n -o square\n" + SQUARES["c"], n="12")
        assert variables == {"square": 144}
        with pytest.raises(InvalidRequest, match="-o square: the cell wrote nothing"):
            run_cell(sandboxes, "%%sandbox c -o square\nint main(void) {}")
    finally:
        sandboxes.close()
