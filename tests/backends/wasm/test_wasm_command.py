"""The shell and its commands inside WebAssembly: what they do, and where they end."""

from collections.abc import Callable

import pytest

from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.languages.guest_catalogue import catalogue
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status

Sh = Callable[..., ExecResult]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def sh(guest_backend: WasmBackend) -> Sh:
    guest_backend.prepare([Language.COMMAND])

    def run(script: str, *, timeout: float = 60, **fields: object) -> ExecResult:
        return guest_backend.run(
            ExecRequest(language=Language.COMMAND, code=script, timeout=timeout, **fields)  # type: ignore[arg-type]
        )

    return run


FRUIT = "printf 'banana\\napple\\ncherry\\n' > a.txt\n"


#: What scripts print, each in a folder and a shell of its own.
PRINTED = [
    # commands
    ("echo hello", "hello\n"),
    (FRUIT + "cat a.txt", "banana\napple\ncherry\n"),
    ("touch b a; ls", "a\nb\n"),
    ("touch x.txt y.md; find . -name '*.txt'", "./x.txt\n"),
    (FRUIT + "grep an a.txt", "banana\n"),
    (FRUIT + "grep -n -i AP a.txt", "2:apple\n"),
    (FRUIT + "wc -l < a.txt | tr -d ' '", "3\n"),
    ("mkdir -p d/e && touch d/e/f && ls d/e", "f\n"),
    ("echo 'a b a' | sed 's/a/X/g'", "X b X\n"),
    ("basename /x/y.txt .txt; dirname /x/y.txt", "y\n/x\n"),
    (FRUIT + "head -n 2 a.txt", "banana\napple\n"),
    (FRUIT + "tail -n 1 a.txt", "cherry\n"),
    (FRUIT + "sort a.txt", "apple\nbanana\ncherry\n"),
    ("printf 'a\\na\\nb\\n' | uniq -c | tr -s ' '", " 2 a\n 1 b\n"),
    ("echo x > a; cp a b; mv b c; rm a; ls", "c\n"),
    ("printf hello | base64; printf aGVsbG8= | base64 -d", "aGVsbG8=\nhello"),
    ("printf hello | sha256sum | cut -c1-8", "2cf24dba\n"),
    ("printf 'hello\\n' | md5sum | cut -c1-8", "b1946ac9\n"),
    ("printf 'hello\\n' | sha1sum | cut -c1-8", "f572d396\n"),
    ("echo a,b,c | cut -d, -f2", "b\n"),
    ("seq 3", "1\n2\n3\n"),
    ("seq 3 | tac", "3\n2\n1\n"),
    ("echo abc | rev", "cba\n"),
    ("whoami; hostname", "sandbox\nsandbox\n"),
    ("true && echo yes; false || echo no", "yes\nno\n"),
    ("expr 3 + 4", "7\n"),
    ("printf 'a\\nb\\n' | nl", "     1\ta\n     2\tb\n"),
    ("echo text > f; file f", "f: ASCII text\n"),
    ("printf 'ab\\0defghi' | strings", "defghi\n"),
    ("X=1 printenv X", "1\n"),
    ("echo abcdefghij | fold -w 5", "abcde\nfghij\n"),
    ("mkdir d; rmdir d; ls", ""),
    ("echo 'one two three' | awk '{print $2}'", "two\n"),
    ("echo '{\"a\":[1,2,3]}' | jq '.a | add'", "6\n"),
    ("echo '[{\"a\":1},{\"a\":2}]' | jq -c '.[] | select(.a == 1)'", '{"a":1}\n'),
    ("echo '{\"b\":1,\"a\":2}' | jq -r 'keys[]'", "a\nb\n"),
    ("printf 'x y\\n' | tr a-z A-Z", "X Y\n"),
    ("echo a | tee f > /dev/null; cat f", "a\n"),
    ("printf 'a\\nb\\n' | xargs -n 1 echo item", "item a\nitem b\n"),
    ("echo hello | gzip -c | gunzip -c", "hello\n"),
    ("printf '%05d %s\\n' 42 x", "00042 x\n"),
    ("SANDBOX=1 env | grep SANDBOX", "SANDBOX=1\n"),
    ("date +%Y | grep -c '^20'", "1\n"),
    ("sleep 0; echo slept", "slept\n"),
    # the shell itself
    ("x=41; echo $((x + 1))", "42\n"),
    ("if [ 1 -eq 1 ]; then echo yes; else echo no; fi", "yes\n"),
    ("for i in 1 2 3; do echo $i; done", "1\n2\n3\n"),
    ('f() { echo "arg $1"; }; f z', "arg z\n"),
    ("echo ${missing:-default}", "default\n"),
    ("echo $(echo inner)", "inner\n"),
    # the shell's own words
    ("eval 'echo evaluated'", "evaluated\n"),
    ("echo 'v=5' > lib.sh; . ./lib.sh; echo $v; source ./lib.sh; echo $v", "5\n5\n"),
    ("L='a b c'; for i in $L; do echo [$i]; done", "[a]\n[b]\n[c]\n"),
    ("set -- 'a b' c; for i in \"$@\"; do echo [$i]; done", "[a b]\n[c]\n"),
    ("x=0; while [ $x -lt 3 ]; do x=$((x+1)); done; echo $x", "3\n"),
    ("case word in w*) echo matched;; *) echo not;; esac", "matched\n"),
    ("echo done; echo if then else", "done\nif then else\n"),
    ("echo $((5 > 3)) $((2 - -3))", "1 5\n"),
    ("X=1 true; echo [$X]", "[]\n"),
    ("f() { g=5; }; f; echo $g", "5\n"),
    ("mkdir d; test -f d || echo 'not a file'; [ ! -f x ] && echo absent", "not a file\nabsent\n"),
    ("v=é; echo ${#v}", "1\n"),
    ("for i in b a; do echo $i; done | sort", "a\nb\n"),
    ("ls nothere 2> err; [ -s err ] && echo written", "written\n"),
    ("ls nothere 2> /dev/null; echo quiet", "quiet\n"),
    ("cat <<EOF\nhere $((1+1))\nEOF", "here 2\n"),
    ("[[ abc =~ b ]] && echo yes; echo {a..c}", "yes\na b c\n"),
    ("printf '/wAB' | base64 -d > bin; base64 bin; wc -c < bin | tr -d ' '", "/wAB\n3\n"),
    ("which ls grep", "/usr/bin/ls\n/usr/bin/grep\n"),
    ("echo x > /tmp/t; cat /tmp/t; ls /", "x\nbox\ndev\ntmp\n"),
    ("touch a.txt b.txt c.md; echo *.txt", "a.txt b.txt\n"),
    # what just-bash leaves out or does otherwise
    ("touch b.txt a.txt; ls *.txt; mkdir d; touch d/f; ls d a.txt", "a.txt\nb.txt\na.txt\n\nd:\nf\n"),
    (FRUIT + "split -l 1 a.txt; ls x*; cat xab", "xaa\nxab\nxac\napple\n"),
    ("trap 'echo no' EXIT; trap - EXIT; echo a", "a\n"),
    ("sh -c 'echo $0 $1' a b; printf 'echo $1\\n' > s.sh; sh s.sh q", "a b\nq\n"),
    ("a=(1 2 3); declare -A m; m[k]=v; echo ${a[1]} ${#a[@]} ${m[k]}", "2 3 v\n"),
    ("touch 1.txt; find . -name '*.txt' -exec echo got {} \\;", "got ./1.txt\n"),
    ("set -o pipefail; false | true; echo $?", "1\n"),
    ("echo a > f; cp f g 2>&1; cmp=$(cat f g); echo $cmp", "a a\n"),
]


@pytest.mark.slow
def test_commands_and_a_shell_run(sh: Sh) -> None:
    steps = [f"mkdir /box/{n}; cd /box/{n}\n(\n{script}\n)\necho '<end>'\n" for n, (script, _) in enumerate(PRINTED)]
    result = sh("".join(steps), timeout=120)
    assert (result.stderr, result.status) == ("", Status.OK)
    *shown, rest = result.stdout.split("<end>\n")
    wrong = {script: got for (script, wanted), got in zip(PRINTED, shown, strict=True) if got != wanted}
    assert (wrong, rest) == ({}, "")


def test_a_trap_runs_at_the_end_of_the_script(sh: Sh) -> None:
    assert sh("trap 'echo bye' EXIT; echo hi").stdout == "hi\nbye\n"
    assert sh('c() { echo "$x $? $PWD"; }; trap c EXIT; x=5; cd /tmp; true').stdout == "5 0 /tmp\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 42", 42),
        ("false", 1),
        ("set -e; false; echo never", 1),
        ("nosuchcommand", 127),
        ("echo a > x; echo b > y; diff x y", 1),
        ("grep nothing /dev/null", 1),
        ("trap 'true' EXIT; exit 3", 3),
        ("trap 'exit 9' EXIT; true", 9),
        ("set -e; trap 'echo end' EXIT; false; echo never", 1),
    ],
)
@pytest.mark.one_case
def test_exit_codes_are_those_of_the_script(sh: Sh, script: str, code: int) -> None:
    result = sh(script)
    assert (result.status, result.exit_code) == (Status.FAILED, code)


def test_a_script_gets_its_input_arguments_files_and_environment(sh: Sh) -> None:
    result = sh(
        'cat; echo "$1|$2|$#"; cat given.txt; echo $NAME; echo new > made.txt; mkdir sub',
        stdin="from stdin\n",
        args=["one two", "$(boom)"],
        files={"given.txt": "file\n"},
        env={"NAME": "value"},
    )
    assert (result.stdout, result.status) == ("from stdin\none two|$(boom)|2\nfile\nvalue\n", Status.OK)
    assert {(change.path, change.kind) for change in result.changes} == {("made.txt", "created"), ("sub", "created")}


@pytest.mark.slow
def test_statements_that_ended_before_a_timeout_keep_their_output(sh: Sh) -> None:
    result = sh("echo first; while true; do :; done", timeout=5)
    assert (result.status, result.stdout) == (Status.TIMEOUT, "first\n")


def test_output_is_told_statement_by_statement(guest_backend: WasmBackend, sh: Sh) -> None:
    seen: list[str] = []
    request = ExecRequest(language=Language.COMMAND, code="echo one; echo two >&2; echo three", timeout=60)
    guest_backend.run(request, RunContext(on_output=lambda stream, text: seen.append(f"{stream}:{text}")))
    assert (
        sorted(seen) == ["stderr:two\n", "stdout:one\n", "stdout:three\n"]
        or "".join(text for text in seen if text.startswith("stdout")) == "stdout:one\nthree\n"
    )


def test_the_host_and_the_jail_are_out_of_reach_also_by_links(sh: Sh) -> None:
    paths = "/etc/shadow /etc/hostname /proc/self/environ ../../etc/passwd /root"
    result = sh(
        f"for p in {paths}; do cat $p || ls $p && echo reached; done\nln -s /etc/passwd l; ln -s ../etc/passwd m; cat l m"
    )
    assert (result.exit_code != 0, result.stdout) == (True, "")


def test_a_syntax_error_is_a_failure_with_words(sh: Sh) -> None:
    result = sh("if true; then echo")
    assert result.status is Status.FAILED
    assert "syntax error" in result.stderr


@pytest.mark.slow
def test_commands_that_cannot_be_had_say_so(sh: Sh) -> None:
    """The catalogue names them, with the reason."""
    for command in ("html-to-markdown", "python3", "node", "git", "patch", "tar", "zip", "bc"):
        result = sh(f"which {command}; {command} a")
        assert (result.exit_code != 0, result.stdout) == (True, ""), command
        assert command in result.stderr and command in catalogue()[Language.COMMAND].can
    result = sh("trap 'echo x' ERR")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "trap: ERR: not supported here" in result.stderr
