"""What a kernel is wrapped with, as a frozen value, and its form on the launcher's command line.

Both doors (the kernelspec of ``sandbox-kernel wrap`` and the provisioner) write the command line, and the launcher
reads it; ``to_arguments`` and ``from_arguments`` are each other's inverse.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, check_memory_mb, check_timeout

#: The name of the launcher for ``python -m``.
LAUNCHER = "sandbox_kernel.wrapped"
#: How Python starts it. With -P no module beside the notebook is imported by this process, which is outside the jail.
START = ("-P", "-m", LAUNCHER)
#: Stands for the kernel's own connection file. A front end replaces Jupyter's ``{connection_file}`` everywhere.
INNER_FILE = "{inner_connection_file}"
INTERRUPT_MODES = ("signal", "message")
#: With less memory no kernel starts.
LEAST_MEMORY_MB = 64


@dataclass(frozen=True, kw_only=True)
class WrapOptions:
    """How one kernel is started inside a jail; ``_OPTIONS`` says what each field means."""

    #: The kernel's own command; ``INNER_FILE`` in it stands for the path of its connection file inside.
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    resource_dir: str = ""
    interrupt: str = "signal"
    policy: str = ""
    mounts: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    memory_mb: int = DEFAULT_MEMORY_MB
    timeout_s: float | None = None
    enforcer: str = "auto"
    record: str = ""
    here: str = ""

    def __post_init__(self) -> None:
        if not self.command or not all(isinstance(word, str) and "\0" not in word for word in self.command):
            raise InvalidRequest(f"a kernel's command must be a list of words, got {self.command!r:.120}")
        if self.interrupt not in INTERRUPT_MODES:
            raise InvalidRequest(f"interrupt mode {self.interrupt!r:.60} is not known; expected: signal, message")
        if check_memory_mb(self.memory_mb) < LEAST_MEMORY_MB:
            raise InvalidRequest(
                f"a kernel does not start with a memory limit of {self.memory_mb} MB; give at least {LEAST_MEMORY_MB}"
            )
        if self.timeout_s is not None:
            check_timeout(self.timeout_s)

    def to_arguments(self) -> list[str]:
        """Return the launcher's arguments besides the connection file."""
        words = []
        for name, (option, *_) in _OPTIONS.items():
            value = getattr(self, name)
            if isinstance(value, Mapping):
                words += [f"{option}={key}={text}" for key, text in value.items()]
            elif isinstance(value, tuple):
                words += [f"{option}={each}" for each in value]
            elif value != getattr(WrapOptions, name):  # the default
                words.append(f"{option}={value}")
        return [*words, "--", *self.command]


#: The option of the launcher for each field, what reads its value, and its help; those without a type may be repeated.
_OPTIONS: dict[str, tuple[str, type | None, str]] = {
    "memory_mb": ("--memory-mb", int, "memory limit of the kernel"),
    "interrupt": ("--interrupt", str, "how the kernel is interrupted: by signal or message"),
    "timeout_s": ("--timeout-s", float, "time limit of one cell; none without it"),
    "policy": ("--policy", str, "policy file or preset; standard without it"),
    "enforcer": ("--enforcer", str, "auto, bubblewrap or landlock"),
    "record": ("--record", str, "the file to which what the kernel did is added"),
    "here": ("--here", str, "the folder that the kernel works on, copy-on-write; . is the one it is started in"),
    "resource_dir": ("--resource-dir", str, "the folder of the kernelspec"),
    "mounts": ("--mount", None, "show a host path inside, as HOST:GUEST[:rw]"),
    "domains": ("--allow-net", None, "let the kernel reach a domain, as DOMAIN[:PORT]"),
    "env": ("--env", None, "a variable of the kernelspec"),
}


def from_arguments(words: Sequence[str]) -> tuple[str, WrapOptions]:
    """Return the path of the connection file and the options from the launcher's command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {LAUNCHER}",
        description="Start a Jupyter kernel in a sandbox.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("-f", dest="connection_file", required=True, help="the connection file of the front end")
    for name, (option, kind, text) in _OPTIONS.items():
        if kind is None:
            parser.add_argument(option, dest=name, action="append", help=text)
        else:
            parser.add_argument(option, dest=name, type=kind, help=text)
    parser.add_argument("command", nargs="+", help="the kernel's own command, after --")
    given = vars(parser.parse_args(list(words)))
    file = given.pop("connection_file")
    given |= {name: tuple(given[name]) for name in ("command", "mounts", "domains") if name in given}
    given["env"] = dict(pair.split("=", 1) for pair in given.get("env", ()))
    return file, WrapOptions(**given)
