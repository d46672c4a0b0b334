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
    """How one kernel is started inside a jail.

    Args:
        command: The kernel's own command; ``INNER_FILE`` in it stands for the path of its connection file inside.
        env: Variables of the kernelspec.
        resource_dir: The folder of the kernelspec, which the command may use; empty for none.
        interrupt: How the kernel is interrupted: by ``signal`` or by ``message``.
        policy: The name of a preset or the path of a policy file; empty for the preset ``standard``.
        mounts: More host paths to show, as ``HOST:GUEST[:rw]``.
        domains: Domains that the kernel may reach, as ``DOMAIN[:PORT]``.
        memory_mb: The memory limit of the kernel and all its processes.
        timeout_s: The time limit of one cell; None for no limit.
        enforcer: The tool that builds the walls: ``auto``, ``bubblewrap`` or ``landlock``.
        record: The file to which what the kernel did is added at its end; empty for none.
        here: The folder that the kernel works on, copy-on-write; ``.`` is the one it is started in, empty is none.

    """

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
        words = [f"--memory-mb={self.memory_mb}", f"--interrupt={self.interrupt}"]
        words += [f"--timeout-s={self.timeout_s:g}"] if self.timeout_s is not None else []
        words += [f"--policy={self.policy}"] if self.policy else []
        words += [f"--enforcer={self.enforcer}"] if self.enforcer != "auto" else []
        words += [f"--record={self.record}"] if self.record else []
        words += [f"--here={self.here}"] if self.here else []
        words += [f"--resource-dir={self.resource_dir}"] if self.resource_dir else []
        words += [f"--mount={each}" for each in self.mounts]
        words += [f"--allow-net={each}" for each in self.domains]
        words += [f"--env={name}={value}" for name, value in self.env.items()]
        return [*words, "--", *self.command]


def from_arguments(words: Sequence[str]) -> tuple[str, WrapOptions]:
    """Return the path of the connection file and the options from the launcher's command line."""
    parser = argparse.ArgumentParser(prog=f"python -m {LAUNCHER}", description="Start a Jupyter kernel in a sandbox.")
    add = parser.add_argument
    add("-f", dest="connection_file", required=True, help="the connection file of the front end")
    add("--memory-mb", type=int, default=DEFAULT_MEMORY_MB, help="memory limit of the kernel")
    add("--timeout-s", type=float, help="time limit of one cell")
    add("--interrupt", default="signal", choices=INTERRUPT_MODES, help="how the kernel is interrupted")
    add("--policy", default="", help="policy file or preset")
    add("--enforcer", default="auto", help="auto, bubblewrap or landlock")
    add("--record", default="", help="the file to which what the kernel did is added")
    add("--here", default="", help="the folder that the kernel works on, copy-on-write")
    add("--resource-dir", default="", help="the folder of the kernelspec")
    add("--mount", action="append", default=[], help="show a host path inside")
    add("--allow-net", action="append", default=[], help="let the kernel reach a domain")
    add("--env", action="append", default=[], help="a variable of the kernelspec")
    add("command", nargs="+", help="the kernel's own command, after --")
    given = parser.parse_args(list(words))
    options = WrapOptions(
        command=tuple(given.command),
        env=dict(pair.split("=", 1) for pair in given.env),
        resource_dir=given.resource_dir,
        interrupt=given.interrupt,
        policy=given.policy,
        mounts=tuple(given.mount),
        domains=tuple(given.allow_net),
        memory_mb=given.memory_mb,
        timeout_s=given.timeout_s,
        enforcer=given.enforcer,
        record=given.record,
        here=given.here,
    )
    return given.connection_file, options
