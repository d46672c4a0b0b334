"""What a kernel is wrapped with, as a frozen value, and its form on the launcher's command line and in a variable.

The kernelspec of ``sandbox-kernel wrap`` and the provisioner write both, and the launcher reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import msgspec

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, check_memory_mb, check_timeout

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


@dataclass(frozen=True, kw_only=True)
class WrapOptions:
    """How one kernel is started inside a jail."""

    #: The kernel's own command; ``INNER_FILE`` in it stands for the path of its connection file inside.
    command: tuple[str, ...]
    #: The variables and the folder of its kernelspec, and how it is interrupted: by signal or message.
    env: Mapping[str, str] = field(default_factory=dict)
    resource_dir: str = ""
    interrupt: str = "signal"
    #: A policy file or preset; ``standard`` without one. Host paths to show, and domains that it may reach, besides.
    policy: str = ""
    mounts: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
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
        if check_memory_mb(self.memory_mb) < LEAST_MEMORY_MB:
            raise InvalidRequest(
                f"a kernel does not start with a memory limit of {self.memory_mb} MB; give at least {LEAST_MEMORY_MB}"
            )
        if self.timeout_s is not None:
            check_timeout(self.timeout_s)

    def to_arguments(self) -> list[str]:
        """Return the launcher's arguments besides the connection file: what was set, as JSON, and the command."""
        given = {name: value for name, value in asdict(self).items() if value and name not in ("command", "env")}
        return [json.dumps(given), *self.command]

    def to_variables(self) -> dict[str, str]:
        """Return the launcher's own variables."""
        return {INNER_ENV: json.dumps(dict(self.env))} if self.env else {}


def from_arguments(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, WrapOptions]:
    """Return the path of the connection file and the options from the launcher's command line and variables."""
    try:
        _, file, text, *command = words
        given = json.loads(text)
        if "env" in given:
            raise ValueError("it has variables on its command line, as those of an earlier version")
        given = {**given, "command": command, "env": json.loads(variables.get(INNER_ENV, "{}"))}
        if unknown := sorted(given.keys() - WrapOptions.__dataclass_fields__.keys()):
            raise ValueError(f"no option {unknown[0]!r:.60}")
        return file, msgspec.convert(given, WrapOptions)
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            f"these are no arguments of {LAUNCHER} ({error}); remove the kernel with 'jupyter kernelspec remove' and "
            "wrap it anew"
        ) from None
