"""SandboxFusion's ``POST /run_code``: its request becomes one of ours, our result becomes its answer. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.ground.wire import TooManyParts, no_key_twice, parse_json
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status

#: Names of languages in SandboxFusion that are others here.
_NAMES = {"nodejs": "javascript", "bash": "command", "R": "r"}
#: Their default time limits in seconds, and the largest that is accepted.
DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S = 10.0, 3600.0
#: The most files that one request may bring or fetch.
MAX_FILES = 1000
_FIELDS = frozenset(
    "code language stdin files fetch_files args compile_timeout run_timeout memory_limit_MB".split()  # noqa: SIM905
)


@dataclass(frozen=True, kw_only=True)
class RunCode:
    """A checked request: what to run, how long the program itself may take, and which files to return."""

    request: ExecRequest
    run_timeout: float
    fetch_files: tuple[str, ...] = ()


def read_request(body: bytes) -> RunCode:
    """Check a request. Raises ``InvalidRequest`` with a sentence for the client."""
    try:
        given = parse_json(body, object_pairs_hook=no_key_twice)
    except TooManyParts as error:
        raise InvalidRequest(f"the body is too large: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is no JSON ({error}); send an object with code and language") from None
    if not isinstance(given, dict):
        raise InvalidRequest("the body must be a JSON object with code and language")
    if unknown := sorted(set(given) - _FIELDS):
        raise InvalidRequest(f"unknown field {unknown[0]!r:.80}; known are: {', '.join(sorted(_FIELDS))}")
    code, stdin = _text(given, "code"), _text(given, "stdin", None)
    if code is None:
        raise InvalidRequest("the field 'code' is missing")
    name = _text(given, "language")
    language = Language.parse(_NAMES.get(name or "", name or ""))
    compile_s, run_s = _seconds(given, "compile_timeout"), _seconds(given, "run_timeout")
    compiles = language in (Language.RUST, Language.C, Language.CPP, Language.GO, Language.ZIG)
    memory = given.get("memory_limit_MB", -1)
    if isinstance(memory, bool) or not isinstance(memory, int):
        raise InvalidRequest(f"memory_limit_MB must be a whole number, got {quoted(memory)}")
    return RunCode(
        request=ExecRequest(
            language=language,
            code=code,
            timeout=run_s + compile_s if compiles else run_s,
            stdin=stdin,
            memory_limit_mb=memory if memory > 0 else None,
            files=_files(given.get("files")),
            args=_names(given, "args"),
        ),
        run_timeout=run_s,
        fetch_files=tuple(_names(given, "fetch_files")),
    )


def _text(given: Mapping[str, object], name: str, default: str | None = "") -> str | None:
    value = given.get(name, default)
    if value is None and default is None:
        return None
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be text, got {quoted(value)}")
    return value


def _seconds(given: Mapping[str, object], name: str) -> float:
    value = given.get(name, DEFAULT_TIMEOUT_S)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TIMEOUT_S:
        raise InvalidRequest(f"{name} must be above 0 and at most {MAX_TIMEOUT_S:.0f} seconds, got {quoted(value)}")
    return float(value)


def _names(given: Mapping[str, object], name: str) -> list[str]:
    value = given.get(name, [])
    if not isinstance(value, list) or len(value) > MAX_FILES or not all(isinstance(item, str) for item in value):
        raise InvalidRequest(f"{name} must be a list of at most {MAX_FILES} texts, got {quoted(value)}")
    return value


def _files(given: object) -> dict[str, bytes]:
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > MAX_FILES:
        raise InvalidRequest(f"files must be an object of at most {MAX_FILES} files, got {quoted(given)}")
    found = {}
    for name, data in given.items():
        if data is None:
            continue
        try:
            found[name] = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise InvalidRequest(f"the content of the file {name!r:.80} is no base64") from None
    return found


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
