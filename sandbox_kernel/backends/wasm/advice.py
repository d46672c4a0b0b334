"""Adds a next step to the reason why a module was refused.

The reason comes from the checker or the engine inside the jail. This module only adds text and decides nothing.
"""

from __future__ import annotations

_TARGET = "build it as a command for wasm32-wasip1"
#: Part of a reason -> the next step. The first match is used.
_STEPS = (
    ("build it for", ""),
    ("reserved; rename", ""),
    ("exports no _start", f"export the function to run as _start, or {_TARGET} and not as a library"),
    ("announced at byte", "the file is cut or damaged: build or download it again"),
    ("unexpected end", "the file is cut or damaged: build or download it again"),
    ("unknown import", f"only wasi_snapshot_preview1 and the module sandbox (fetch) are given; {_TARGET}"),
    ("incompatible import", f"the import is declared in another way than WASI has it; {_TARGET}"),
    ("pages; the format allows", "declare a smaller memory"),
    ("switched off", f"{_TARGET}, without threads, 64-bit memory and proposals beyond WebAssembly 2.0"),
    ("proposal that is off", f"{_TARGET}, without threads, 64-bit memory and proposals beyond WebAssembly 2.0"),
    ("at most", "make it smaller: leave out what is not used (wasm-opt -Oz, --gc-sections), or split it"),
    ("nests more than", "make it flatter: no compiler makes such a function of a program"),
)


def with_advice(reason: str) -> str:
    """Return the reason with the next step, where one is known."""
    for words, step in _STEPS:
        if words in reason:
            return f"{reason}; {step}" if step else reason
    return reason
