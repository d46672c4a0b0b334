"""Requests and results: the plain values that pass between the packages. Import them from here.

They check their own fields and do nothing else.
"""

from sandbox_kernel.limits import Limit, Status
from sandbox_kernel.model.notes import Note, NoteKind, signal_name
from sandbox_kernel.model.request import (
    LOADER_NAMES,
    MAX_ARGUMENT_BYTES,
    MAX_ARGUMENTS_BYTES,
    MAX_BRACKET_RUN,
    MAX_CODE_BYTES,
    UNHEARD,
    AnyOnInput,
    Events,
    ExecRequest,
    Language,
    OnInput,
    OnOutput,
    OnUsage,
    check_env,
    check_file_name,
    check_listener,
    known_languages,
)
from sandbox_kernel.model.result import (
    Call,
    CallOutcome,
    CellError,
    Display,
    ExecResult,
    FsChange,
    Violation,
    describe_end,
)

__all__ = [
    "LOADER_NAMES",
    "MAX_ARGUMENTS_BYTES",
    "MAX_ARGUMENT_BYTES",
    "MAX_BRACKET_RUN",
    "MAX_CODE_BYTES",
    "UNHEARD",
    "AnyOnInput",
    "Call",
    "CallOutcome",
    "CellError",
    "Display",
    "Events",
    "ExecRequest",
    "ExecResult",
    "FsChange",
    "Language",
    "Limit",
    "Note",
    "NoteKind",
    "OnInput",
    "OnOutput",
    "OnUsage",
    "Status",
    "Violation",
    "check_env",
    "check_file_name",
    "check_listener",
    "describe_end",
    "known_languages",
    "signal_name",
]
