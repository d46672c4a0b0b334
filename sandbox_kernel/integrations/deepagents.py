"""deepagents and LangChain: a sandbox as ``BaseSandbox``, for ``create_deep_agent(backend=…)``; extra deepagents."""

from __future__ import annotations

import errno
import posixpath
import uuid
from collections.abc import Callable, Mapping

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from sandbox_kernel.integrations.machine import MachineSize, SandboxMachine, ended
from sandbox_kernel.policy import SandboxPolicy


class SandboxKernelBackend(BaseSandbox):  # type: ignore[misc]
    """A ``SandboxMachine``, as a context manager or until ``close``. ``timeout`` is for commands without a limit."""

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        size: MachineSize | None = None,
        timeout: float = 120.0,
        functions: Mapping[str, Callable[..., object]] | None = None,
    ) -> None:
        self._machine = SandboxMachine(policy, size, functions)
        self._timeout = timeout
        self._id = f"sandbox-kernel-{uuid.uuid4().hex[:12]}"

    @property
    def id(self) -> str:
        return self._id

    def __enter__(self) -> SandboxKernelBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox. May be called twice."""
        self._machine.close()

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """See ``BaseSandbox``. A command that reaches its time limit has the exit code 124, as with ``timeout``."""
        limit = float(timeout) if timeout else self._timeout
        result = self._machine.run(command, timeout=limit, together=True)
        code, why = ended(result, limit)
        output = result.stdout + result.stderr + (f"\n{why}" if why else "")
        return ExecuteResponse(output=output, exit_code=code, truncated=result.stdout_truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        done = [(path, *_tried(self._machine.write, path, data)) for path, data in files]
        return [FileUploadResponse(path=path, error=error) for path, _, error in done]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        done = [(path, *_tried(self._machine.read, path)) for path in paths]
        return [FileDownloadResponse(path=path, content=content, error=error) for path, content, error in done]


def _tried(work: Callable[..., bytes | None], path: str, *data: bytes) -> tuple[bytes | None, str | None]:
    """Read or write a file; returns its content, and the protocol's word for an error."""
    if not posixpath.isabs(path):
        return None, "invalid_path"
    try:
        return work(path, *data), None
    except OSError as error:
        words = {errno.ENOENT: "file_not_found", errno.EISDIR: "is_directory"}
        return None, words.get(error.errno or 0, "permission_denied")
