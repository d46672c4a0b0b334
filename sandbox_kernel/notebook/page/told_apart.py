"""What keeps the output of a sandbox from passing for ours, or for another sandbox's: a frame, a mark, names. Pure.

A receipt, a report or an error of ours says what the walls did, so a program must not be able to write one.

- HTML of a sandbox stands in a frame, and nothing of ours does. What is in it can look like anything, but it cannot
  leave the frame: the cleaner lets no style through that moves an element out, and the frame cuts what overflows.
- Text of a sandbox never holds the mark that our own lines of text begin with (``receipt.unmarked``).
- An error of a sandbox never has the name of one of ours.
- What a drawing refers to is in that drawing. Static pages have all of them in one document, where the first element
  of a name counts: a drawing could lend its shapes to another, whose digits would then be others.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256

from sandbox_kernel import errors
from sandbox_kernel.model import Status

#: A quotation: readers that take styles away, GitHub for one, still show it as one.
_FRAME = (
    '<blockquote title="shown by the program in the sandbox" '
    'style="margin:0;padding:0 0 0 8px;border:0;border-left:3px solid #9e9e9e;overflow:auto">'
)

#: How a cell failed, for clients and for ``raises-exception`` cells.
ERROR_NAMES = {
    Status.FAILED: "SandboxExit",
    Status.TIMEOUT: "SandboxTimeout",
    Status.CPU_LIMIT: "CpuLimitExceeded",
    Status.MEMORY_EXCEEDED: "MemoryExceeded",
    Status.FUEL_EXHAUSTED: "FuelExhausted",
    Status.COMPILE_FAILED: "CompileError",
    Status.INTERRUPTED: "KeyboardInterrupt",
    Status.KILLED: "SandboxKilled",
}
INTERNAL_ERROR = "InternalError"
_TAG = re.compile(r"<[A-Za-z][^<>]*>")
#: What stands before a name, in a tag that the cleaner has written.
_REFERENCE = re.compile(r"""\sid="|\s(?:xlink:)?href="#|url\((?:'|"|&quot;)?#""")
_OURS = frozenset(
    name.casefold()
    for name in (
        *(name for status, name in ERROR_NAMES.items() if status is not Status.INTERRUPTED),
        INTERNAL_ERROR,
        *(name for name, value in vars(errors).items() if isinstance(value, type)),
    )
)


def framed(markup: str) -> str:
    """Clean HTML of a sandbox in its frame."""
    return f"{_FRAME}{markup}</blockquote>"


def with_own_names(drawing: str) -> str:
    """A clean SVG whose names no other drawing has: each begins with a digest of the drawing, the same at every run."""
    name = sha256(drawing.encode()).hexdigest()[:16]
    return _TAG.sub(lambda tag: _REFERENCE.sub(rf"\g<0>d{name}-", tag[0]), drawing)


def error_name_of_program(name: str) -> str:
    """The name of a program's own error; one that could be taken for a name of ours says whose it is."""
    plain = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name))).casefold()
    # Letters of other scripts that look like these are many: a name that has some is always marked.
    if name.isascii() and plain not in _OURS and not plain.startswith("sandbox"):
        return name
    return f"{name} (of the program)"
