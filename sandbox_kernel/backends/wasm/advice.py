"""What the author of a module that is refused can do about it.

The reason is the checker's or the engine's own (inside the jail); here the next step is added to its words, and nothing
is decided.
"""

from __future__ import annotations

_TARGET = "build it as a command for wasm32-wasip1"
#: What a reason says -> what to do. The first that fits is taken.
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
    """The reason, and the next step where one is known; a reason that shows source text ends with it."""
    for words, step in _STEPS:
        if words in reason:
            return f"{reason}; {step}" if step else reason
    return reason
