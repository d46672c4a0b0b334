"""What a papermill run was asked for: limits, rights and the state file, from its command line or from its caller.

papermill's command line has no options for engines, so the engine reads parameters whose names begin with ``sandbox_``
(``papermill in.ipynb out.ipynb --engine sandbox -p sandbox_memory 1G``). They are taken from the command line itself,
not from the notebook: a notebook can hold parameters of an earlier run, and must not give itself rights.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import check_timeout

#: The settings of the provisioner, and the two of them that are lists.
SETTINGS = ("policy", "memory", "timeout", "mounts", "domains", "enforcer", "record", "here")
_LISTS = ("mounts", "domains")
STATE = "state"
_PREFIX = "sandbox_"
#: What the Sandbox kernel calls these settings in a cell.
_OPTIONS = {"memory": "--memory", "timeout": "--timeout", "policy": "--policy", "mounts": "--mount",
            "domains": "--allow-net", "here": "--here"}  # fmt: skip
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class PapermillSettings:
    """Settings for the kernel, by name, and the name of the state file; empty for none."""

    values: Mapping[str, object]
    state: str = ""

    @property
    def needs_rights(self) -> bool:
        """Whether lines of ours give rights or limits in the Sandbox kernel, or save a state."""
        return bool(self.state or self.values)

    def as_cell(self) -> str:
        """Return the line that sets them in the Sandbox kernel; empty when there is nothing to set.

        Raises ``InvalidRequest`` for a setting that only wrapped kernels have.
        """
        words: list[str] = []
        for name, value in self.values.items():
            if name not in _OPTIONS:
                raise InvalidRequest(f"the Sandbox kernel has no setting {name!r}; it has: {', '.join(_OPTIONS)}")
            for each in value if isinstance(value, list) else [value]:
                words += [_OPTIONS[name], shlex.quote(str(each))]
        return " ".join(["%sandbox", *words]) if words else ""


def collect(given: Mapping[str, object], limit: float | None) -> PapermillSettings:
    """Return the settings of a run, those of the caller before those of the command line. A notebook has none.

    Args:
        given: What the caller of ``papermill.execute_notebook`` gave.
        limit: papermill's own ``--execution-timeout``.

    Raises:
        InvalidRequest: a setting is unknown, or the name of the state is no file name.

    """
    asked = {**from_pairs(command_line_parameters()), **given}
    if limit:
        asked["timeout"] = f"{check_timeout(limit):g}s"
    state = str(asked.pop(STATE, ""))
    if state and not _FILE_NAME.fullmatch(state):
        raise InvalidRequest(f"{_PREFIX}{STATE} {state!r:.120} must be a plain file name, like {STATE}.bin")
    return PapermillSettings(asked, state)


def from_pairs(pairs: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Return the settings among parameters; others are the notebook's. Raises ``InvalidRequest`` for unknown ones."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if not name.startswith(_PREFIX):
            continue
        setting = name.removeprefix(_PREFIX)
        if setting in _LISTS:
            found[setting] = [*found.get(setting, []), value]  # type: ignore[misc]
        elif setting in (*SETTINGS, STATE):
            found[setting] = value
        else:
            known = ", ".join(_PREFIX + each for each in (*SETTINGS, STATE))
            raise InvalidRequest(f"there is no setting {name!r:.80} of the engine 'sandbox'; expected: {known}")
    return found


def command_line_parameters() -> list[tuple[str, str]]:
    """Return the parameters that were typed on papermill's command line; none when a program called papermill."""
    import click

    context = click.get_current_context(silent=True)
    if context is None:
        return []
    return [*context.params.get("parameters", ()), *context.params.get("parameters_raw", ())]
