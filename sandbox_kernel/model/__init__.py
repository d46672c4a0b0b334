"""Requests and results: the plain values that pass between the packages. Import them from here.

They check their own fields and do nothing else.
"""

from sandbox_kernel.limits import Limit as Limit, Status as Status
from sandbox_kernel.model.notes import Note as Note, NoteKind as NoteKind, signal_name as signal_name
from sandbox_kernel.model.request import (
    MAX_BRACKET_RUN as MAX_BRACKET_RUN,
    MAX_CODE_BYTES as MAX_CODE_BYTES,
    UNHEARD as UNHEARD,
    AnyOnInput as AnyOnInput,
    Events as Events,
    ExecRequest as ExecRequest,
    Language as Language,
    OnInput as OnInput,
    OnOutput as OnOutput,
    OnUsage as OnUsage,
    check_env as check_env,
    check_file_name as check_file_name,
    check_listener as check_listener,
)
from sandbox_kernel.model.result import (
    Call as Call,
    CallOutcome as CallOutcome,
    CellError as CellError,
    Display as Display,
    ExecResult as ExecResult,
    FsChange as FsChange,
    Violation as Violation,
    describe_end as describe_end,
)
