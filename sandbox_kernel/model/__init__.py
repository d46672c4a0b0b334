"""Requests and results: the plain values that pass between the packages. Import them from here.

They check their own fields and do nothing else.
"""

from sandbox_kernel.model.call import Call, CallOutcome
from sandbox_kernel.model.given_text import LOADER_NAMES, check_env, check_file_name
from sandbox_kernel.model.language import Language, known_languages
from sandbox_kernel.model.notes import Note, NoteKind, signal_name
from sandbox_kernel.model.request import (
    MAX_ARGUMENT_BYTES,
    MAX_ARGUMENTS_BYTES,
    MAX_BRACKET_RUN,
    MAX_CODE_BYTES,
    ExecRequest,
)
from sandbox_kernel.model.result import (
    CellError,
    Display,
    ExecResult,
    FsChange,
    Limit,
    Violation,
    describe_end,
)
from sandbox_kernel.model.status import Status

__all__ = [
    "LOADER_NAMES",
    "MAX_ARGUMENTS_BYTES",
    "MAX_ARGUMENT_BYTES",
    "MAX_BRACKET_RUN",
    "MAX_CODE_BYTES",
    "Call",
    "CallOutcome",
    "CellError",
    "Display",
    "ExecRequest",
    "ExecResult",
    "FsChange",
    "Language",
    "Limit",
    "Note",
    "NoteKind",
    "Status",
    "Violation",
    "check_env",
    "check_file_name",
    "describe_end",
    "known_languages",
    "signal_name",
]
