"""The permissions of a sandbox, as a value: each method returns a new one that allows one thing more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import check_env
from sandbox_kernel.policy.access import AccessMode, flag
from sandbox_kernel.policy.network_rule import NetworkRule, domain_rule
from sandbox_kernel.policy.places import current_folder, mount_target, path_text

PRESETS = ("standard", "strict", "classroom", "data", "build")


@dataclass(frozen=True)
class AllowedPath:
    """A host path that is visible at the same place inside."""

    path: str
    mode: AccessMode = AccessMode.READ_ONLY


@dataclass(frozen=True)
class Mount:
    """A host path that is visible at another place inside."""

    host: str
    guest: str
    writable: bool = False


def _frozen_map(value: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(value))


@dataclass(frozen=True)
class SandboxPolicy:
    """The permissions of a sandbox. ``SandboxPolicy()`` allows nothing, starting processes included."""

    allowed_paths: tuple[AllowedPath, ...] = ()
    network: bool = False
    network_rules: tuple[NetworkRule, ...] = ()
    process_spawn: bool = False
    env: Mapping[str, str] = field(default_factory=lambda: _frozen_map({}))
    mounts: tuple[Mount, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("allowed_paths", AllowedPath), ("network_rules", NetworkRule), ("mounts", Mount)):
            rows = getattr(self, name)
            if not isinstance(rows, tuple | list) or not all(isinstance(row, kind) for row in rows):
                raise PolicyViolation(f"{name} must be {kind.__name__}(...) values in a tuple, got {quoted(rows)}")
            object.__setattr__(self, name, tuple(rows))
        for mount in self.mounts:
            mount_target(mount.guest)
        flag(self.network, "network")
        flag(self.process_spawn, "process_spawn")
        if not isinstance(self.env, Mapping):
            raise PolicyViolation(f"env must be a mapping of names, got {quoted(self.env)}")
        check_env(self.env, loader_names_allowed=True)
        object.__setattr__(self, "env", _frozen_map(self.env))

    def allow_read(self, path: str | os.PathLike[str]) -> SandboxPolicy:
        """Let the program read this host path, at the place where it is."""
        return self._with_path(path, AccessMode.READ_ONLY)

    def allow_read_write(self, path: str | os.PathLike[str]) -> SandboxPolicy:
        """Let the program read and write this host path; there is no disk limit on it."""
        return self._with_path(path, AccessMode.READ_WRITE)

    def mount(
        self, host: str | os.PathLike[str], guest: str | os.PathLike[str], writable: bool = False
    ) -> SandboxPolicy:
        """Show a host path at another place inside."""
        # A word like 'no' is true: what widens must be said as what it is.
        new = Mount(path_text(host), mount_target(guest), flag(writable, "writable"))
        return replace(self, mounts=(*self.mounts, new))

    def allow_network(self) -> SandboxPolicy:
        """Let the program reach every public address; private ones stay refused."""
        return replace(self, network=True)

    def allow_domain(self, domain: str, *ports: int) -> SandboxPolicy:
        """Let the program reach a domain (``*.example.org``: those below) or address, on these ports or 80 and 443."""
        return replace(self, network_rules=(*self.network_rules, domain_rule(domain, *ports)))

    def allow_process_spawn(self, allowed: bool = True) -> SandboxPolicy:
        """Let the program start processes, within the process limit."""
        return replace(self, process_spawn=flag(allowed, "allow_process_spawn"))

    def with_env(self, name: str, value: str) -> SandboxPolicy:
        """Set an environment variable for every program; loader variables may be set here and only here."""
        check_env({name: value}, loader_names_allowed=True)
        return replace(self, env=_frozen_map({**self.env, name: value}))

    def _with_path(self, path: str | os.PathLike[str], mode: AccessMode) -> SandboxPolicy:
        return replace(self, allowed_paths=(*self.allowed_paths, AllowedPath(path_text(path), mode)))

    @classmethod
    def preset(cls, name: str) -> SandboxPolicy:
        """A policy by name: what most people want, for a purpose.

        ``strict`` allows nothing. ``standard`` and ``classroom`` also let programs start processes. ``data`` lets them
        read the current folder too, ``build`` also write it.
        """
        spawn = cls(process_spawn=True)
        match name:
            case "strict":
                return cls()
            case "standard" | "classroom":
                return spawn
            case "data":
                return spawn.allow_read(current_folder(name))
            case "build":
                return spawn.allow_read_write(current_folder(name))
        raise PolicyViolation(f"unknown policy preset {name!r}; expected one of: {', '.join(PRESETS)}")

    def to_json(self) -> str:
        """The policy as camelCase JSON, the form that the seed projects read."""
        from sandbox_kernel.policy.document import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> SandboxPolicy:
        """Read what ``to_json`` wrote; unknown keys are errors, so that a typo never widens or narrows in silence."""
        from sandbox_kernel.policy.document import from_json

        return from_json(text, cls())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SandboxPolicy:
        """Read a policy file: TOML, or JSON when the name ends in .json; the keys are the same."""
        from sandbox_kernel.policy.document import load

        return load(path, cls())

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "env": dict(self.env)}

    def __setstate__(self, state: dict[str, object]) -> None:
        env = state["env"]
        assert isinstance(env, dict)
        for name, value in {**state, "env": _frozen_map(env)}.items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        rest = (self.allowed_paths, self.network, self.network_rules, self.process_spawn, self.mounts)
        return hash((rest, tuple(sorted(self.env.items()))))


def check_policy(policy: object) -> None:
    """Say what a policy is to whoever gives something else; None means the standard one."""
    if policy is not None and not isinstance(policy, SandboxPolicy):
        raise InvalidRequest(
            f"policy must be a SandboxPolicy, got {quoted(policy)}; for example SandboxPolicy.preset('standard'), "
            "SandboxPolicy.load('policy.toml') or SandboxPolicy().allow_read('data')"
        )


def parse_mount(text: str) -> Mount:
    """Read ``HOST:GUEST``, ``HOST:GUEST:ro`` or ``HOST:GUEST:rw``, as people write it after ``--mount``.

    A host path may hold colons; the path inside may not. Raises ``PolicyViolation`` for anything else.
    """
    rest, _, mode = text.rpartition(":")
    if mode not in ("rw", "ro"):
        rest, mode = text, "ro"
    host, _, guest = rest.rpartition(":")
    if not host or not guest:
        raise PolicyViolation("a part is missing")
    return SandboxPolicy().mount(host, guest, writable=mode == "rw").mounts[0]
