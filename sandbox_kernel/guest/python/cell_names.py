"""The names under which a debugger knows cells: a path that JupyterLab computes from the text of a cell.

No such file exists. A dumped cell is kept in memory, so a debugger reads no file of a cell, and a cell's text cannot be
exchanged for another one.
"""

from __future__ import annotations

import binascii
import os
from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


# The name under which a cell is compiled, as in ipykernel: warnings, syntax errors and ``co_filename`` show it.
#
# No such file exists. Libraries (joblib, for one) know code of a notebook by names of this form.

CELL_FILES = "/tmp/ipykernel_"
SEED = 0xC70F6907
#: Longer cells, in bytes, get a number that is cheaper to compute than ipykernel's.
_LONG = 8192


def cell_file(raw_code: str, code: str, number: int) -> str:
    """Return the name for a cell: the same for the same text, as long as the session's process is the same."""
    data = raw_code.encode("utf-8", "surrogatepass")
    return f"{CELL_FILES}{os.getpid()}/{murmur2(data, SEED) if len(data) <= _LONG else binascii.crc32(data)}.py"


def murmur2(data: bytes, seed: int) -> int:
    """Return the 32-bit MurmurHash2 of some data, as JupyterLab computes it."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    value = seed ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        value = value * m & mask ^ (k ^ k >> 24) * m & mask
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * m & mask
    value = (value ^ value >> 13) * m & mask
    return value ^ value >> 15


#: The same as on the host (``session/debug_link.py``).
CELL_FOLDER, CELL_SUFFIX = "/sandbox-cells/", ".py"
#: How many texts are kept, and how long one may be in characters.
MAX_TEXTS, MAX_TEXT = 1000, 1 << 20
#: How many cells that ran before a debugger was attached can have breakpoints.
MAX_EARLIER = 200


def path_of(code: str) -> str:
    """Return the path by which a debugger knows a cell with this text."""
    return f"{CELL_FOLDER}{murmur2(code.encode('utf-8', 'surrogatepass'), SEED)}{CELL_SUFFIX}"


class CellTexts:
    """The texts of cells that ran or that a debugger has asked about, by path; the oldest go first."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._paths: OrderedDict[str, str] = OrderedDict()
        #: By program: the name under which IPython has compiled it before a debugger was attached.
        self.earlier: OrderedDict[str, str] = OrderedDict()

    def find_earlier(self, shell: Any) -> None:
        """Note the names of the cells that have run so far, so that breakpoints in their functions are found."""
        cells = shell.history_manager.input_hist_raw
        for name, number in list(shell.compile._filename_map.items())[-MAX_EARLIER:]:
            if name.startswith(CELL_FILES) and number < len(cells) and cells[number]:
                _keep(self.earlier, cells[number], name)

    def dump(self, code: str, program: str) -> str:
        """Keep the text of a cell, whose program the session will get, and return its path.

        They differ when the cell has ``%sandbox`` lines or begins with an empty line; line numbers are the same.
        """
        path = path_of(code)
        _keep(self._texts, path, code)
        _keep(self._paths, program, path)
        return path

    def name(self, program: str) -> str:
        """Return the name under which to compile a program that the session is about to run."""
        return self.earlier.get(program) or self._paths.get(program) or self.dump(program, program)

    def get(self, path: str) -> str | None:
        """Return the text of a path; None when it is unknown."""
        return self._texts.get(path)


def _keep(kept: OrderedDict[str, str], key: str, value: str) -> None:
    if len(key) <= MAX_TEXT and len(value) <= MAX_TEXT:
        kept[key] = value
    while len(kept) > MAX_TEXTS:
        kept.popitem(last=False)


def name_cells(shell: Any, texts: CellTexts) -> Callable[[], None]:
    """Let a shell compile its cells under these names; returns the function that undoes it.

    Empty lines at the beginning of a cell are kept meanwhile, so that lines have the numbers that the page shows.
    """
    from IPython.core.inputtransformer2 import leading_empty_lines

    compiler, transforms = shell.compile, shell.input_transformer_manager.cleanup_transforms
    before = list(transforms)
    usual = compiler.get_code_name

    def name_of(raw_code: str, code: str, number: int) -> str:
        return texts.name(raw_code)

    compiler.get_code_name = name_of
    transforms[:] = [step for step in transforms if step is not leading_empty_lines]

    def undo() -> None:
        compiler.get_code_name = usual
        transforms[:] = before

    return undo
