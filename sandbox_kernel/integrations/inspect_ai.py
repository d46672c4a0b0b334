"""Inspect: a sandbox as ``SandboxEnvironment`` (``Task(sandbox="sandbox_kernel")``). Needs the extra ``inspect``."""

from __future__ import annotations

import asyncio
import errno
from typing import Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)

from sandbox_kernel.integrations.machine import MachineSize, SandboxMachine, ended
from sandbox_kernel.model import Status
from sandbox_kernel.policy import SandboxPolicy

#: What a command without a time limit gets: an hour.
_LONGEST_S = 3600.0


@sandboxenv(name="sandbox_kernel")
class SandboxKernelEnvironment(SandboxEnvironment):  # type: ignore[misc]
    """One ``SandboxMachine`` for each sample."""

    def __init__(self, policy: SandboxPolicy | None = None, size: MachineSize | None = None) -> None:
        super().__init__()
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        self._machine = SandboxMachine(policy, size or MachineSize(output_bytes=most))

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """See ``SandboxEnvironment``. ``config`` is the path of a policy file, or None."""
        policy = SandboxPolicy.load(config) if isinstance(config, str) else None
        return {"default": await asyncio.to_thread(cls, policy)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            if isinstance(environment, cls):
                await asyncio.to_thread(environment._machine.close)

    @classmethod
    def config_files(cls) -> list[str]:
        """See ``SandboxEnvironment``: files of a task that are taken as its policy."""
        return ["sandbox-policy.toml", "sandbox-policy.json"]

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 - the interface's name
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """See ``SandboxEnvironment``. There is one user inside; any other is ``SandboxUserUnsupportedError``."""
        if user is not None:
            raise SandboxUserUnsupportedError(f"a sandbox has one user, so nothing can run as {user!r}; leave user out")
        limit = float(timeout) if timeout is not None else _LONGEST_S
        result = await asyncio.to_thread(self._machine.run, cmd, stdin=input, cwd=cwd, env=env, timeout=limit)
        code, why = ended(result, limit)
        if result.status is Status.TIMEOUT:
            raise TimeoutError(why)
        if result.exit_code == 126 and "ermission denied" in result.stderr:
            raise PermissionError(f"{cmd[0]} may not be executed: {result.stderr.strip()[-200:]}")
        for name in ("stdout", "stderr"):
            if getattr(result, f"{name}_truncated"):
                most = self._machine.size.output_bytes
                raise OutputLimitExceededError(f"{most} bytes of {name}", getattr(result, name))
        return ExecResult(success=code == 0, returncode=code, stdout=result.stdout, stderr=result.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        await asyncio.to_thread(self._machine.write, file, data)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await asyncio.to_thread(self._machine.read, file, most)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, str(error)) from None
        return data.decode() if text else data
