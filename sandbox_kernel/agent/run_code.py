"""SandboxFusion's ``POST /run_code``: its request becomes one of ours, our result becomes its answer. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, field

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.ground.wire import BadMessage, decode, no_key_twice
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status

#: Names of languages in SandboxFusion that are others here.
_NAMES = {"nodejs": "javascript", "bash": "command", "R": "r"}
#: The most files that one request may bring or fetch, and the most arguments.
MAX_FILES = 1000
_Seconds = Annotated[float, Meta(gt=0, le=3600)]
_Texts = Annotated[tuple[str, ...], Meta(max_length=MAX_FILES)]


class RunCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request, with SandboxFusion's names and default time limits. Contents of files are base64, null is no file."""

    code: str
    language: str
    stdin: str | None = None
    files: Annotated[dict[str, bytes | None], Meta(max_length=MAX_FILES)] | None = None
    fetch_files: _Texts = ()
    args: _Texts = ()
    compile_timeout: _Seconds = 10.0
    run_timeout: _Seconds = 10.0
    memory_limit_mb: int = field(default=-1, name="memory_limit_MB")

    @property
    def request(self) -> ExecRequest:
        """What to run. Raises ``InvalidRequest``."""
        language = Language.parse(_NAMES.get(self.language, self.language))
        compiles = language in (Language.RUST, Language.C, Language.CPP, Language.GO, Language.ZIG)
        return ExecRequest(
            language=language,
            code=self.code,
            timeout=self.run_timeout + self.compile_timeout if compiles else self.run_timeout,
            stdin=self.stdin,
            memory_limit_mb=self.memory_limit_mb if self.memory_limit_mb > 0 else None,
            files={name: data for name, data in (self.files or {}).items() if data is not None},
            args=list(self.args),
        )


def read_request(body: bytes) -> RunCode:
    """Check a request. Raises ``InvalidRequest`` with a sentence for the client."""
    try:
        asked = decode(body, RunCode, object_pairs_hook=no_key_twice)
    except BadMessage as error:
        raise InvalidRequest(f"the body is no request: {error}; send a JSON object with code and language") from None
    _ = asked.request
    return asked


def make_answer(asked: RunCode, result: ExecResult, files: Mapping[str, bytes]) -> dict[str, object]:
    """Return SandboxFusion's answer for a result. Files that were asked for and are not there are named in it."""
    left_out = [name for name in asked.fetch_files if name not in files]
    failed_compiling = result.status is Status.COMPILE_FAILED
    compiled: dict[str, object] | None = None
    if failed_compiling or result.compile_duration is not None:
        exit_code = (result.exit_code or 1) if failed_compiling else 0
        stderr = result.stderr if failed_compiling else ""
        compiled = _command("Finished", result.compile_duration or result.duration, exit_code, "", stderr)
    run: dict[str, object] | None = None
    if not failed_compiling:
        took = result.duration - (result.compile_duration or 0.0)
        late = result.status in (Status.TIMEOUT, Status.CPU_LIMIT) or took > asked.run_timeout
        code = None if late else _return_code(result)
        run = _command("TimeLimitExceeded" if late else "Finished", took, code, result.stdout, result.stderr)
    return {
        "status": "Success" if result.ok and run is not None and run["status"] == "Finished" else "Failed",
        "message": f"not returned, because missing or too large: {', '.join(left_out)}"[:1000] if left_out else "",
        "compile_result": compiled,
        "run_result": run,
        "executor_pod_name": None,
        "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
    }


def _return_code(result: ExecResult) -> int:
    if result.signal is not None:
        return -result.signal
    if result.exit_code is not None:
        return result.exit_code
    return 0 if result.ok else 1


def _command(status: str, seconds: float, code: int | None, stdout: str, stderr: str) -> dict[str, object]:
    return {"status": status, "execution_time": seconds, "return_code": code, "stdout": stdout, "stderr": stderr}


def failure(error: SandboxError) -> dict[str, object]:
    """Return SandboxFusion's answer for a program that could not be run here."""
    return {
        "status": "SandboxError",
        "message": str(error),
        "compile_result": None,
        "run_result": None,
        "executor_pod_name": None,
        "files": {},
    }
