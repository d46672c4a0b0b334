"""Makes output of a sandbox distinguishable from our own output, and from that of other sandboxes. Pure.

Users rely on our receipts, reports and errors, so a program must not be able to imitate one.

- HTML of a sandbox is shown in a frame; our own HTML never is. It cannot leave the frame: the cleaner removes styles
  that move an element out, and the frame clips what overflows.
- Text of a sandbox never contains the mark with which our own lines begin (``receipt.unmarked``).
- An error of a program never has the name of one of our errors.
- A drawing can refer only to its own elements. Static pages hold all drawings in one document, where the first element
  with an id counts: without this, a drawing could replace shapes, such as digits, of another drawing.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256

from sandbox_kernel import errors
from sandbox_kernel.model import Status

#: A ``blockquote``, because viewers that remove styles, like GitHub, still show it as a quotation.
_FRAME = (
    '<blockquote title="shown by the program in the sandbox" '
    'style="margin:0;padding:0 0 0 8px;border:0;border-left:3px solid #9e9e9e;overflow:auto">'
)

#: Error names by status, for clients and for cells tagged ``raises-exception``.
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
#: The text before an id, in a tag that the cleaner has written.
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
    """Put clean HTML of a sandbox into a frame."""
    return f"{_FRAME}{markup}</blockquote>"


def with_own_names(drawing: str) -> str:
    """Make the ids of a clean SVG unique: each gets a digest of the drawing as prefix, the same at every run."""
    name = sha256(drawing.encode()).hexdigest()[:16]
    return _TAG.sub(lambda tag: _REFERENCE.sub(rf"\g<0>d{name}-", tag[0]), drawing)


def name_of_program(name: str) -> str:
    """Return the name of a program's error or kernel; if it is like one of ours, with "(of the program)" added."""
    plain = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name))).casefold()
    # Many letters of other scripts look like Latin ones, so a name with any of them is always marked.
    if name.isascii() and plain not in _OURS and not plain.startswith("sandbox"):
        return name
    return f"{name} (of the program)"
