"""The specification for ``guest/gate/lockdown.py``: the walls that a process puts up around itself before it runs.

For jails where no other program puts them up: the Landlock tier, and limits that must be set inside a namespace.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.rules.landlock import LandlockPlan

#: The guest program, by path, because host code never imports guest code.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOCKDOWN_PATH = os.path.join(_PACKAGE, "guest", "gate", "lockdown.py")

#: A script would be compiled at every start; an import uses the compiled bytecode.
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); import lockdown; sys.exit(lockdown.main(sys.argv))"

#: The oldest useful format of marshal, which every Python reads.
_MARSHAL_FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class LockdownSpec:
    """The walls of one process, and the whole environment of the command that it becomes.

    ``parent`` is the host process: the locked-down process ends with the thread of it that started it.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    rlimits: Mapping[str, int | tuple[int, int]] = field(default_factory=dict)
    parent: int | None = None
    subreaper: bool = False
    landlock: LandlockPlan | None = None
    dumpable: bool | None = None
    seccomp: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        """Encode it for the guest, which reads it from a descriptor."""
        spec: dict[str, object] = {
            "env": dict(self.env),
            "rlimits": dict(self.rlimits),
            "subreaper": self.subreaper,
            "seccomp": list(self.seccomp),
        }
        if self.parent is not None:
            spec["parent"] = self.parent
        if self.landlock is not None:
            spec["landlock"] = self.landlock.to_dict()
        if self.dumpable is not None:
            spec["dumpable"] = self.dumpable
        return marshal.dumps(spec, _MARSHAL_FORMAT)


def lockdown_argv(python: str, spec_fd: int, status_fd: int, command: Sequence[str]) -> list[str]:
    """Return the command line that locks a process down and then executes the command.

    Both descriptors must be inheritable. If the command runs, the status descriptor is closed without data; otherwise
    the reason can be read from it.
    """
    if not command or not command[0] or any("\0" in word for word in command):
        raise InvalidRequest(f"command {list(command)!r} cannot be started: it is empty or has a NUL character")
    folder = os.path.dirname(LOCKDOWN_PATH)
    return [python, "-I", "-S", "-c", _START, folder, str(spec_fd), str(status_fd), *command]
