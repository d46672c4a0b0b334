"""The names under which a debugger knows cells: a path that JupyterLab computes from the text of a cell.

No such file exists. A dumped cell is kept in memory, so a debugger reads no file of a cell, and a cell's text cannot be
exchanged for another one.
"""

from __future__ import annotations

from collections import OrderedDict

from ..cell_files import CELL_FILES, SEED, murmur2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: The same as on the host (``session/debugging/debug_messages.py``).
PREFIX, SUFFIX = "/sandbox-cells/", ".py"
#: How many texts are kept, and how long one may be in characters.
MAX_TEXTS, MAX_TEXT = 1000, 1 << 20
#: How many cells that ran before a debugger was attached can have breakpoints.
MAX_EARLIER = 200


def path_of(code: str) -> str:
    """Return the path by which a debugger knows a cell with this text."""
    return f"{PREFIX}{murmur2(code.encode('utf-8', 'surrogatepass'), SEED)}{SUFFIX}"


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
