"""``sandbox-kernel`` as people use it: a program of its own, with exit codes, one-line errors and standard input."""

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import wasmtime

from sandbox_kernel import InvalidRequest, SandboxPolicy
from sandbox_kernel.cli import _options, main, make_parser, split_arguments
from sandbox_kernel.commands.shared import make_env, policy_of
from sandbox_kernel.notebook.options.option_table import BY_NAME, OF_INSTALL

ROOT = Path(__file__).resolve().parents[1]


def cli(*words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end."""
    return subprocess.run(
        [sys.executable, "-m", "sandbox_kernel", *words],
        input=stdin,
        capture_output=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
    )


# Pure parts


def test_durations_and_sizes_are_read_with_their_units_and_what_is_none_is_quoted_with_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def read(option: str, text: str) -> object:
        return getattr(make_parser("run").parse_args(["run", f"--{option}={text}"]), option)

    seconds = {"500ms": 0.5, "5s": 5, "5": 5, "2m": 120, "1h": 3600, "0.5s": 0.5, "1.5m": 90}
    assert {text: read("timeout", text) for text in seconds} == pytest.approx(seconds)
    sizes = {"64M": 64, "1G": 1024, "2048K": 2, "1.5g": 1536, "64MB": 64, "64MiB": 64, "1K": 1}
    assert {text: read("memory", text) for text in sizes} == sizes
    for text in ("", "s", "-5s", "5 s", "5S", "5sec", "1e3s", "nan", "inf", "5s5s", ".5s", "٣s"):
        with pytest.raises(SystemExit):
            read("timeout", text)
        assert "500ms, 5s or 2m" in capsys.readouterr().err
    for text in ("", "64", "M", "-1M", "64 M", "64X", "1e3M", "nanM", "64Mb5"):
        with pytest.raises(SystemExit):
            read("memory", text)
        assert "512K, 64M or 1G" in capsys.readouterr().err


def test_install_takes_the_options_that_the_table_says_a_kernel_may_start_with() -> None:
    assert [name for name in _options("install") if name in BY_NAME] == [option.name for option in OF_INSTALL]


def test_options_are_ours_wherever_they_stand_and_the_programs_come_after_two_dashes() -> None:
    options = make_parser().parse_args(["run", "a.py", "--timeout", "5s", "--memory", "256M"])
    assert (options.file, options.timeout, options.memory, options.args) == ("a.py", 5, 256, [])
    assert split_arguments(["run", "a.py", "--", "-x", "--", "y"]) == (["run", "a.py"], ["-x", "--", "y"])
    assert split_arguments(["run", "a.py"]) == (["run", "a.py"], [])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "-c", "1", "--memroy", "64M"), "unknown option '--memroy'; did you mean --memory?"),
        (("run", "-c", "1", "--memroy=64M"), "unknown option '--memroy'; did you mean --memory?"),
        (("run", "x.py", "--zzzzz"), "run has no option '--zzzzz'; arguments of the program come after --"),
        (("report", "--jsn"), "unknown option '--jsn'; did you mean --json?"),
        (("report", "now"), "report takes no argument 'now'"),
        (("rnu", "-c", "1"), "'rnu' is no command; did you mean sandbox-kernel run -c 1?"),
        (("timeout", "5s"), "did you mean sandbox-kernel run --timeout 5s?"),
        (("--memroy", "1G", "x.py"), "did you mean sandbox-kernel run --memory 1G x.py?"),
        (("pyhton", "-c", "1"), "did you mean sandbox-kernel run --language python -c 1?"),
        (("undo",), "did you mean %sandbox undo in a notebook?"),
        ((__file__,), f"did you mean sandbox-kernel run {__file__}?"),
        (("zzz",), "the commands are: run, install"),
    ],
)
def test_a_mistyped_option_gets_a_suggestion(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_a_policy_is_made_of_a_preset_mounts_and_domains() -> None:
    words = "--policy=strict --mount /a:/data --mount /b:/out:rw --allow-net example.org --allow-net *.example.com:8443"
    made = policy_of(make_parser("run").parse_args(["run", *words.split()]))
    wanted = SandboxPolicy().mount("/a", "/data").mount("/b", "/out", writable=True)
    assert made == wanted.allow_domain("example.org").allow_domain("*.example.com", 8443)
    assert policy_of(make_parser("run").parse_args(["run"])) == SandboxPolicy.preset("standard")


def test_a_wrong_mount_or_domain_is_refused_with_its_option_and_form() -> None:
    with pytest.raises(InvalidRequest, match=r"--mount '/a'.*HOST:GUEST"):
        policy_of(make_parser("run").parse_args(["run", "--mount=/a"]))
    with pytest.raises(InvalidRequest, match=r"--allow-net '.*must be a number"):
        policy_of(make_parser("run").parse_args(["run", "--allow-net=example.org:http"]))


def test_a_variable_is_given_or_taken_from_the_caller_but_never_made_up() -> None:
    assert make_env(["A=1", "B=x=y", "C", "D="], {"C": "here"}) == {"A": "1", "B": "x=y", "C": "here", "D": ""}
    with pytest.raises(InvalidRequest, match="MISSING=VALUE"):
        make_env(["MISSING"], {})


# Running


@pytest.mark.slow
def test_a_file_runs_and_options_behind_it_are_in_force(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("import time; print('so far', flush=True); time.sleep(60)")
    done = cli("run", str(script), "--timeout", "1s", "--memory", "256M")
    assert (done.stdout, done.returncode) == (b"so far\n", 124)
    assert b"time limit of 1 s exceeded" in done.stderr


def test_a_program_gets_its_arguments_and_its_exit_code_is_ours(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("import sys; print(sys.argv[1:]); sys.exit(42)")
    done = cli("run", str(script), "plain", "--", "--timeout", "-f", "x")  # -f is a kernel's, before the dashes
    assert (done.stdout, done.returncode) == (b"['plain', '--timeout', '-f', 'x']\n", 42)
    assert b"exit code 42" in done.stderr


def test_a_shell_line_runs_with_standard_input() -> None:
    done = cli("run", "-l", "command", "-c", "tr a-z A-Z; echo problem >&2", "--quiet", stdin=b"shout \xc3\xa9\n")
    assert (done.stdout, done.stderr, done.returncode) == ("SHOUT é\n".encode(), b"problem\n", 0)


def test_a_program_may_come_from_standard_input() -> None:
    done = cli("run", "-", "-l", "python", "-q", stdin=b"print(6 * 7)")
    assert (done.stdout, done.returncode) == (b"42\n", 0)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["-l", "command", "-c", "kill -SEGV $$"], 139), (["-m", "64M", "-c", "x = bytearray(10**9)"], 124)],
    ids=["a signal", "memory, although the program was told"],
)
def test_a_signal_and_a_limit_are_the_exit_codes_that_shells_use(words: list[str], code: int) -> None:
    assert cli("run", "-q", *words).returncode == code


def test_the_json_form_is_the_whole_result_and_nothing_else() -> None:
    done = cli("run", "-c", "import os; print(os.environ['A']); 1/0", "--env", "A=1", "--json")
    told = json.loads(done.stdout)
    assert (told["status"], told["stdout"], told["exit_code"], done.returncode) == ("failed", "1\n", 1, 1)
    assert "ZeroDivisionError" in told["stderr"]
    assert done.stderr == b""


def test_a_policy_file_and_a_mount_are_in_force(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("from outside")
    (tmp_path / "policy.toml").write_text("allowProcessSpawn = false\n[env]\nA = '1'\n")
    code = "import os; print(open('/data/in.txt').read(), os.environ['A'])\ntry: os.fork()\nexcept OSError: print('no')"
    done = cli("run", "-c", code, "--policy", str(tmp_path / "policy.toml"), "--mount", f"{tmp_path}:/data", "-q")
    assert done.stdout == b"from outside 1\nno\n", done.stderr


# Bad usage: exit code 2 and a short message, never a traceback


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "command"),
        (("frobnicate",), "frobnicate"),
        (("run",), "FILE or -c"),
        (("run", "a.py", "-c", "1"), "FILE or -c"),
        (("run", "-c", "1", "--timeout", "soon"), "'soon' is not a duration"),
        (("run", "-c", "1", "--timeout", "0s"), "above zero"),
        (("run", "-c", "1", "--timeout", "999999h"), "a week"),
        (("run", "-c", "1", "--memory", "lots"), "'lots' is not a size"),
        (("run", "-c", "1", "--memory", "1M"), "give at least"),
        (("run", "-c", "1", "--frob"), "--frob"),
        (("run", "-c", " "), "code is empty"),
        (("run", "-c", "1", "-l", "cobol"), "unsupported language 'cobol'"),
        (("run", "-c", "1", "--env", "A B=1"), "environment name"),
        (("run", "-c", "1", "--env", "LD_PRELOAD=x"), "LD_PRELOAD"),
        (("run", "-c", "1", "--policy", "nowhere.toml"), "nowhere.toml"),
        (("run", "-c", "1", "--mount", "/nowhere/at/all:/data"), "/nowhere/at/all"),
        (("run", "/nowhere/a.py"), "program '/nowhere/a.py' cannot be read: No such file or directory; give a FILE"),
        (("run", "/etc/hostname"), "add --language NAME"),
        (("run", "-c", "1", "--mount", "x"), "HOST:GUEST"),
        (("run", "-c", "1", "--allow-net", "x:"), "--allow-net 'x:': port '' must be a number"),
        (("run", "-c", "1", "--secret", "TOKEN"), "--secret 'TOKEN' must be NAME@HOST"),
        (("run", "-c", "1", "--policy", "nope"), "neither a preset nor a file; presets: standard, strict"),
        (("mcp", "--port", "5"), "add --http"),
        (("report", "--", "x"), "no arguments after --"),
        (("lab", "--allow-root"), "options of Jupyter come after --"),
        (("report", "--json", "--html"), "not allowed with argument"),
        (("report", "--require", "files,,"), "areas or lines"),
    ],
)
def test_bad_usage_is_a_short_message_and_no_traceback(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    try:
        code: object = main(words)
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr().err + (code if isinstance(code, str) else "")
    assert code == 2
    assert says in told
    assert "Traceback" not in told


def test_source_that_is_no_utf8_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"print('\xff')")
    done = cli("run", str(tmp_path / "a.py"))
    assert done.returncode == 2
    assert done.stderr.startswith(b"sandbox-kernel: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("word", "loaded"),
    [("run", {"run"}), ("lab", {"install"}), ("--help", set())],
)
@pytest.mark.one_case
def test_only_the_command_that_is_asked_for_is_loaded(word: str, loaded: set[str]) -> None:
    code = (
        "import sys, sandbox_kernel.cli as cli\n"
        "try: cli.main([sys.argv[1], '--help'])\n"
        "except SystemExit: pass\n"
        "names = {name for name, _ in cli._COMMANDS.values()}\n"
        "print('loaded', *(name for name in names if f'sandbox_kernel.commands.{name}' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, word], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert set(done.stdout.splitlines()[-1].split()[1:]) == loaded


@pytest.mark.slow
def test_words_after_two_dashes_reach_jupyterlab_and_root_may_start_it() -> None:
    told = json.loads(cli("lab", ".", "--", "--port", "9123", "--show-config-json").stdout)["ServerApp"]
    assert (told["port"], told.get("allow_root", False)) == (9123, os.geteuid() == 0)


def test_the_version_is_the_packages() -> None:
    import sandbox_kernel

    assert cli("--version").stdout.decode().strip() == f"sandbox-kernel {sandbox_kernel.__version__}"


# The report


@pytest.mark.slow
def test_the_report_is_measured_and_what_it_requires_is_enforced() -> None:
    done = cli("report", "--json", "--require", "files,network,memory")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["isolation"] == "process+sandbox"
    areas = {line["area"] for line in told["lines"]} - {"gpu"}  # a host with a card has that too
    assert areas == {"files", "processes", "network", "kernel", "limits"}


@pytest.mark.slow
def test_the_report_of_another_backend_and_policy_is_of_their_walls() -> None:
    done = cli("report", "--json", "--backend", "wasm", "--require", "files,network,kernel,limits")
    report = json.loads(done.stdout)
    assert (report["backend"], report["isolation"]) == ("wasm", "wasm")
    assert "wasm" in report["languages"] and all(line["enforced"] for line in report["lines"]), report
    done = cli("report", "--json", "--policy", "strict")
    (line,) = (line for line in json.loads(done.stdout)["lines"] if line["name"] == "processes")
    assert line["evidence"] == "no process may be started under this policy"


@pytest.mark.slow
def test_a_requirement_that_is_not_met_prints_no_report_and_fails() -> None:
    done = cli("report", "--require", "teleportation")
    assert (done.stdout, done.returncode) == (b"", 2)
    assert b"teleportation" in done.stderr


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_prepare_tells_what_it_does_and_is_quick_the_second_time() -> None:
    first = subprocess.run(
        [sys.executable, "-m", "sandbox_kernel", "prepare", "js"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (first.returncode, first.stdout) == (0, "")
    second = cli("prepare", "javascript")
    assert (second.returncode, second.stderr) == (0, b"")
    unknown = cli("prepare", "r")
    assert unknown.returncode == 2
    assert b"it runs wasm, javascript" in unknown.stderr


@pytest.mark.slow
def test_a_run_that_requires_what_is_not_there_does_not_run() -> None:
    done = cli("run", "-c", "print('ran')", "--require", "teleportation")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"teleportation" in done.stderr
    done = cli("run", "-c", "print('ran')", "--require", "files,memory", "-q")
    assert (done.returncode, done.stdout) == (0, b"ran\n")


@pytest.mark.slow
def test_a_fresh_report_is_measured_again_and_a_second_one_is_not() -> None:
    first, second = (json.loads(cli("report", "--json", *words).stdout) for words in (["--fresh"], []))
    assert first["measured_at"] == second["measured_at"]
    assert json.loads(cli("report", "--json", "--fresh").stdout)["measured_at"] > first["measured_at"]


@pytest.mark.slow
def test_the_page_of_the_report_holds_what_the_terminal_shows() -> None:
    page, text = cli("report", "--html").stdout.decode(), cli("report").stdout.decode()
    assert page.count("✓") == text.count("✓")
    assert "<details" in page


@pytest.mark.parametrize("form", ["wat", "wasm"])
@pytest.mark.one_case
def test_a_module_is_run_from_its_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"cell.{form}"
    ends = '(module (import "wasi_snapshot_preview1" "proc_exit" (func $e (param i32))) (func (export "_start") (call $e (i32.const 200))))'
    path.write_bytes(ends.encode() if form == "wat" else bytes(wasmtime.wat2wasm(ends)))
    done = cli("run", str(path))
    assert done.returncode == 200, done.stderr
    assert b"WebAssembly" in done.stderr


# Where people start it: closed streams, readers that leave, other locales, little of everything


def in_a_shell(
    script: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ``$SK`` is the command."""
    command = f"{shlex.quote(sys.executable)} -m sandbox_kernel"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    return subprocess.run(
        ["bash", "-c", script.replace("$SK", command)], capture_output=True, text=True, timeout=100, check=False, env=environment, cwd=cwd,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words", ["run -q -c 'for i in range(100000): print(i)'", "run --json -c 'print(\"x\" * 900000)'"]
)
@pytest.mark.one_case
def test_a_reader_that_leaves_early_hears_nothing_more(words: str) -> None:
    done = in_a_shell(f'set +o pipefail; $SK {words} | head -1; echo "${{PIPESTATUS[0]}}"')
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""


@pytest.mark.parametrize(("closed", "out"), [("<&-", "1\n"), (">&-", ""), ("2>&-", "1\n"), ("<&- >&- 2>&-", "")])
@pytest.mark.one_case
def test_it_runs_with_any_of_its_streams_closed(closed: str, out: str) -> None:
    done = in_a_shell(f"$SK run -c 'print(1)' {closed}")
    assert (done.returncode, done.stdout) == (0, out)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(
    not f"{ROOT}{sys.prefix}".isascii(),
    reason="in this locale Python itself cannot read the .pth file of an editable install in this folder",
)
def test_a_locale_of_ascii_neither_stops_a_program_nor_its_output() -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    done = in_a_shell('$SK run -c \'import sys; print("é", sys.argv[1] == "ü")\' -- ü', env=plain)
    assert (done.returncode, done.stdout) == (0, "\\xe9 True\n"), done.stderr


@pytest.mark.parametrize("files", [64, 30])
@pytest.mark.parametrize(("language", "code"), [("python", "print(1)"), ("sh", "echo 1")])
@pytest.mark.one_case
def test_it_runs_where_few_files_may_be_open(files: int, language: str, code: str) -> None:
    done = in_a_shell(f"ulimit -n {files}; $SK run -q -l {language} -c '{code}'")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.slow
def test_a_folder_that_is_gone_is_missed_only_where_it_is_needed(tmp_path: Path) -> None:
    gone = "mkdir gone && cd gone && rmdir ../gone && "
    assert in_a_shell(f"{gone} $SK run -q --mount /etc:/data -c 'print(1)'", tmp_path).stdout == "1\n"
    for option in ("--policy data", "--mount .:/data"):
        done = in_a_shell(f"{gone} $SK run {option} -c 'print(1)'", tmp_path)
        assert done.returncode == 2
        assert "go to a folder that exists" in done.stderr


def test_a_program_that_asks_for_nothing_does_not_wait_for_the_end_of_the_input() -> None:
    words = [sys.executable, "-m", "sandbox_kernel", "run", "-q", "-c", "print(6 * 7)"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        # Its standard input stays open all the while.
        assert child.stdout.read() == b"42\n"
        assert child.wait() == 0


def test_a_program_can_be_talked_to_while_it_runs() -> None:
    code = "name = input('name? '); print('hello', name, flush=True); print(input())"
    words = [sys.executable, "-m", "sandbox_kernel", "run", "-q", "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.read(6) == b"name? "
        child.stdin.write(b"Ada\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"hello Ada\n"
        child.stdin.write(b"bye\n")
        child.stdin.close()
        assert child.stdout.read() == b"bye\n"


@pytest.mark.parametrize("size", [0, 10, 3 << 20])
@pytest.mark.one_case
def test_a_file_as_input_arrives_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "in").write_bytes(b"x" * size)
    words = [sys.executable, "-m", "sandbox_kernel", "run", "-q", "-l", "command", "-c", "wc -c"]
    with (tmp_path / "in").open("rb") as file:
        assert int(subprocess.run(words, stdin=file, capture_output=True, check=True).stdout) == size


def test_a_program_that_leaves_early_ends_a_run_whose_input_never_does() -> None:
    words = [sys.executable, "-m", "sandbox_kernel", "run", "-q", "-l", "command", "-c", "head -c 3"]
    with open("/dev/zero", "rb") as endless:
        assert subprocess.run(words, stdin=endless, capture_output=True, check=True).stdout == b"\0\0\0"
