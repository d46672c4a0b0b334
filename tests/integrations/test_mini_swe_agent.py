"""mini-swe-agent: its environment on a real sandbox. Its agent runs, and submits, in ``test_agents_page.py``."""

from collections.abc import Iterator

import pytest

pytest.importorskip("minisweagent", reason="mini-swe-agent is not installed; make .venv/.installed-frameworks")

from sandbox_kernel.integrations.mini_swe_agent import SandboxKernelSweEnvironment


@pytest.fixture
def env() -> Iterator[SandboxKernelSweEnvironment]:
    made = SandboxKernelSweEnvironment(timeout=5, env={"GREETING": "hello"})
    yield made
    made.close()


def test_commands_share_files_and_get_variables(env: SandboxKernelSweEnvironment) -> None:
    assert env.execute({"command": "echo $GREETING > a; pwd"}) == {
        "output": "/box\n",
        "returncode": 0,
        "exception_info": "",
    }
    assert env.execute({"command": "cat a; echo no >&2; exit 3"})["output"] == "hello\nno\n"
    assert env.execute({"command": "false"})["returncode"] == 1


def test_a_command_that_takes_too_long_is_told(env: SandboxKernelSweEnvironment) -> None:
    output = env.execute({"command": "echo before; sleep 60"}, timeout=1)
    assert (output["returncode"], output["output"]) == (-1, "before\n")
    assert "stopped after 1 s" in output["exception_info"]


def test_nothing_of_the_host_is_in_prompts_or_commands(
    env: SandboxKernelSweEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    assert "secret" not in str(env.get_template_vars())
    assert "secret" not in env.execute({"command": "env"})["output"]
    assert env.serialize()["info"]["config"]["environment"]["timeout"] == 5
