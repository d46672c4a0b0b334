"""The answer of a tool call: results and errors as plain JSON of limited size, always with the same fields.

``status`` says whether the sandbox could run the program to its end: it is ``success`` also for a program with another
exit code than 0, or one that did not compile. Five fields are always present. Others are present only when they add
something: ``outcome`` for an ending that neither ``status`` nor ``exit_code`` shows. ``stdout`` and ``stderr`` are
data: no field depends on what a program printed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Final

from sandbox_kernel.errors import MemoryExceeded, SandboxError, SandboxTimeout
from sandbox_kernel.jail.streams import NOTICE, Capture
from sandbox_kernel.model import ExecResult, Status, describe_end
from sandbox_kernel.model.hints import Spelling, Stumble, hints
from sandbox_kernel.workspace.hidden import is_hidden

Answer = dict[str, object]

#: A model is not told which files the host has.
_TOOL: Final = Stumble(spelling=Spelling.TOOL, hidden=is_hidden)
#: Default limit of each output stream in an answer, in bytes.
OUTPUT_BYTES: Final = 64 << 10
#: Most items of a list in an answer.
_MOST_ITEMS = 50
_MOST_TEXT = 2000

_STATUS = {
    Status.OK: "success",
    Status.FAILED: "success",
    Status.COMPILE_FAILED: "success",
    Status.TIMEOUT: "timeout",
    Status.CPU_LIMIT: "timeout",
    Status.FUEL_EXHAUSTED: "timeout",
    Status.MEMORY_EXCEEDED: "memory_exceeded",
    Status.KILLED: "error",
    Status.INTERRUPTED: "error",
}


#: Endings and limits that the five fields already show.
_TOLD = (Status.OK, Status.FAILED, Status.TIMEOUT, Status.MEMORY_EXCEEDED)
_NAMED = ((Status.TIMEOUT, "timeout"), (Status.MEMORY_EXCEEDED, "memory"))


def result_answer(result: ExecResult, output_bytes: int = OUTPUT_BYTES) -> Answer:
    """Return the answer for the result of a run."""
    status = _STATUS[result.status]
    return _answer(status, "" if status == "success" else _why(result), result, output_bytes)


def with_hints(result: ExecResult) -> ExecResult:
    """Return the result with notes on what a model could ask for; for a tool, whose answers are read by models."""
    return replace(result, notes=(*result.notes, *hints(result, _TOOL)))


def with_failures(answer: Answer) -> Answer:
    """Return the answer with status ``failed`` for an exit code other than 0 or a failed compilation.

    ``SandboxTool`` itself answers ``success`` for these, and a model that reads ``success`` does not look further.
    """
    if answer["status"] != "success" or (answer["exit_code"] in (0, None) and "outcome" not in answer):
        return answer
    return {**answer, "status": "failed"}


def error_answer(error: SandboxError, duration_s: float, output_bytes: int = OUTPUT_BYTES) -> Answer:
    """Return the answer for an error, with the output so far if the error has it."""
    status = "error"
    if isinstance(error, SandboxTimeout):
        status = "timeout"
    elif isinstance(error, MemoryExceeded):
        status = "memory_exceeded"
    carried = getattr(error, "result", None)
    if isinstance(carried, ExecResult):
        return {**_answer(status, str(error), carried, output_bytes), "code": error.code}
    return {
        "status": status,
        "stdout": "",
        "stderr": bounded(str(error), output_bytes),
        "exit_code": None,
        "duration_ms": round(duration_s * 1000),
        "code": error.code,
    }


def _answer(status: str, why: str, result: ExecResult, output_bytes: int) -> Answer:
    stderr = bounded(result.stderr, output_bytes)
    if why:
        stderr += ("" if not stderr or stderr.endswith("\n") else "\n") + why
    return {
        "status": status,
        "stdout": bounded(result.stdout, output_bytes),
        "stderr": stderr,
        "exit_code": result.exit_code,
        "duration_ms": round(result.duration * 1000),
        **_more(result, output_bytes),
    }


def _why(result: ExecResult) -> str:
    if result.status is Status.TIMEOUT and result.timeout:
        return str(SandboxTimeout(result.timeout))
    if result.status is Status.MEMORY_EXCEEDED and result.memory_limit_mb:
        return str(MemoryExceeded(result.memory_limit_mb))
    return describe_end(result)


def _more(result: ExecResult, output_bytes: int) -> Answer:
    """Return the fields that are present only when they add something."""
    printed = {"stdout": (result.stdout, result.stdout_bytes), "stderr": (result.stderr, result.stderr_bytes)}
    flagged = {"stdout": result.stdout_truncated, "stderr": result.stderr_truncated}
    totals = {name: max(total, len(_encoded(text))) for name, (text, total) in printed.items()}
    more: Answer = {
        "outcome": None if result.status in _TOLD else str(result.status),
        "limit": None if (result.status, result.limit) in _NAMED else result.limit,
        "signal": result.signal,
        "truncated": {name: totals[name] for name in totals if flagged[name] or totals[name] > _room(output_bytes)},
        "violations": [asdict(item) for item in result.violations[:_MOST_ITEMS]],
        "changes": [
            {"path": change.path, "kind": change.kind, "type": change.type, "size": change.size}
            for change in result.changes[:_MOST_ITEMS]
        ],
        "notes": [note[:_MOST_TEXT] for note in result.notes[:_MOST_ITEMS]],
        "rolled_back": result.rolled_back,
    }
    if len(result.changes) > _MOST_ITEMS:
        more["changes_left_out"] = len(result.changes) - _MOST_ITEMS
    return {name: storable(value) for name, value in more.items() if value}


def bounded(text: str, output_bytes: int) -> str:
    """Return head and tail of a text that is too long; replaces characters that cannot be encoded."""
    data = _encoded(text)
    if len(data) <= _room(output_bytes):
        return data.decode()
    capture = Capture(output_bytes)
    capture.feed(data)
    return capture.finish()


def storable(value: object) -> object:
    """Return a JSON value whose texts can be encoded; file names may hold other characters."""
    if isinstance(value, str):
        return _encoded(value).decode()
    if isinstance(value, Mapping):
        return {str(storable(str(key))): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def as_text(answer: Mapping[str, object]) -> str:
    r"""Return the answer as JSON on one line, for a model that reads text.

    ``</`` is written ``<\/``, which means the same in JSON: output cannot close a tag that a caller put around it.
    Invisible characters (tags, direction marks, C1 controls) are written as escapes.
    """
    text = json.dumps(answer, ensure_ascii=False).replace("</", "<\\/")
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _room(output_bytes: int) -> int:
    """Return the size of a stream that the jail has cut, with its notice between head and tail."""
    return output_bytes + len(NOTICE) + 40
