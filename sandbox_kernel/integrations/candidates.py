"""Several commands from the same state of a machine, for the tools of an agent: try them, compare them, keep one.

Frameworks with tools of their own offer ``explore`` and ``keep`` with the words below; a model reads what they return.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.integrations.machine import SandboxMachine
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.result import describe_end
from sandbox_kernel.session.tree.time_travel import Exploration

#: How much of each candidate's output a model gets.
_MOST_OUTPUT = 4000

EXPLORE = (
    "Try several shell commands, each from the present files. Afterwards the files are as they were; the tool keep "
    "makes the files of one candidate the present ones. Use it to compare several fixes without undoing each."
)
KEEP = "Make the files of one candidate of the last explore the present ones. Candidates are counted from 0."


class Candidates:
    """The last exploration of one machine."""

    def __init__(self, machine: SandboxMachine) -> None:
        self._machine = machine
        self._last: Exploration | None = None

    def explore(self, commands: Sequence[str], timeout: float | None = None) -> str:
        """Run the commands and return their ends and outputs as text. What goes wrong is in the text."""
        try:
            self._last = self._machine.explore(commands, timeout)
        except SandboxError as error:
            return f"error: {error}"
        return "\n".join(_told(number, result) for number, result in enumerate(self._last.results))

    def keep(self, candidate: int) -> str:
        """Make a candidate the present state and say so. What goes wrong is in the text."""
        if self._last is None:
            return "error: there are no candidates; explore makes some"
        try:
            self._last.keep(candidate)
        except SandboxError as error:
            return f"error: {error}"
        self._last = None
        return f"candidate {candidate} was kept"


def _told(number: int, result: ExecResult) -> str:
    end = f"exit code {result.exit_code}" if result.exit_code is not None else f"{describe_end(result)}; cannot be kept"
    output = result.stdout + result.stderr
    cut = output if len(output) <= _MOST_OUTPUT else f"{output[:_MOST_OUTPUT]}…"
    return f"candidate {number}: {end}\n{cut}".rstrip()
