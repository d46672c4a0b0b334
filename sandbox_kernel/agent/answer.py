"""What a tool call answers: results and errors as plain JSON, bounded, in one shape.

``status`` says whether the sandbox could run the program and let it end: ``success`` also holds for a program that
said no (``exit_code``) or did not compile. Beside the five fields of the contract others are there only when they say
something more: ``outcome`` for an end that neither ``status`` nor ``exit_code`` tells. ``stdout`` and ``stderr`` are
data whatever they look like: nothing in an answer is decided by what a program printed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from sandbox_kernel.errors import MemoryExceeded, SandboxError, SandboxTimeout
from sandbox_kernel.jail.streams.output import NOTICE, Capture
from sandbox_kernel.model import ExecResult, Status, describe_end

Answer = dict[str, object]

#: What a model is shown of each stream unless the tool is made with another number.
OUTPUT_BYTES: Final = 64 << 10
#: Lists in an answer are cut here.
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


#: Ends that the fields of the contract tell whole, and limits that they name.
_TOLD = (Status.OK, Status.FAILED, Status.TIMEOUT, Status.MEMORY_EXCEEDED)
_NAMED = ((Status.TIMEOUT, "timeout"), (Status.MEMORY_EXCEEDED, "memory"))


def result_answer(result: ExecResult, output_bytes: int = OUTPUT_BYTES) -> Answer:
    """What became of a run."""
    status = _STATUS[result.status]
    return _answer(status, "" if status == "success" else _why(result), result, output_bytes)


def with_failures(answer: Answer) -> Answer:
    """The answer with the status ``failed`` for a program that said no or did not compile.

    The five words of ``SandboxTool`` are a contract that calls these a success; a model that reads ``success`` goes on.
    """
    if answer["status"] != "success" or (answer["exit_code"] in (0, None) and "outcome" not in answer):
        return answer
    return {**answer, "status": "failed"}


def error_answer(error: SandboxError, duration_s: float, output_bytes: int = OUTPUT_BYTES) -> Answer:
    """Why a request was not run as asked, with the output so far where the error carries it."""
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
    """Fields that are there only when they say something."""
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
    """Head and tail of a text that is longer than it may be; text that no encoding can carry is replaced."""
    data = _encoded(text)
    if len(data) <= _room(output_bytes):
        return data.decode()
    capture = Capture(output_bytes)
    capture.feed(data)
    return capture.finish()


def storable(value: object) -> object:
    """The same JSON value with text that every encoding can carry: names of files need not be."""
    if isinstance(value, str):
        return _encoded(value).decode()
    if isinstance(value, Mapping):
        return {str(storable(str(key))): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def as_text(answer: Mapping[str, object]) -> str:
    r"""The answer as JSON on one line, for a model that is given text.

    ``</`` is written ``<\/``, which JSON reads back as the same: no output closes a tag that a caller put around it.
    Characters that nobody sees (tags, marks of direction, C1 controls) are written as escapes, for the same reason.
    """
    text = json.dumps(answer, ensure_ascii=False).replace("</", "<\\/")
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _room(output_bytes: int) -> int:
    """The jail keeps this much, and its own notice between."""
    return output_bytes + len(NOTICE) + 40
