"""Google ADK: a sandbox as ``BaseCodeExecutor``, for ``LlmAgent(code_executor=SandboxKernelCodeExecutor())``."""

from __future__ import annotations

import base64
import binascii
import contextlib
import mimetypes
from collections.abc import Callable

from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File
from pydantic import ConfigDict, PrivateAttr

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S
from sandbox_kernel.model import ExecResult, Status
from sandbox_kernel.model.result import describe_end
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.session.session import Session

#: The most files that one execution returns, their bytes together, and the most sessions that are kept.
_MAX_FILES, _MAX_BYTES, _MAX_SESSIONS = 100, 64 << 20, 64


class SandboxKernelCodeExecutor(BaseCodeExecutor):  # type: ignore[misc]
    """Runs Python code of an agent. With ``stateful``, each execution id has a session that keeps its variables."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    policy: SandboxPolicy | None = None
    memory_mb: int = 1024
    _boxes: dict[str, tuple[Sandbox, Session]] = PrivateAttr(default_factory=dict)

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        """See ``BaseCodeExecutor``. What goes wrong is in the result's stderr; nothing is raised for a program."""
        files = {file.name: _content(file) for file in code_execution_input.input_files}
        timeout, code = float(self.timeout_seconds or DEFAULT_TIMEOUT_S), code_execution_input.code
        try:
            if self.stateful:
                box, session = self._session(code_execution_input.execution_id or "default")
                for name, data in files.items():
                    session.write_file(name, data)
                result = session.run(code, timeout)
                return _answer(result, session.read_file)
            with Sandbox(self.policy) as box:
                result = box.run(code, timeout=timeout, memory_mb=self.memory_mb, files=files)
                return _answer(result, box.read_file)
        except SandboxError as error:
            return CodeExecutionResult(stderr=str(error))

    def close(self) -> None:
        """End every session. May be called twice."""
        while self._boxes:
            self._boxes.popitem()[1][0].destroy()

    def _session(self, name: str) -> tuple[Sandbox, Session]:
        if name not in self._boxes:
            if len(self._boxes) >= _MAX_SESSIONS:
                self._boxes.pop(next(iter(self._boxes)))[0].destroy()
            box = Sandbox(self.policy)
            self._boxes[name] = box, box.session("python", memory_mb=self.memory_mb)
        return self._boxes[name]


def _content(file: File) -> bytes:
    """Return the bytes of a file: ADK passes them as they are, or as base64 text."""
    if isinstance(file.content, bytes):
        return bytes(file.content)
    try:
        return base64.b64decode(file.content, validate=True)
    except (binascii.Error, ValueError):
        return str(file.content).encode()


def _answer(result: ExecResult, read_file: Callable[[str], bytes]) -> CodeExecutionResult:
    stderr = "" if result.ok else result.stderr
    if result.status not in (Status.OK, Status.FAILED):
        stderr = f"{stderr}\n{describe_end(result)}".strip()
    elif not result.ok and not stderr:
        stderr = describe_end(result)
    shown = [str(display.data.get("text/plain", "")) for display in result.displays if display.kind == "result"]
    made = [each for each in result.changes if each.kind in ("created", "modified", "renamed") and each.type == "file"]
    files: dict[str, bytes] = {}
    left = _MAX_BYTES
    for each in made[:_MAX_FILES]:
        if each.size <= left:
            with contextlib.suppress(SandboxError):  # gone by now, or larger
                files[each.path] = read_file(each.path)
                left -= len(files[each.path])
    return CodeExecutionResult(
        stdout=result.stdout + "".join(f"{text}\n" for text in shown),
        stderr=stderr,
        output_files=[
            File(name=name, content=data, mime_type=mimetypes.guess_type(name)[0] or "application/octet-stream")
            for name, data in files.items()
        ],
        exit_code=result.exit_code,
    )
