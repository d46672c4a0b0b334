"""The name under which a cell is compiled, as in ipykernel: a path that JupyterLab computes from the text of the cell.

Warnings, syntax errors and ``co_filename`` show it, libraries (joblib, for one) know code of a notebook by names of
this form, and a debugger knows a cell by it. No such file exists: a dumped cell is kept in memory, so a debugger reads
no file of a cell, and a cell's text cannot be exchanged for another one.
"""

from __future__ import annotations

import binascii
from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: The same as on the host (``session/debug_link.py``).
CELL_FOLDER, CELL_SUFFIX, SEED = "/tmp/ipykernel_1/", ".py", 0xC70F6907
#: Longer cells, in bytes, get a number that is cheaper to compute than JupyterLab's, unless they are debugged.
_LONG = 8192
#: How many texts are kept for a debugger, and how long one may be in characters.
MAX_TEXTS, MAX_TEXT = 1000, 1 << 20


def cell_file(raw_code: str, code: str = "", number: int = 0) -> str:
    """Return the name for a cell; IPython gives three arguments."""
    data = raw_code.encode("utf-8", "surrogatepass")
    return f"{CELL_FOLDER}{murmur2(data, SEED) if len(data) <= _LONG else binascii.crc32(data)}{CELL_SUFFIX}"


def path_of(code: str) -> str:
    """Return the path by which a debugger knows a cell with this text."""
    return f"{CELL_FOLDER}{murmur2(code.encode('utf-8', 'surrogatepass'), SEED)}{CELL_SUFFIX}"


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


class CellTexts:
    """The texts of cells that a debugger has asked about, and the paths of programs; the oldest go first."""

    def __init__(self) -> None:
        self.texts: OrderedDict[str, str] = OrderedDict()
        self._paths: OrderedDict[str, str] = OrderedDict()

    def dump(self, code: str, program: str) -> str:
        """Keep the text of a cell, whose program may lack ``%sandbox`` lines, and return its path."""
        path = path_of(code)
        for kept, key, value in ((self.texts, path, code), (self._paths, program, path)):
            if len(program) <= MAX_TEXT and len(code) <= MAX_TEXT:
                kept[key] = value
            while len(kept) > MAX_TEXTS:
                kept.popitem(last=False)
        return path

    def name(self, program: str, code: str = "", number: int = 0) -> str:
        """Return the name under which to compile a program that the session is about to run; see ``cell_file``."""
        return self._paths.get(program) or self.dump(program, program)


def name_cells(shell: Any, texts: CellTexts) -> Callable[[], None]:
    """Let a shell compile cells under these names, empty first lines too; returns the function that undoes it."""
    from IPython.core.inputtransformer2 import leading_empty_lines

    compiler, transforms = shell.compile, shell.input_transformer_manager.cleanup_transforms
    before = list(transforms)
    usual, compiler.get_code_name = compiler.get_code_name, texts.name
    transforms[:] = [step for step in transforms if step is not leading_empty_lines]

    def undo() -> None:
        compiler.get_code_name = usual
        transforms[:] = before

    return undo
