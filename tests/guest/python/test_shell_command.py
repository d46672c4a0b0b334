"""``!command`` in a session: as in ipykernel, on a terminal, where the walls have one."""

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.session.session import Session


def test_files_are_listed_in_columns(python: Session) -> None:
    python.run("for name in 'abc': open(f'list-{name}', 'w').close()")
    shown = python.run("!ls list-*").stdout
    assert (shown.split(), shown.count("\n")) == (["list-a", "list-b", "list-c"], 1)
    assert python.run("!stty size <&1").stdout == "24 80\n"


def test_errors_of_a_command_stand_among_its_output(python: Session) -> None:
    result = python.run("!echo one; echo two >&2; echo three")
    assert (result.stdout, result.stderr) == ("one\ntwo\nthree\n", "")


def test_output_of_a_command_can_be_captured_and_it_fails_by_its_exit_code_and_by_a_signal(python: Session) -> None:
    assert python.run("%%capture taken\n!echo caught").stdout == ""
    assert python.run("print(taken.stdout.strip(), _exit_code)").stdout == "caught 0\n"
    assert python.run("!exit 3\nprint(_exit_code)").stdout == "3\n"
    assert python.run("!kill -9 $$\nprint(_exit_code)").stdout == "-9\n"


def test_a_command_that_leaves_a_process_behind_does_not_wait_for_it(python: Session) -> None:
    # Each end is far below the time that the process lives.
    for command in ("sleep 300 &", "sleep 300 & echo begun", "(sleep 300; echo never) & echo begun"):
        result = python.run(f"!{command}", timeout=60)
        assert result.ok, (command, result.status)
        assert ("begun" in result.stdout) == ("begun" in command)


def test_much_output_and_split_letters_arrive_whole(python: Session) -> None:
    assert python.run("!printf '\\303'; sleep 0.1; printf '\\244\\n'").stdout == "ä\n"
    assert python.run("!seq 1 60000 | tr -d '\\n' | wc -c; seq 1 20000").stdout.endswith("\n19999\n20000\n")


def test_a_pager_waits_for_no_key(python: Session) -> None:
    assert python.run("!echo page | $PAGER; test -t 0 || echo no keyboard", timeout=60).stdout == "page\nno keyboard\n"


def test_commands_run_behind_walls_without_terminals() -> None:
    with Sandbox() as box:
        box.backend = ProcessBackend(enforcer="landlock", policy=box.policy)
        with box.session() as session:
            assert session.run("!echo here").stdout == "here\n"


def test_a_warning_names_a_cell_as_ipykernel_does(python: Session) -> None:
    warned = python.run("import warnings\ndef f():\n    warnings.warn('careful')\nf()").stderr
    assert warned.startswith("/tmp/ipykernel_")
    assert ".py:3: UserWarning: careful\n  warnings.warn('careful')\n" in warned
    assert python.run("import inspect\nprint(inspect.getsource(f))").stdout.startswith("def f():")
    assert "Cell In[" in python.run("def g():\n    return 1 / 0\ng()").stderr
    # ipykernel shows the same number for the same text.
    wrong = python.run("health_data.loc[(:, 1), (:, 'HR')]").error
    assert wrong is not None
    assert wrong.evalue == "invalid syntax (3311942670.py, line 1)"


@pytest.mark.slow
def test_a_traceback_shows_no_frame_of_the_sandbox(python: Session) -> None:
    code = "import urllib.request\nurllib.request.urlopen('http://example.invalid/')"
    shown = python.run(code, timeout=60).stderr
    assert "getaddrinfo(" in shown
    assert "/guest/" not in shown
