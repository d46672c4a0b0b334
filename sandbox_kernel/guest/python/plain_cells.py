"""Tells cells of plain Python from those in which IPython has something to replace: magics, commands, help, prompts.

IPython takes every cell apart into tokens to find out. That touches half a megabyte of memory, which each checkpoint
then holds for itself, and takes a third of the time of a small cell. A cell is plain only if IPython would certainly
leave it as it is; in doubt it is asked.
"""

from __future__ import annotations

import re

from IPython.core.autocall import IPyAutocall
from IPython.core.macro import Macro

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple

#: What may be more than Python: a line that begins with an escape or a prompt, ``?`` and ``!`` anywhere, a magic that
#: is assigned, an indented beginning, a line of spaces (IPython empties it), rare ends of lines.
_MAYBE_MORE = re.compile(
    r"\A\s|^[ \t]*(?:[%,;/$]|>>>|\.\.|In[ ]?\[)|\?|!(?!=)|=[\s\\]*%|^[ \t]+$|[\r\v\f\x1c-\x1e\x85\u2028\u2029]",
    re.MULTILINE,
)
#: A single line is looked at again by IPython, for names that stand for magics. It leaves assignments to a name.
_ASSIGNMENT = re.compile(r"([^\W\d]\w*) *=[^=\n#][^\n#]*\n\Z")


class PlainCells:
    """Knows the rules by which a shell replaces parts of cells, before the first cell; the user may change each."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        checkers = shell.prefilter_manager.checkers
        self._assignments: Any = next(one for one in checkers if type(one).__name__ == "AssignmentChecker")
        self._usual, self._usual_for_lines = self._rules(), self._rules_for_lines()

    def _rules(self) -> Tuple[object, ...]:
        shell = self._shell
        found = shell.input_transformer_manager
        return (
            type(found),
            vars(found).get("transform_cell"),
            tuple(found.cleanup_transforms),
            tuple(found.line_transforms),
            tuple(found.token_transformers),
            tuple(shell.input_transformers_post),
        )

    def _rules_for_lines(self) -> Tuple[object, ...]:
        found = self._shell.prefilter_manager
        return (
            type(found),
            vars(found).get("prefilter_lines"),
            tuple(found.checkers),
            tuple(found.transformers),
            self._assignments.enabled,
        )

    def as_it_is(self, code: str) -> str | None:
        """Return a cell with an end of its last line, if IPython would return just that; None if it may not be so."""
        if not code or _MAYBE_MORE.search(code) is not None or self._rules() != self._usual:
            return None
        text = code if code.endswith("\n") else f"{code}\n"
        if text.count("\n") == 1:
            found, shell = _ASSIGNMENT.match(text), self._shell
            if found is None or isinstance(shell.user_ns.get(found.group(1)), (Macro, IPyAutocall)):
                return None
            if self._rules_for_lines() != self._usual_for_lines:
                return None
            shell._last_input_line = text[:-1]
        return text
