"""The cell parser: what a user may write, and what each mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel import InvalidRequest, Language, SandboxError
from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.jail.accounting.cgroups import page_memory_mb
from sandbox_kernel.model.units import duration_text, parse_bytes, parse_duration, size_text
from sandbox_kernel.notebook.options.cell_options import SESSION_LANGUAGES, CellOptions, policy_of, policy_rows
from sandbox_kernel.notebook.options.option_table import BY_NAME, COMMAND_NAMES, OPTIONS, usage
from sandbox_kernel.notebook.options.parse_cell import (
    MAX_LINE,
    MAX_LINES,
    MAX_REPEATS,
    LineCommand,
    first_defaults,
    keep_user_limits,
    parse_cell,
    parse_line,
    parse_magic,
    parse_options,
    split_words,
)
from sandbox_kernel.policy import Mount, SandboxPolicy
from sandbox_kernel.policy.network_rule import NetworkRule
from sandbox_kernel.session.language_workers import ENGINES
from sandbox_kernel.util.values import dataclass

NONE = CellOptions()


def cell(text, defaults=NONE):
    return parse_cell(text, defaults)


def refused(text, defaults=NONE):
    with pytest.raises(InvalidRequest) as caught:
        parse_cell(text, defaults)
    return str(caught.value)


def test_a_cell_without_a_magic_runs_as_it_stands_under_the_defaults():
    plan = cell("print(1)\nprint(2)\n", CellOptions(timeout_s=3.0))
    assert plan.code == "print(1)\nprint(2)\n"
    assert plan.options.timeout_s == 3.0
    assert plan.options.effective_language is Language.PYTHON


def test_every_option_of_the_table_is_understood_together():
    plan = cell(
        "%%sandbox js --timeout 500ms --memory 64M --cpu 2s --processes 8 --disk 1G --output 64K --backend wasm "
        "--session a-b --stdin 'two words' --env A=1 --env B='x y' --arg one --arg --two --allow-net example.org "
        "--allow-net api.example.org:8443 --mount data:/data --mount /srv/x:/x:rw -i a -i b -o c --policy strict "
        "--check --checkpoints 0 --quiet\n1"
    )
    assert plan.options == CellOptions(
        language=Language.JAVASCRIPT,
        timeout_s=0.5,
        memory_mb=64,
        cpu_seconds=2.0,
        processes=8,
        disk_mb=1024,
        output_bytes=65536,
        backend="wasm",
        session="a-b",
        stdin="two words",
        env=(("A", "1"), ("B", "x y")),
        args=("one", "--two"),
        allow_net=(NetworkRule("example.org"), NetworkRule("api.example.org", (8443,))),
        mounts=(Mount("data", "/data"), Mount("/srv/x", "/x", True)),
        inputs=("a", "b"),
        outputs=("c",),
        policy="strict",
        check=True,
        checkpoints=0,
        quiet=True,
    )
    assert cell("%%sandbox --fresh --stdin-var text --python 3.12\n1").options == CellOptions(
        fresh=True, stdin_var="text", python="3.12"
    )


def test_options_may_come_before_the_language_and_be_joined_with_an_equals_sign():
    assert cell("%%sandbox --timeout=2m --stdin=a=b rust\nx").options == CellOptions(
        language=Language.RUST, timeout_s=120.0, stdin="a=b"
    )


def test_what_words_writes_the_parser_reads_back():
    line = (
        "typescript --timeout 90s --cpu 250ms --memory 3M --disk 2G --output 1536K --processes 3 --checkpoints 2 "
        "--backend process --session s --stdin 'a b' --policy p.toml --arg '' -i x -o y --env 'K=v w' "
        "--allow-net example.org:81 --mount a:/b:rw --check --quiet"
    )
    options = cell(f"%%sandbox {line}\n1").options
    assert cell(f"%%sandbox {options.words()}\n1").options == options


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--timeout 0s", "--timeout '0s' must be above zero"),
        ("--timeout -3s", "--timeout '-3s' is not a duration; give a number with a unit: 500ms, 5s or 2m"),
        ("--timeout 5y", "--timeout '5y' is not a duration"),
        ("--timeout nan", "--timeout 'nan' is not a duration"),
        ("--timeout 1e9s", "is not a duration"),
        ("--timeout 99999h", "--timeout '99999h': timeout"),
        ("--timeout", "--timeout needs a value: a number with a unit: 500ms, 5s or 2m"),
        ("--timeout 1s --timeout 2s", "--timeout is given twice"),
        ("--memory 0M", "--memory '0M' must be above zero"),
        (
            "--memory 256",
            "--memory '256' is not a size; give a number with a unit: 512K, 64M or 1G (did you mean 256M?)",
        ),
        ("--memory 64Q", "--memory '64Q' is not a size"),
        ("--memory 99999999T", "the memory limit in MB must be a whole number between 1 and"),
        ("--processes 0", "--processes '0' must be a whole number from 1 upwards"),
        ("--processes 99999", "--processes '99999': limits.processes must be a whole number between"),
        ("--processes ²", "--processes '²' must be a whole number"),
        ("--output 2T", "--output '2T': at most 16M are kept"),
        ("--output 16385K", "at most 16M are kept"),
        ("--checkpoints -1", "--checkpoints '-1' must be a whole number from 0"),
        ("--backend docker", "--backend 'docker' is unknown; give one of: auto, process, wasm, dask"),
        ("--session ../x", "--session '../x' is not a name"),
        ("--fresh --session a", "--fresh and --session exclude each other"),
        ("--stdin a --stdin-var b", "--stdin and --stdin-var exclude each other"),
        ("--stdin-var 1x", "--stdin-var '1x' is not the name of a variable"),
        ("--env A", "--env 'A' has no '='; give NAME=VALUE"),
        ("--env 1A=2", "--env '1A=2': environment name '1A' is not usable"),
        ("--env LD_PRELOAD=x", "tells the loader to run other code"),
        ("--env A=1 --env A=2", "--env 'A=2' is given twice"),
        (
            "--allow-net http://x.org/a",
            "--allow-net 'http://x.org/a' is a URL or part of one; give its domain alone: x.org",
        ),
        ("--allow-net x.org:99999", "--allow-net 'x.org:99999'"),
        ("--allow-net x.org:", "port '' must be a number from 1 to 65535"),
        ("--allow-net x.org --allow-net X.Org.", "--allow-net 'X.Org.' is given twice"),
        ("--allow-net data.example,example.org", "repeat the option for each"),
        ("--allow-net data.example:https", "port 'https' must be a number from 1 to 65535"),
        ("--allow-net *", "allowNetwork = true"),
        ("--mount /x", "--mount '/x': a part is missing; give HOST:GUEST"),
        ("--mount /x:y", "must be an absolute path"),
        ("--mount /x:/etc", "is a place of the sandbox itself"),
        ("--mount a:/d --mount b:/d", "--mount 'b:/d' is given twice"),
        ("-i a.b", "-i 'a.b' is not the name of a variable"),
        ("-o a -o a", "-o 'a' is given twice"),
        ("--quiet=yes", "--quiet takes no value"),
        ("--quiet --quiet", "--quiet is given twice"),
        ("--timout 1s", "unknown option '--timout'; did you mean --timeout?"),
        ("--zzz", "unknown option '--zzz'; known options: --timeout --memory"),
        ("-", "unknown option '-'"),
        ("pyton", "'pyton' is not a language; did you mean python?"),
        ("bsh", "did you mean bash?"),
        ("timeout 10s", "'timeout' is not a language; did you mean --timeout?"),
        ("python timeout 10s", "the language is already python; did you mean --timeout?"),
        ("undo", "'undo' is not a language; did you mean %sandbox undo?"),
        ("--undo", "unknown option '--undo'; did you mean %sandbox undo?"),
        ("--rust", "unknown option '--rust'; did you mean rust?"),
        ("klingon", "unsupported language 'klingon'; expected one of: python"),
        ("python rust", "'rust' is one word too many: the language is already python"),
        ("--stdin 'open", "no closing quotation; close the quote"),
        ("rust --session a", "rust has no sessions"),
        ("js --python 3.12", "--python '3.12' does not fit a javascript cell"),
        ("--policy ''", "--policy '' is empty"),
        ("x" * 70000, "the option line has"),
    ],
)
def test_a_mistake_is_answered_with_the_option_and_the_accepted_form(line, expected):
    assert expected in refused(f"%%sandbox {line}\nprint(1)")


@pytest.mark.parametrize(
    ("text", "program"),
    [
        # Magic lines become empty lines, so that line numbers are those of the cell.
        ("%%sandbox c\n\nint main() {}", "\n\nint main() {}"),
        ("%sandbox --timeout 2s\n%sandbox policy\nx", "\n\nx"),
        ("%%sandbox   \nx", "\nx"),
        ("%%sandbox\t\r\nx", "\nx"),
        ("\n\n%%sandbox\nx", "\n\n\nx"),
        ("\ufeff%%sandbox\nx", "\nx"),
        # A shebang stays at the very beginning.
        ("%%sandbox sh\n#!/bin/sh\necho", "#!/bin/sh\necho"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("%%sandbox rust --timeout 1s\r\nfn main() {\r\n}", "\nfn main() {\n}"),
        # Comments for nbval are dropped in every language.
        ("%%sandbox rust\n# NBVAL_IGNORE_OUTPUT\nfn main() {}", "\n\nfn main() {}"),
        ("# NBVAL_IGNORE_OUTPUT\n%%sandbox c\nint x;", "\n\nint x;"),
        ("%%sandbox js\n// NBVAL_SKIP\n1", "\n\n1"),
        ("%%sandbox js\n1 // NBVAL_SKIP", "\n1 // NBVAL_SKIP"),
        # Other magics are left to the session in the sandbox.
        ("%%sandboxes\n%timeit 1\n!ls", "%%sandboxes\n%timeit 1\n!ls"),
        ("%load_ext sandbox_kernel\nx = 1", "\nx = 1"),
        *((text, "") for text in ("", "   \n\t\n", "\r\n", "%load_ext sandbox_kernel", "# NBVAL_SKIP\n")),
    ],
)
def test_the_program_of_a_cell_keeps_its_lines_and_nothing_else(text, program):
    assert cell(text).code == program


def test_a_magic_above_an_empty_cell_is_a_mistake():
    assert "the cell is empty below this line" in refused("%%sandbox rust\n  \n")
    assert "the cell is empty below this line" in refused("%%sandbox rust")


def test_a_cell_of_ten_megabytes_is_planned():
    text = "%%sandbox --timeout 9s\n" + "x = 1  # NBVAL_ is only looked for\n" * 300_000
    assert cell(text).code.count("x = 1") == 300_000


def test_a_cell_longer_than_any_program_is_refused():
    assert "at most 16777216 are taken" in refused("x" * (16 << 20) + "yz")


def test_a_command_behind_options_is_told_where_it_stands():
    assert "it stands first on a line of its own, %sandbox allow" in refused("%sandbox --quiet allow example.org")


def test_option_lines_are_few_and_short_and_so_are_their_lists():
    domains = " ".join(f"--allow-net a{number}.org" for number in range(MAX_REPEATS))
    assert len(cell(f"%sandbox {domains}").defaults.allow_net) == MAX_REPEATS
    assert f"--allow-net is given more than {MAX_REPEATS} times" in refused(f"%sandbox {domains} --allow-net b.org")
    assert "--arg is given more than" in refused("%%sandbox " + "--arg a " * (MAX_REPEATS + 1) + "\n1")
    assert len(cell("%sandbox --quiet\n" * MAX_LINES).commands) == MAX_LINES
    assert f"more than {MAX_LINES} %sandbox lines" in refused("%sandbox --quiet\n" * (MAX_LINES + 1))
    longest = "x" * (MAX_LINE - len(" --stdin "))
    assert cell(f"%sandbox --stdin {longest}").defaults.stdin == longest
    assert f"at most {MAX_LINE} are read" in refused(f"%sandbox --stdin {longest}x")


def test_option_lines_are_looked_for_at_the_head_of_a_cell():
    assert cell("\n" * 9_000 + "%sandbox --quiet\n1").options.quiet
    assert "stands only before the program" in refused("#\n" * 10_001 + "%sandbox --quiet")


def test_a_lone_surrogate_or_a_nul_is_refused_with_its_line():
    assert "line 2 of the cell holds a lone surrogate" in refused("a\nb\ud800")
    assert "line 3 of the cell holds a NUL" in refused("a\nb\nc\0")
    assert "lone surrogate" in refused("%%sandbox --stdin \udcff\nx")


def test_a_magic_in_the_middle_of_a_cell_is_refused_with_its_line():
    assert "line 2 of the cell, '%%sandbox rust'" in refused("x = 1\n%%sandbox rust\n")
    assert "line 3 of the cell, '%sandbox undo': %sandbox stands only before the program" in refused(
        "%sandbox --quiet\nx = 1\n%sandbox undo"
    )
    assert "stands only on the first line" in refused("%sandbox --quiet\n%%sandbox\nx")
    assert "stands only on the first line" in refused("# why\n%%sandbox\nx")


def test_a_line_sets_the_defaults_of_this_and_later_cells():
    plan = cell(
        "# a word\n%sandbox javascript --timeout 2s --env A=1\n1 + 1", CellOptions(memory_mb=64, env=(("B", "2"),))
    )
    assert plan.commands[0].name == "defaults"
    assert plan.defaults == CellOptions(language=Language.JAVASCRIPT, timeout_s=2.0, memory_mb=64, env=(("A", "1"),))
    assert plan.options == plan.defaults
    assert plan.code == "\n\n1 + 1"


def test_a_cell_adds_to_the_lists_of_the_defaults_and_overrides_its_values():
    defaults = CellOptions(
        timeout_s=9.0, env=(("A", "1"), ("B", "2")), args=("x",), allow_net=(NetworkRule("a.org"),), session="s"
    )
    options = cell("%%sandbox --timeout 1s --env B=3 --arg x --allow-net b.org --fresh\n1", defaults).options
    assert options == CellOptions(
        timeout_s=1.0,
        env=(("A", "1"), ("B", "3")),
        args=("x", "x"),
        allow_net=(NetworkRule("a.org"), NetworkRule("b.org")),
        fresh=True,
    )
    assert cell("%%sandbox --session t\n1", CellOptions(fresh=True)).options == CellOptions(session="t")


def test_a_default_that_does_not_fit_the_language_of_a_cell_is_left_out():
    defaults = CellOptions(session="s", python="3.12")
    assert cell("%%sandbox rust\nfn main() {}", defaults).options == CellOptions(language=Language.RUST)
    assert cell("%%sandbox js\n1", defaults).options == CellOptions(language=Language.JAVASCRIPT, session="s")


PAGE = {"JPY_SESSION_NAME": "/home/a/b.ipynb"}


def test_a_kernel_in_a_page_begins_with_more_time_and_memory_than_one_in_a_batch_run_or_of_an_agent():
    assert first_defaults({}) == first_defaults({**PAGE, "SANDBOX_KERNEL_LINES": "locked"}) == NONE
    found = first_defaults(PAGE)
    assert (found.timeout_s, found.memory_mb) == (600, page_memory_mb())
    found = first_defaults({**PAGE, "SANDBOX_KERNEL_SPEC_OPTIONS": "--memory 1G", "SANDBOX_KERNEL_OPTIONS": "--cpu 5s"})
    assert (found.timeout_s, found.memory_mb, found.cpu_seconds) == (600, 1024, 5)


def test_limits_for_all_notebooks_are_those_of_the_next_kernel_in_a_page(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("SANDBOX_KERNEL_OPTIONS", raising=False)
    keep_user_limits(CellOptions(timeout_s=60, memory_mb=700, session="a"))
    assert first_defaults(PAGE) == CellOptions(timeout_s=60, memory_mb=700)
    assert first_defaults({}) == NONE
    monkeypatch.setenv("SANDBOX_KERNEL_OPTIONS", "--memory 1G")
    with pytest.raises(InvalidRequest, match="installed with limits of its own"):
        keep_user_limits(CellOptions(memory_mb=700))
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    with pytest.raises(InvalidRequest, match="no private folder"):
        keep_user_limits(CellOptions(memory_mb=700))


def test_reset_forgets_the_defaults():
    assert cell("%sandbox reset", CellOptions(timeout_s=1.0)).defaults == NONE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", LineCommand(name="show")),
        ("report", LineCommand(name="report")),
        ("undo", LineCommand(name="undo")),
        ("undo 3", LineCommand(name="undo", count=3)),
        ("undo 2 js", LineCommand(name="undo", count=2, options=CellOptions(language=Language.JAVASCRIPT))),
        ("restart --session a", LineCommand(name="restart", options=CellOptions(session="a"))),
        ("save work", LineCommand(name="save", target="work")),
        ("load work js", LineCommand(name="load", target="work", options=CellOptions(language=Language.JAVASCRIPT))),
        ("--help", LineCommand(name="help")),
        ("--timeout 3s", LineCommand(name="defaults", options=CellOptions(timeout_s=3.0))),
    ],
)
def test_line_commands_are_read(line, expected):
    assert parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("undo 0", "%sandbox undo '0' must be a whole number from 1 upwards"),
        ("undo -1", "%sandbox undo '-1' must be a whole number"),
        ("save", "%sandbox save needs a name"),
        ("load ../x", "%sandbox load '../x' is not a name"),
        ("report now", "%sandbox report takes no arguments, got 'now'; write it alone"),
        ("report rust", "%sandbox report takes no arguments"),
        ("undo --timeout 1s", "takes a language or --session NAME"),
        ("repot", "'repot' is neither a command nor a language; did you mean %sandbox report?"),
        ("frobnicate", "'frobnicate' is neither a command nor a language; commands: report, undo, "),
        ("timeout 10s", "neither a command nor a language; did you mean --timeout?"),
        ("fresh", "did you mean --fresh?"),
        ("memroy 64M", "did you mean --memory?"),
        ("pyton", "did you mean python?"),
        ("--restart", "unknown option '--restart'; did you mean %sandbox restart?"),
        ("redo 0", "%sandbox redo '0' must be a whole number from 1 upwards"),
        ("checkout 4", "%sandbox checkout is %sandbox go 4"),
        ("checkpoints", "%sandbox checkpoints is %sandbox tree"),
        ("histroy", "did you mean %sandbox tree?"),
        ("goto", "%sandbox goto is %sandbox go"),
        ("tree 3", "unsupported language '3'"),
        ("restart rust --session a", "runs fresh"),
        ("restart --kepp", "%sandbox restart --keep"),
        ("files --clar", "but --clear"),
        ("--clear", "%sandbox files --clear"),
        ("alow example.org", "allow"),
    ],
)
def test_a_wrong_line_command_is_refused(line, expected):
    with pytest.raises(InvalidRequest, match=None) as caught:
        parse_line(line)
    assert expected in str(caught.value)


def test_help_shows_the_options_and_runs_nothing_but_is_a_value_after_an_option():
    for line in ("apply --help", "changes x -h"):
        assert parse_line(line) == LineCommand(name="help")
    for line in ("--help", "-h bash"):
        plan = parse_magic(line, "echo hi", CellOptions())
        assert plan.code == "" and plan.commands == (parse_line(line),) == (LineCommand(name="help"),)
    with pytest.raises(InvalidRequest, match="did you mean %sandbox help"):
        parse_magic("bash --help", "echo hi", CellOptions())
    plan = parse_magic("bash --arg --help --stdin -h", "echo hi", CellOptions())
    assert plan.options.args == ("--help",)
    assert plan.options.stdin == "-h"
    assert not plan.commands


def test_go_is_a_command_before_a_state_and_else_the_language():
    for state in ("3", "[3]", "best"):
        assert parse_line(f"go {state}") == LineCommand(name="go", target=state)
    for line in ("go", "--timeout 5s go", "go --timeout 5s"):
        assert parse_line(line).options.language is Language.GO
    shown = parse_line("go --timeout 5s").options.words()
    assert parse_line(shown).options.words() == shown


def test_every_row_of_the_table_has_a_field_and_help_and_its_samples_are_read_and_written_back():
    assert {option.field for option in OPTIONS} == set(vars(CellOptions())) - {"language"}
    for option in OPTIONS:
        assert option.name in usage()
        for sample in option.samples:
            options = parse_options([option.name, sample])
            assert parse_options(split_words(options.words(), "")) == options
    for command in COMMAND_NAMES:
        assert command in usage()


@given(st.text())
def test_any_text_is_planned_or_refused_with_a_typed_error(text):
    for prefix in ("", "%%sandbox ", "%sandbox "):
        try:
            parse_cell(prefix + text, NONE)
        except SandboxError as error:
            assert str(error)


@given(
    st.lists(
        st.sampled_from([*BY_NAME, "python", "js", "1s", "1M", "A=1", "x", "a:/b", "", "=", "--env=K=V"]), max_size=8
    )
)
def test_any_words_are_options_or_a_typed_error(words):
    try:
        options = parse_options(words)
    except SandboxError as error:
        assert str(error)
    else:
        assert isinstance(options.over(NONE), CellOptions)


@given(st.integers(1, 1 << 40), st.integers(1, 10**7))
def test_sizes_and_durations_are_read_back_as_they_were_written(size, milliseconds):
    assert parse_bytes(size_text(size), "--output") == size
    assert parse_duration(duration_text(milliseconds / 1000), "--timeout") == pytest.approx(milliseconds / 1000)


@pytest.mark.parametrize("line", ["checkpoint before training", "go before training", "checkpoint before 3 rounds"])
def test_a_name_of_two_words_without_quotes_is_refused_with_the_right_form(line: str) -> None:
    command, _, name = line.partition(" ")
    with pytest.raises(InvalidRequest) as caught:
        parse_line(line)
    assert f"a name with spaces stands in quotes: %sandbox {command} '{name}'" in str(caught.value)
    assert parse_line(f"{command} '{name}' python").target == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stricct", "--policy 'stricct' is neither a preset nor a file; did you mean strict?"),
        ("zzz", "presets: standard, strict, classroom, data, build, gpu; files end in .toml or .json"),
        ("missing.toml", "policy file 'missing.toml' cannot be read"),
    ],
)
def test_a_policy_that_is_not_there_says_what_is(name: str, hint: str) -> None:
    with pytest.raises(PolicyViolation) as caught:
        policy_of(CellOptions(policy=name))
    assert hint in str(caught.value)


@dataclass(frozen=True)
class Wider(SandboxPolicy):
    camera: bool = False


def test_a_field_that_a_policy_gets_later_is_shown_by_itself() -> None:
    assert ("camera", "True") in policy_rows(Wider(camera=True))
    assert policy_rows(Wider()) == policy_rows(SandboxPolicy())


def test_a_notebook_keeps_a_session_for_each_language_that_has_a_worker() -> None:
    assert set(ENGINES) == SESSION_LANGUAGES


def test_a_file_without_an_ending_is_still_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("allowProcessSpawn = true\n")
    monkeypatch.chdir(tmp_path)
    assert policy_of(CellOptions(policy="mine")).process_spawn
