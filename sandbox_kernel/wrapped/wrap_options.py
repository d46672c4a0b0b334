"""What a kernel is wrapped with, as a frozen value, and its form on the launcher's command line and in a variable.

``wrap`` and the provisioner write both, the launcher reads them. ``BY_SETTING`` of the option table has all settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import DEFAULT_MEMORY_MB
from sandbox_kernel.notebook.options.option_table import BY_SETTING, parse_fields
from sandbox_kernel.notebook.options.parse_cell import page_limits
from sandbox_kernel.policy import Mount, SandboxPolicy
from sandbox_kernel.policy.network_rule import NetworkRule
from sandbox_kernel.policy.sandbox_policy import policy_with
from sandbox_kernel.util.wire import check

#: The name of the launcher for ``python -m``.
LAUNCHER = "sandbox_kernel.wrapped"
#: How Python starts it. With -P no module beside the notebook is imported by this process, which is outside the jail.
START = ("-P", "-m", LAUNCHER)
#: Stands for the kernel's own connection file. A front end replaces Jupyter's ``{connection_file}`` everywhere.
INNER_FILE = "{inner_connection_file}"
#: The variable that has the variables of the kernelspec, as JSON: others can read a command line.
INNER_ENV = "SANDBOX_KERNEL_INNER_ENV"
#: With less memory no kernel starts.
LEAST_MEMORY_MB = 64
#: Limits as kernelspecs of earlier versions have them: a number, and now a setting with a unit.
_NUMBERS = {"memory_mb": ("memory", "M"), "timeout_s": ("timeout", "s")}


@dataclass(frozen=True, kw_only=True)
class WrapOptions:
    """How one kernel is started inside a jail."""

    #: The kernel's own command; ``INNER_FILE`` in it stands for the path of its connection file inside.
    command: tuple[str, ...]
    #: The variables and the folder of its kernelspec, and how it is interrupted: by signal or message.
    env: Mapping[str, str] = field(default_factory=dict)
    resource_dir: str = ""
    interrupt: str = "signal"
    #: The fields of the settings. A policy file or preset; ``standard`` without one.
    policy: str = ""
    #: Host paths to show, and domains that it may reach, besides.
    mounts: tuple[Mount, ...] = ()
    allow_net: tuple[NetworkRule, ...] = ()
    memory_mb: int = DEFAULT_MEMORY_MB
    #: The limit of one cell; None for none.
    timeout_s: float | None = None
    enforcer: str = "auto"
    #: The file to which what the kernel did is added; empty for none.
    record: str = ""
    #: The folder that it works on, copy-on-write; ``.`` is the one it is started in, empty none.
    here: str = ""

    def __post_init__(self) -> None:
        if not self.command or not all(isinstance(word, str) and "\0" not in word for word in self.command):
            raise InvalidRequest(f"a kernel's command must be a list of words, got {self.command!r:.120}")
        if self.interrupt not in ("signal", "message"):
            raise InvalidRequest(f"interrupt mode {self.interrupt!r:.60} is not known; expected: signal, message")
        if self.memory_mb < LEAST_MEMORY_MB:
            raise InvalidRequest(
                f"a kernel does not start with a memory limit of {self.memory_mb} MB; give at least {LEAST_MEMORY_MB}"
            )

    def sandbox_policy(self) -> SandboxPolicy:
        """Return what the kernel may touch. Raises ``PolicyViolation``; resolves no mount."""
        return policy_with(self.policy or "standard", self.mounts, self.allow_net)

    def settings(self) -> dict[str, str | list[str]]:
        """Return the settings that differ from those of a kernel that was given none, as users write them."""
        found: dict[str, str | list[str]] = {}
        for name, option in BY_SETTING.items():
            value = getattr(self, option.field)
            if value != getattr(WrapOptions, option.field):
                found[name] = [option.write(one) for one in value] if option.repeats else option.write(value)
        return found

    def to_arguments(self) -> list[str]:
        """Return the launcher's arguments besides the connection file: what was set, as JSON, and the command."""
        given = {"resource_dir": self.resource_dir, "interrupt": self.interrupt, **self.settings()}
        return [json.dumps(given), *self.command]

    def to_variables(self) -> dict[str, str]:
        """Return the launcher's own variables."""
        return {INNER_ENV: json.dumps(dict(self.env))} if self.env else {}


def from_arguments(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, WrapOptions]:
    """Return the path of the connection file and the options from the launcher's command line and variables."""
    try:
        _, file, text, *command = words
        given = check(json.loads(text), dict[str, Any])
        for earlier, (name, unit) in _NUMBERS.items():
            if earlier in given:
                given[name] = f"{given.pop(earlier)}{unit}"
        own = {name: given.pop(name) for name in ("resource_dir", "interrupt") if name in given}
        if unknown := sorted(given.keys() - BY_SETTING):
            raise ValueError(f"{unknown[0]!r:.60} is no option, or one of an earlier version")
        env = check(json.loads(variables.get(INNER_ENV, "{}")), dict[str, str])
        usual = page_limits(variables)
        known = {name: value for name in ("memory_mb", "timeout_s") if (value := getattr(usual, name)) is not None}
        fields = {**known, **check(own, dict[str, str]), **parse_fields(given, BY_SETTING)}
        return file, WrapOptions(command=tuple(command), env=env, **fields)
    except (ValueError, TypeError, SandboxError) as error:
        raise InvalidRequest(
            f"these are no arguments of {LAUNCHER} ({error}); remove the kernel with 'jupyter kernelspec remove' and "
            "wrap it anew"
        ) from None
