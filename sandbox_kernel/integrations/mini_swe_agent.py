"""mini-swe-agent: a sandbox as ``Environment``. Needs the extra of that name.

In a configuration file: ``environment_class: sandbox_kernel.integrations.mini_swe_agent.SandboxKernelSweEnvironment``.
"""

from __future__ import annotations

import platform
from typing import Any

from minisweagent.exceptions import Submitted
from pydantic import BaseModel

from sandbox_kernel.integrations.machine import MachineSize, SandboxMachine, ended
from sandbox_kernel.jail.walls import WORK
from sandbox_kernel.limits import DEFAULT_MEMORY_MB
from sandbox_kernel.policy import SandboxPolicy

_FINISHED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class SweEnvironmentConfig(BaseModel):
    """What a configuration file may set: folder, variables, time limit, policy file or preset, memory."""

    cwd: str = WORK
    env: dict[str, str] = {}
    timeout: int = 30
    policy: str = "standard"
    memory_mb: int = DEFAULT_MEMORY_MB


class SandboxKernelSweEnvironment:
    """Runs each command of the agent in one sandbox. ``close`` ends it. ``kwargs`` are fields of the configuration."""

    def __init__(self, *, config_class: type[SweEnvironmentConfig] = SweEnvironmentConfig, **kwargs: Any) -> None:
        self.config = config_class(**kwargs)
        name = self.config.policy
        known = name.endswith((".toml", ".json"))
        policy = SandboxPolicy.load(name) if known else SandboxPolicy.preset(name)
        self._machine = SandboxMachine(policy, MachineSize(memory_mb=self.config.memory_mb))

    def close(self) -> None:
        """End the sandbox. May be called twice."""
        self._machine.close()

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run the command of an action; see ``Environment``. Raises ``Submitted`` when the task is finished."""
        limit = timeout or self.config.timeout
        command, folder = str(action.get("command", "")), cwd or self.config.cwd
        result = self._machine.run(command, cwd=folder, env=self.config.env, timeout=limit, together=True)
        code, why = ended(result, limit)
        text = result.stdout + result.stderr
        lines = text.lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == _FINISHED and code == 0:
            submission = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})
        return {"output": text, "returncode": -1 if why else code, "exception_info": why}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return what prompts may use. No variable of the host is among them."""
        return {**self.config.model_dump(), **platform.uname()._asdict(), **kwargs}

    def serialize(self) -> dict[str, Any]:
        """Return what a trajectory file says about this environment."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": self.config.model_dump(mode="json"), "environment_type": kind}}}
