"""What every language does alike, each by a program of its own."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from sandbox_kernel import EnforcerUnavailable, ExecRequest, ExecResult, Language, ProcessBackend, Sandbox, Status


@dataclass(frozen=True, kw_only=True)
class Programs:
    """One program for each behaviour; ``None`` where a language has no such thing.

    ``echo`` prints stdin in capitals, ``args`` each argument on a line, ``three`` exits with 3, ``fails`` fails at its
    third line, ``broken`` does not compile because of its third line, ``eats`` takes memory until it is stopped. The
    environment is the same for all (``test_node.py``, ``test_rust.py``); files are tried in ``test_exchanged_files.py``.
    """

    hello: str
    echo: str
    args: str | None
    three: str | None
    fails: str
    fails_at: str
    broken: str
    broken_at: str
    eats: str | None


C_HEAD = "#include <ctype.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
GO_HEAD = 'import ("fmt"; "io"; "os"; "strings")\n'
CPP_HEAD = "#include <fstream>\n#include <iostream>\n"

LANGUAGES = {
    "python": Programs(
        hello="print('hello, wörld 漢字 🙂')",
        echo="import sys; print(sys.stdin.read().upper())",
        args="import sys; print('\\n'.join(sys.argv[1:]))",
        three="raise SystemExit(3)",
        fails="a = 1\n\nraise ValueError('here')",
        fails_at="cell.py\", line 3",
        broken="a = 1\n\nlet b = 2",
        broken_at="cell.py\", line 3",
        eats="a = []\nwhile True: a.append(bytearray(1 << 20))",
    ),
    "javascript": Programs(
        hello="console.log('hello, wörld 漢字 🙂')",
        echo="console.log(require('fs').readFileSync(0, 'utf8').toUpperCase())",
        args="console.log(process.argv.slice(2).join('\\n'))",
        three="process.exit(3)",
        fails="let a = 1\n\nthrow new Error('here')",
        fails_at="/cell/cell.js:3",
        broken="let a = 1\n\nlet b = = 2",
        broken_at="/cell/cell.js:3",
        eats="const a = []; for (;;) a.push(Buffer.alloc(1 << 20, 1))",
    ),
    "typescript": Programs(
        hello="const text: string = 'hello, wörld 漢字 🙂'\nconsole.log(text)",
        echo="import { readFileSync } from 'node:fs'\nconsole.log((readFileSync(0, 'utf8') as string).toUpperCase())",
        args="const words: string[] = process.argv.slice(2)\nconsole.log(words.join('\\n'))",
        three="process.exit(3 as number)",
        fails="interface A { b: number }\n\nthrow new Error('here')",
        fails_at="/cell/cell.ts:3",
        broken="let a: number = 1\n\nlet b: = 2",
        broken_at="/cell/cell.ts:3",
        eats="const a: Buffer[] = []; for (;;) a.push(Buffer.alloc(1 << 20, 1))",
    ),
    "rust": Programs(
        hello='fn main() { println!("hello, wörld 漢字 🙂"); }',
        echo='let text = std::io::read_to_string(std::io::stdin())?; println!("{}", text.to_uppercase());',
        args='for word in std::env::args().skip(1) { println!("{word}"); }',
        three="std::process::exit(3)",
        fails="let a: Vec<i32> = std::env::args().map(|_| 1).collect();\n\nprintln!(\"{}\", a[9]);",
        fails_at="cell.rs:3",
        broken="let a = 1;\n\nlet b: i32 = \"two\";",
        broken_at="cell.rs:3",
        eats="let mut a = vec![]; loop { a.push(vec![1u8; 1 << 20]); if a.len() > 1 << 20 { break } }",
    ),
    "c": Programs(
        hello='#include <stdio.h>\nint main(void) { puts("hello, wörld 漢字 🙂"); }',
        echo=C_HEAD + "int main(void) { for (int c; (c = getchar()) >= 0;) putchar(toupper(c)); }",
        args=C_HEAD + "int main(int c, char **v) { for (int i = 1; i < c; i++) puts(v[i]); }",
        three="int main(void) { return 3; }",
        fails="#include <assert.h>\nint main(int c, char **v) {\nassert(c > 5 && v); }",
        fails_at="cell.c:3",
        broken="int main(void) {\n\nint b = ; }",
        broken_at="cell.c:3",
        eats=C_HEAD + "int main(void) { for (;;) memset(malloc(1 << 20), 1, 1 << 20); }",
    ),
    "cpp": Programs(
        hello=CPP_HEAD + 'int main() { std::cout << "hello, wörld 漢字 🙂\\n"; }',
        echo=CPP_HEAD + "int main() { for (int c; (c = std::cin.get()) >= 0;) std::cout << char(std::toupper(c)); }",
        args=CPP_HEAD + "int main(int c, char **v) { for (int i = 1; i < c; i++) std::cout << v[i] << '\\n'; }",
        three="int main() { return 3; }",
        fails="#include <cassert>\nint main(int c, char **) {\nassert(c > 5); }",
        fails_at="cell.cpp:3",
        broken="int main() {\n\nint b = ; }",
        broken_at="cell.cpp:3",
        eats="#include <vector>\nint main() { std::vector<std::vector<char>> a; for (;;) a.emplace_back(1 << 20, 1); }",
    ),
    "sql": Programs(
        hello="select 'hello, wörld 漢字 🙂' as text",
        echo="select upper(stdin()) as text",
        args=None,
        three=None,
        fails="create table t (a);\n\nselect json('{');",
        fails_at="/cell/cell.sql:3",
        broken="create table t (a);\n\nselect from t;",
        broken_at="/cell/cell.sql:3",
        eats="create table t (a);\n"
        "with recursive c(n) as (select 1 union all select n + 1 from c) insert into t select randomblob(1e6) from c",
    ),
    "ruby": Programs(
        hello="puts 'hello, wörld 漢字 🙂'",
        echo="puts $stdin.read.upcase",
        args="puts ARGV",
        three="exit 3",
        fails="a = 1\n\nraise 'here'",
        fails_at="/cell/cell.rb:3",
        broken="a = 1\n\nb = = 2",
        broken_at="/cell/cell.rb:3",
        eats="a = []; loop { a << 'x' * (1 << 20) }",
    ),
    "lua": Programs(
        hello="print('hello, wörld 漢字 🙂')",
        echo="print(io.read('a'):upper())",
        args="for _, word in ipairs(arg) do print(word) end",
        three="os.exit(3)",
        fails="local a = 1\n\nerror('here')",
        fails_at="/cell/cell.lua:3",
        broken="local a = 1\n\nlocal b = = 2",
        broken_at="/cell/cell.lua:3",
        eats="local a = {}; while true do a[#a + 1] = string.rep('x', 1 << 20) .. #a end",
    ),
    "perl": Programs(
        hello="print 'hello, wörld 漢字 🙂'",
        echo="print uc join '', <STDIN>",
        args='print "$_\\n" for @ARGV',
        three="exit 3",
        fails="$a = 1;\n\ndie 'here'",
        fails_at="/cell/cell.pl line 3",
        broken="$a = 1;\n\n$b = = 2;",
        broken_at="/cell/cell.pl line 3",
        eats="push @a, 'x' x (1 << 20) while 1",
    ),
    "php": Programs(
        hello="echo 'hello, wörld 漢字 🙂';",
        echo="echo strtoupper(stream_get_contents(STDIN));",
        args='echo implode("\\n", array_slice($argv, 1));',
        three="exit(3);",
        fails="$a = 1;\n\nthrow new Exception('here');",
        fails_at="/cell/cell.php:3",
        broken="$a = 1;\n\n$b = = 2;",
        broken_at="/cell/cell.php on line 3",
        eats="$a = []; while (true) $a[] = str_repeat('x', 1 << 20);",
    ),
    "r": Programs(
        hello="cat('hello, wörld 漢字 🙂')",
        echo="cat(toupper(readLines(file('stdin'))))",
        args="writeLines(commandArgs(TRUE))",
        three="quit(status = 3)",
        fails="a <- 1\n\nstop('here')",
        fails_at="/cell/cell.R:3",
        broken="a <- 1\n\nb <- <- 2",
        broken_at="/cell/cell.R:3",
        eats="a <- list(); while (TRUE) a[[length(a) + 1]] <- runif(131072)",
    ),
    "go": Programs(
        hello='import "fmt"\nfunc main() { fmt.Println("hello, wörld 漢字 🙂") }',
        echo=GO_HEAD + "func main() { b, _ := io.ReadAll(os.Stdin); fmt.Print(strings.ToUpper(string(b))) }",
        args=GO_HEAD + 'func main() { fmt.Println(strings.Join(os.Args[1:], "\\n")); _ = io.EOF }',
        three='package main\nimport "os"\nfunc main() { os.Exit(3) }',
        fails='import "os"\nfunc main() {\nvar a []string; println(a[len(os.Args)])\n}',
        fails_at="/cell/cell.go:3",
        broken="func main() {\n\nvar b int = }",
        broken_at="cell.go:3",
        eats='import "bytes"\nfunc main() { a := [][]byte{}; for { a = append(a, bytes.Repeat([]byte("x"), 1<<20)) } }',
    ),
    "command": Programs(
        hello="echo 'hello, wörld 漢字 🙂'",
        echo="tr a-z A-Z",
        args='printf "%s\\n" "$@"',
        three="exit 3",
        fails="a=1\n\nset -u; echo $nothing",
        fails_at="cell.sh: line 3",
        broken="a=1\n\nfi",
        broken_at="cell.sh: line 3",
        eats=None,
    ),
}  # fmt: skip


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest, needs: Callable[[str], None]) -> str:
    name = str(request.param)
    needs(name)
    return name


@pytest.fixture
def programs(language: str) -> Programs:
    return LANGUAGES[language]


def chosen(code: str | None) -> str:
    if code is None:
        pytest.skip("this language has no such thing")
    return code


def last_line(result: ExecResult) -> str:
    """What a program printed; SQL has the head of a table before it."""
    return (result.stdout.strip().splitlines() or [""])[-1]


@pytest.mark.one_case
def test_a_program_in_any_script_says_hello(box: Sandbox, language: str, programs: Programs) -> None:
    result = box.run(programs.hello, language)
    assert (result.status, last_line(result), result.stderr) == (Status.OK, "hello, wörld 漢字 🙂", "")


@pytest.mark.one_case
def test_standard_input_reaches_the_program(box: Sandbox, language: str, programs: Programs) -> None:
    result = box.run(programs.echo, language, stdin="some words\n")
    assert (result.status, last_line(result)) == (Status.OK, "SOME WORDS"), result.stderr


@pytest.mark.one_case
def test_arguments_reach_the_program_unchanged(box: Sandbox, language: str, programs: Programs) -> None:
    given = ["one two", "--flag", "$HOME", "ü"]
    result = box.run(chosen(programs.args), language, args=given)
    assert result.stdout.splitlines() == given, result.stderr


@pytest.mark.one_case
def test_the_exit_code_is_the_programs_own(box: Sandbox, language: str, programs: Programs) -> None:
    result = box.run(chosen(programs.three), language)
    assert (result.status, result.exit_code) == (Status.FAILED, 3), result.stderr


@pytest.mark.one_case
def test_an_error_at_run_time_names_the_line_of_the_cell(box: Sandbox, language: str, programs: Programs) -> None:
    result = box.run(programs.fails, language)
    assert not result.ok
    assert result.status is not Status.COMPILE_FAILED
    assert programs.fails_at in result.stderr


@pytest.mark.one_case
def test_a_mistake_in_the_source_names_the_line_of_the_cell(box: Sandbox, language: str, programs: Programs) -> None:
    result = box.run(programs.broken, language)
    assert result.status in (Status.FAILED, Status.COMPILE_FAILED)
    assert result.exit_code not in (0, None)
    assert programs.broken_at in result.stderr


@pytest.mark.one_case
def test_a_program_that_takes_too_much_memory_is_told_so(box: Sandbox, language: str, programs: Programs) -> None:
    result = box.run(chosen(programs.eats), language, memory_mb=256)
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "memory"), result.stderr


@pytest.mark.one_case
def test_every_language_runs_behind_landlock_too(language: str, programs: Programs) -> None:
    try:
        backend = ProcessBackend(enforcer="landlock")
    except EnforcerUnavailable as error:
        pytest.skip(str(error))
    result = backend.run(ExecRequest(language=Language.parse(language), code=programs.hello, timeout=60))
    assert (result.status, last_line(result), result.stderr) == (Status.OK, "hello, wörld 漢字 🙂", "")
