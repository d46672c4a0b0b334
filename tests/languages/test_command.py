"""Commands: the shell, its exit codes and signals, and pipes that fail when asked to."""

from __future__ import annotations

import pytest

from sandbox_kernel import BackendUnavailable, ProcessBackend, Sandbox, Status
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.languages import interpreters
from sandbox_kernel.model import ExecRequest, Language


def run(code: str, **config: bool) -> int | None:
    request = ExecRequest(language=Language.COMMAND, code=code, timeout=20)
    return ProcessBackend(ProcessConfig(**config)).run(request).exit_code  # type: ignore[arg-type]


def test_a_pipe_fails_with_any_of_its_programs_only_when_asked_to() -> None:
    assert run("exit 4 | true") == 0
    assert run("exit 4 | true", pipefail=True) == 4


def test_a_shell_without_pipefail_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreters, "shell", lambda: "/bin/sh")
    with pytest.raises(BackendUnavailable, match="install bash"):
        interpreters.CommandLanguage().find(ProcessConfig(pipefail=True))


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
