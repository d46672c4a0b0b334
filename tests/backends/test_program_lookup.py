"""A program by its name: run with its arguments as they are, and refused before anything starts when it is not inside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import CommandNotFound, InvalidRequest, Sandbox, SandboxDestroyed, SandboxPolicy, Status
from sandbox_kernel.backends.checks import check_command
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.policy import Grant

PATH = "/usr/bin:/bin"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def test_arguments_arrive_as_they_are(box: Sandbox) -> None:
    words = ["%s|", "a b", "$HOME", "`id`", "; rm -rf /", "*", "", "-e", "'\""]
    result = box.exec("printf", words)
    assert result.stdout == "".join(f"{word}|" for word in words[1:])
    assert result.status is Status.OK


def test_a_program_gets_its_input_files_and_environment_and_leaves_its_own(box: Sandbox) -> None:
    assert box.exec("cat", ["-", "in.txt"], stdin="one ", files={"in.txt": "two"}).stdout == "one two"
    assert box.exec("printenv", ["WORD"], env={"WORD": "here"}).stdout == "here\n"
    assert box.exec("cp", ["in.txt", "out.txt"], files={"in.txt": "kept"}).ok
    assert box.read_file("out.txt") == b"kept"
    assert box.exec("false").exit_code == 1


def test_a_program_that_is_not_there_is_an_error_and_nothing_runs(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessBackend, "run", lambda *_, **__: pytest.fail("something was run"))
    with pytest.raises(
        CommandNotFound, match="command not found: 'frobnicate' is in no folder of PATH inside"
    ) as error:
        box.exec("frobnicate", ["--help"])
    assert error.value.code == "code.sandbox_command_not_found"
    with pytest.raises(CommandNotFound, match="/opt/none/tool"):
        box.exec("/opt/none/tool")
    with pytest.raises(CommandNotFound, match="'grep' is in no folder"):
        box.exec("grep", env={"PATH": "/opt/none"})


@pytest.mark.parametrize("command", ["", "-a", "a\0b", None, 5])
def test_what_is_no_name_is_an_invalid_request(box: Sandbox, command: str) -> None:
    with pytest.raises(InvalidRequest):
        box.exec(command)


def test_arguments_in_one_text_are_refused(box: Sandbox) -> None:
    with pytest.raises(InvalidRequest, match="wrap it in a list"):
        box.exec("echo", "a b")
    with pytest.raises(InvalidRequest, match="args must be strings"):
        box.exec("echo", [5])  # type: ignore[list-item]


def test_a_program_is_there_where_the_policy_shows_it(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho tool $1\n")
    tool.chmod(0o755)
    policy = SandboxPolicy.preset("standard").mount(tmp_path, "/tools")
    with Sandbox(policy) as box:
        assert box.exec("/tools/tool", ["1"]).stdout == "tool 1\n"
        assert box.exec("tool", ["2"], env={"PATH": "/tools:/usr/bin:/bin"}).stdout == "tool 2\n"
        with pytest.raises(CommandNotFound):
            box.exec("tool")
    with Sandbox() as box, pytest.raises(CommandNotFound):
        box.exec("/tools/tool")


def test_a_program_that_a_run_brings_is_left_to_the_run(box: Sandbox) -> None:
    missing = box.exec("./none")
    assert (missing.status, missing.exit_code) == (Status.FAILED, 127)
    assert box.exec("none", env={"PATH": "/box/bin:/usr/bin"}).exit_code == 127


def test_one_program_needs_no_permission_to_start_others() -> None:
    with Sandbox(SandboxPolicy()) as strict:
        assert strict.exec("echo", ["one"]).stdout == "one\n"


def test_exec_is_of_this_machine_and_of_a_living_sandbox() -> None:
    with Sandbox(backend="wasm") as wasm, pytest.raises(InvalidRequest, match="wasm"):
        wasm.exec("echo")
    with pytest.raises(SandboxDestroyed):
        wasm.exec("echo")


def test_without_walls_every_program_of_the_host_is_there(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("")
    tool.chmod(0o755)
    check_command(str(tool), PATH, None)
    check_command("tool", str(tmp_path), None)
    with pytest.raises(CommandNotFound):
        check_command("tool", PATH, None)


def test_a_later_grant_covers_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    grants = [Grant("/usr/bin", "/tools", False), Grant(str(tmp_path / "empty"), "/tools", False)]
    check_command("/tools/env", PATH, grants[:1])
    with pytest.raises(CommandNotFound):
        check_command("/tools/env", PATH, grants)


def test_a_path_below_tmp_that_the_sandbox_shows_is_looked_at(tmp_path: Path) -> None:
    """An interpreter of a clone below /tmp may stand in PATH; a program that is not there is still missed."""
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "tool"
    tool.write_text("")
    tool.chmod(0o755)
    shown = [Grant(str(tmp_path / "bin"), "/tmp/venv/bin", False)]
    check_command("tool", f"/tmp/venv/bin:{PATH}", shown)
    check_command("/tmp/venv/bin/tool", PATH, shown)
    check_command("/tmp/made/by/the/run", PATH, shown)
    check_command("other", f"/tmp/made:{PATH}", shown)
    for command in ("other", "/tmp/venv/bin/other"):
        with pytest.raises(CommandNotFound):
            check_command(command, f"/tmp/venv/bin:{PATH}", shown)
