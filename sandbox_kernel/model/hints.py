"""Hints where people stumble: one sentence with what to write, made from how a run ended. Pure.

Each door passes what it knows (``Stumble``) and adds the hints to the notes of the result. The words of a program are
only searched for the messages of well-known errors, and a wrong guess costs one sentence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from sandbox_kernel.model import notes
from sandbox_kernel.model.language import Language
from sandbox_kernel.model.notes import Note
from sandbox_kernel.model.result import ExecResult, Status

#: How much of the end of an error output is searched.
_SEARCHED = 4000
_MISSING_FILE = (
    re.compile(r"No such file or directory: ['\"]([^'\"\n]{1,300})['\"]"),
    re.compile(r"ENOENT: no such file or directory, \w+ '([^'\n]{1,300})'"),
    re.compile(r"^[\w./-]{1,60}: (?:cannot (?:open|access) )?'?([^':\n]{1,300})'?: No such file", re.MULTILINE),
)
_READ_ONLY = re.compile(r"Read-only file system: ['\"]([^'\"\n]{1,300})['\"]")
_NO_MODULE = re.compile(r"No module named ['\"]([A-Za-z_][\w.]{0,80})['\"]")
_WORK = "/box/"


@dataclass(frozen=True)
class Stumble:
    """What a door knows of a run.

    Args:
        line: How an option is written there: ``%sandbox --here``, or ``--here`` alone.
        beside: Whether a path, relative to the folder of the notebook or command, exists on the host; None where that
            must not be told to whoever reads the answer.
        running: Whether the run was a cell of a session that goes on.

    """

    line: str = "%sandbox "
    beside: Callable[[str], bool] | None = None
    running: bool = False


def hints(result: ExecResult, stumble: Stumble) -> tuple[Note, ...]:
    """Return what a user could write to get further; nothing when all went well."""
    said = (result.stderr[-_SEARCHED:] + "\n" + (result.error.evalue[-_SEARCHED:] if result.error else "")).strip()
    found: list[Note] = []
    if result.status is Status.TIMEOUT and result.timeout:
        found.append(notes.hint_time(stumble.line, _longer(result.timeout)))
    if result.status is Status.MEMORY_EXCEEDED and result.memory_limit_mb:
        found.append(notes.hint_memory(stumble.line, _larger(result.memory_limit_mb)))
    if not result.ok and not found:
        found += _missing_file(said, result, stumble)
        if (place := _READ_ONLY.search(said)) is not None and not place[1].startswith(_WORK):
            found.append(notes.hint_read_only(stumble.line, "/" + place[1].strip("/").split("/")[0]))
        if (module := _NO_MODULE.search(said)) is not None:
            found.append(notes.hint_package(stumble.line, module[1].split(".")[0]))
    return tuple(found[:2])


def _missing_file(said: str, result: ExecResult, stumble: Stumble) -> list[Note]:
    if result.here or stumble.beside is None:
        return []
    for pattern in _MISSING_FILE:
        for path in pattern.findall(said):
            inner = path.removeprefix(_WORK)
            plain = os.path.normpath(inner)
            if inner.startswith("/") or plain.startswith("..") or not stumble.beside(plain):
                continue
            where = "the notebook" if stumble.line else "you"
            return [notes.hint_file(stumble.line, plain, where, _for_running(result, stumble))]
    return []


def _for_running(result: ExecResult, stumble: Stumble) -> str:
    """Return the line for a running session, which has the folder that it began with; empty when none goes on."""
    if not stumble.running:
        return ""
    keeps = result.language == Language.PYTHON
    return f"{stumble.line}restart --keep --here" if keeps else f"{stumble.line}restart {result.language} first"


def _longer(seconds: float) -> str:
    more = seconds * 4
    return f"{more:g}s" if more < 120 else f"{more / 60:.0f}m"


def _larger(memory_mb: int) -> str:
    more = memory_mb * 2
    return f"{more}M" if more % 1024 else f"{more // 1024}G"
