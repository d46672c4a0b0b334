"""Command sessions: what lives on from cell to cell, however a cell ends."""

from collections.abc import Iterator

import pytest

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import Status
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session


@pytest.fixture
def shell() -> Iterator[Session]:
    with open_session(ProcessBackend(), "command", memory_mb=128) as session:
        yield session


def test_variables_arrays_functions_aliases_options_and_folder_live_on(shell: Session) -> None:
    shell.run("a=1; export b=2; c=(1 'two words'); declare -A d=([k]='v v'); e=$'x\\ny'; declare -i n=4; readonly r=5")
    shell.run(
        "f() { echo \"f:$1:$r\"; }; alias hi='echo alias'; shopt -s expand_aliases extglob; umask 027; set -- p 'q r'"
    )
    shell.run("mkdir -p d/'e e'; cd d/'e e'; g() { case $1 in +(x)) echo many;; esac; }; export -f f")
    result = shell.run(
        'echo "$a $b ${c[1]} ${d[k]} $e $n $r"; f 7; hi; umask; echo "$PWD"; g xxx; echo "$# $2"; n=2+3; echo $n; bash -c "f 8"'
    )
    assert result.stdout.splitlines() == [
        "1 2 two words v v x", "y 4 5", "f:7:5", "alias", "0027", "/box/d/e e", "many", "2 q r", "5", "f:8:",
    ]  # fmt: skip
    assert shell.run("cd - && echo $OLDPWD").stdout.splitlines() == ["/box", "/box/d/e e"]


@pytest.mark.parametrize(
    ("end", "code"),
    [("exit 4", 4), ("set -e; false", 1), ("set -u; echo $nothing", 1), ("nosuchcommand", 127), ("(exit 9)", 9)],
)
@pytest.mark.one_case
def test_a_cell_that_fails_keeps_what_it_did(shell: Session, end: str, code: int) -> None:
    result = shell.run(f"x=before; {end}")
    assert (result.status, result.exit_code, result.rolled_back) == (Status.FAILED, code, False)
    assert shell.run("set +eu; echo $x").stdout == "before\n"


def test_errors_name_the_cell_and_its_line(shell: Session) -> None:
    assert shell.run("true\nnosuchcommand").stderr == "/cell/cell.sh: line 2: nosuchcommand: command not found\n"
    assert "syntax error" in shell.run("if true; then").stderr


def test_a_trap_of_the_cells_own_at_exit_is_called_and_the_state_is_kept(shell: Session) -> None:
    result = shell.run("trap 'echo bye $?' EXIT; x=1; exit 3")
    assert (result.stdout, result.exit_code, result.notes) == ("bye 3\n", 3, ())
    assert shell.run("echo $x").stdout == "1\n"
    assert shell.run("trap 'echo caught' USR1; kill -USR1 $$; trap 'exit 5' EXIT").exit_code == 5
    assert shell.run("trap - EXIT").ok


def test_a_shell_that_takes_away_its_own_ending_is_told_so(shell: Session) -> None:
    shell.run("x=1")
    result = shell.run("x=2; builtin trap - EXIT")
    assert "the shell ended without leaving its state: variables and functions are as before this cell" in result.notes
    assert shell.run("echo $x").stdout == "1\n"


@pytest.mark.parametrize("death", ["kill -9 $$", "kill -SEGV $$", "kill -9 $PPID; sleep 1000", "exec sleep 1000"])
@pytest.mark.one_case
def test_a_cell_that_is_killed_or_does_not_end_is_taken_back_with_its_files(shell: Session, death: str) -> None:
    shell.run("x=1; echo old > file")
    result = shell.run(f"x=2; echo new > file; echo said; {death}", timeout=3)
    assert result.status in (Status.KILLED, Status.TIMEOUT)
    assert (result.rolled_back, result.stdout) == (True, "said\n")
    assert "rolled back to the state before this cell; 1 variable kept" in result.notes
    assert shell.run("cat file; echo $x").stdout == "old\n1\n"


def test_undo_takes_back_cells(shell: Session) -> None:
    for number in range(3):
        shell.run(f"x={number}; echo {number} > file")
    shell.undo(2)
    assert shell.run("cat file; echo $x").stdout == "0\n0\n"


@pytest.mark.parametrize("cell", ["while :; do :; done", "sleep 1000", "sleep 1000 | cat", "(sleep 1000; echo no)"])
def test_an_interrupt_ends_the_cell_and_keeps_what_it_did(shell: Session, cell: str) -> None:
    result = shell.run(f"x=1; echo go; {cell}; x=2", timeout=60, on_output=lambda *_: shell.interrupt() and None)
    assert (result.status, result.rolled_back, result.stdout) == (Status.INTERRUPTED, False, "go\n")
    assert shell.run("echo $x").stdout == "1\n"


def test_a_background_process_lives_on_and_an_undone_one_does_not(shell: Session) -> None:
    shell.run("sleep 1000 &")
    shell.run("sleep 2000 & disown")
    assert shell.run("pgrep -fc '^sleep'").stdout == "2\n"
    shell.undo(2)
    assert shell.run("pgrep -fa '^sleep'").stdout.split()[1:] == ["sleep", "1000"]


def test_functions_with_the_names_of_builtins_do_not_spoil_the_state(shell: Session) -> None:
    shell.run("declare() { echo hacked; }; printf() { :; }; cd() { :; }; read() { :; }; local() { :; }; x=1")
    assert shell.run("echo $x; declare").stdout == "1\nhacked\n"


def test_questions_are_answered_with_the_sessions_own_names(shell: Session) -> None:
    shell.run("my_function() { :; }; my_variable=1; touch my_file")
    assert shell.complete("my_f", 4) == {
        "matches": ["my_function"], "cursor_start": 0, "cursor_end": 4, "metadata": {},
    }  # fmt: skip
    assert shell.complete("echo $my_v", 10)["matches"] == ["$my_variable"]
    assert shell.complete("cat my_f", 8)["matches"] == ["my_file"]
    assert "my_function is a function" in str(shell.inspect("my_function x", 3)["text/plain"])
    assert shell.inspect("nothing_of_that_name", 3) == {}
    assert [shell.is_complete(code)["status"] for code in ("echo 1", "for i in 1; do", "echo )", "a \\", "cat <<E\nx")] == [
        "complete", "incomplete", "invalid", "incomplete", "incomplete",
    ]  # fmt: skip


def test_too_little_memory_is_said_before_anything_starts() -> None:
    with pytest.raises(InvalidRequest, match="needs at least 32 MB"):
        open_session(ProcessBackend(), "command", memory_mb=8)


#: Ends by its time limit alone, so that what the worker wrote for it stays where it is.
KILLED = "trap '' INT; sleep 100"


@pytest.mark.slow
def test_a_session_whose_temporary_folder_is_full_still_runs_cells_and_can_be_cleaned(shell: Session) -> None:
    shell.run("kept=41; large=$(head -c 300000 /dev/zero | tr '\\0' a)")
    assert shell.run("cat /dev/zero > ${TMPDIR:-/tmp}/filler-of-a-cell 2>/dev/null; " + KILLED, timeout=2).rolled_back
    assert shell.run("echo $kept ${#large}").stdout == "41 300000\n"
    assert shell.run("rm ${TMPDIR:-/tmp}/filler-of-a-cell").ok
    assert shell.run("kept=42").ok
    assert shell.run("echo $kept").stdout == "42\n"


@pytest.mark.slow
def test_a_session_without_any_room_says_so_and_what_to_do(shell: Session) -> None:
    shell.run("large=$(head -c 300000 /dev/zero | tr '\\0' a)")
    fill = "for d in /tmp /cell; do cat /dev/zero > $d/filler-of-a-cell 2>/dev/null; done; "
    assert shell.run(fill + KILLED, timeout=2).rolled_back
    result = shell.run("echo ran")
    assert (result.status, result.exit_code, result.stdout) == (Status.FAILED, 1, "")
    assert "did not run" in result.stderr
    assert "restart the session" in result.stderr
    shell.restart()
    assert shell.run("echo ran").stdout == "ran\n"
