"""The next step for a module that was refused, by the kind of defect that the checker in the jail reports.

It only adds text and decides nothing.
"""

from __future__ import annotations

from enum import StrEnum


class ModuleDefect(StrEnum):
    """What is wrong with a module, by the words of the checker inside the jail (``guest/wasm/binary/format.py``)."""

    OTHER = "other"
    CUT = "cut"
    TOO_LARGE = "too_large"
    NESTED = "nested"
    SWITCHED_OFF = "switched_off"
    MEMORY_RANGE = "memory_range"
    NO_ENTRY = "no_entry"
    UNKNOWN_IMPORT = "unknown_import"
    OTHER_IMPORT = "other_import"


_TARGET = "build it as a command for wasm32-wasip1"
_STEPS = {
    ModuleDefect.CUT: "the file is cut or damaged: build or download it again",
    ModuleDefect.TOO_LARGE: "make it smaller: leave out what is not used (wasm-opt -Oz, --gc-sections), or split it",
    ModuleDefect.NESTED: "make it flatter: no compiler makes such a function of a program",
    ModuleDefect.SWITCHED_OFF: f"{_TARGET}, without threads, 64-bit memory and proposals beyond WebAssembly 2.0",
    ModuleDefect.MEMORY_RANGE: "declare a smaller memory",
    ModuleDefect.NO_ENTRY: f"export the function to run as _start, or {_TARGET} and not as a library",
    ModuleDefect.UNKNOWN_IMPORT: f"only wasi_snapshot_preview1 and the module sandbox (fetch) are given; {_TARGET}",
    ModuleDefect.OTHER_IMPORT: f"the import is declared in another way than WASI has it; {_TARGET}",
}


def with_advice(reason: str, defect: ModuleDefect) -> str:
    """Return the reason with the next step, where one is known."""
    step = _STEPS.get(defect)
    return f"{reason}; {step}" if step is not None else reason
