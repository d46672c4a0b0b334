"""Commands: the shell, its exit codes and signals."""

from sandbox_kernel import Sandbox, Status


def test_a_signal_is_told_apart_from_an_exit_code(box: Sandbox) -> None:
    killed, exited = box.run("kill -SEGV $$", "sh"), box.run("exit 139", "sh")
    assert (killed.status, killed.signal, killed.exit_code) == (Status.KILLED, 11, 139)
    assert (exited.status, exited.signal, exited.exit_code) == (Status.FAILED, None, 139)


def test_a_command_that_is_not_there_is_127(box: Sandbox) -> None:
    result = box.run("no-such-program", "sh")
    assert (result.status, result.exit_code) == (Status.FAILED, 127)
    assert "cell.sh: line 1: no-such-program" in result.stderr


def test_a_script_longer_than_any_argument_runs(box: Sandbox) -> None:
    assert box.run("#" + "x" * 300_000 + "\necho done", "sh").stdout == "done\n"
