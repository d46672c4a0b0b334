"""Whether the lines of a cell may give rights, or only the person at the page.

The ``%sandbox`` lines of a stranger's notebook are the stranger's. With ``SANDBOX_KERNEL_LINES=limits`` they choose
languages, sessions and limits, and give no rights: these come from the kernel's environment, from the side panel and
its dialog, and from the buttons and questions below a cell. Pure, except for the variable.
"""

from __future__ import annotations

import os

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import CellPlan

LINES_VARIABLE = "SANDBOX_KERNEL_LINES"
#: The options that show, reach or run more of the host, by the field of ``CellOptions``.
_RIGHTS = {
    "mounts": "--mount",
    "allow_net": "--allow-net",
    "here": "--here",
    "gpu": "--gpu",
    "policy": "--policy",
    "python": "--python",
}
#: The commands that write to the user's folder or give a right.
_COMMANDS = ("apply", "allow", "save")


def lines_give_rights() -> bool:
    """Return whether the lines of cells may give rights. Raises ``InvalidRequest`` for a value that is none."""
    value = os.environ.get(LINES_VARIABLE, "").strip()
    if value not in ("", "all", "limits"):
        raise InvalidRequest(f"{LINES_VARIABLE}={value!r} is neither 'all' nor 'limits'; set one of them, or nothing")
    return value != "limits"


def check_own_rights(plan: CellPlan, before: CellOptions) -> None:
    """Raise ``PolicyViolation`` if the lines of a cell ask for more than the notebook's defaults had ``before``."""
    asked = [f"%sandbox {command.name}" for command in plan.commands if command.name in _COMMANDS]
    for options in (plan.options, plan.defaults, *(command.options for command in plan.commands)):
        asked += [word for name, word in _RIGHTS.items() if _is_more(getattr(options, name), getattr(before, name))]
    if asked:
        raise PolicyViolation(
            f"the lines of a cell give no rights here: {', '.join(dict.fromkeys(asked))} was asked for. Give it in the "
            "side panel (what it may touch; files and changes), with the buttons below a cell, or start the kernel "
            f"without {LINES_VARIABLE}=limits"
        )


def _is_more(asked: object, before: object) -> bool:
    if isinstance(asked, tuple) and isinstance(before, tuple):
        return not set(asked) <= set(before)
    return asked is not None and asked != before
