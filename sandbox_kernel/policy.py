"""What a program may touch. Deny-all by default; each method returns a new policy that allows one thing more.

A policy is plain data: paths are kept as the user wrote them and resolved only when a jail is built
(``resolve_grants``), so that a policy can be written on one machine and used on another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import check_env
from sandbox_kernel.network_rule import NetworkRule, domain_rule

#: No policy is that long.
_MAX_FILE = 1 << 20
PRESETS = ("standard", "strict", "classroom", "data", "build")

#: Folders of the sandbox itself: mounting over them would take a wall away or hide the work folder.
_OWN_PLACES = (
    "/",
    "/proc",
    "/dev",
    "/sys",
    "/box",
    "/tmp",
    "/usr",
    "/etc",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/run",
    "/cell",
    "/guest",
)
#: Nothing may be mounted inside these either: the kernel's files, devices, and the sandbox's own programs.
_CLOSED_PLACES = ("/proc/", "/dev/", "/cell/", "/guest/")
#: Allowed by every jail anyway: naming them is no mistake.
_ALWAYS_READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib64")


class AccessMode(StrEnum):
    """How an allowed path may be used."""

    READ_ONLY = "readOnly"
    READ_WRITE = "readWrite"


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


@dataclass(frozen=True)
class Grant:
    """A resolved permission: this real host path appears at this place inside."""

    source: str
    target: str
    writable: bool


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
            _mount_target(mount.guest)
        _flag(self.network, "network")
        _flag(self.process_spawn, "process_spawn")
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
        new = Mount(_path_text(host), _mount_target(guest), _flag(writable, "writable"))
        return replace(self, mounts=(*self.mounts, new))

    def allow_network(self) -> SandboxPolicy:
        """Let the program reach every public address; private ones stay refused."""
        return replace(self, network=True)

    def allow_domain(self, domain: str, *ports: int) -> SandboxPolicy:
        """Let the program reach a domain (``*.example.org``: those below) or address, on these ports or 80 and 443."""
        return replace(self, network_rules=(*self.network_rules, domain_rule(domain, *ports)))

    def allow_process_spawn(self, allowed: bool = True) -> SandboxPolicy:
        """Let the program start processes, within the process limit."""
        return replace(self, process_spawn=_flag(allowed, "allow_process_spawn"))

    def with_env(self, name: str, value: str) -> SandboxPolicy:
        """Set an environment variable for every program; loader variables may be set here and only here."""
        check_env({name: value}, loader_names_allowed=True)
        return replace(self, env=_frozen_map({**self.env, name: value}))

    def _with_path(self, path: str | os.PathLike[str], mode: AccessMode) -> SandboxPolicy:
        return replace(self, allowed_paths=(*self.allowed_paths, AllowedPath(_path_text(path), mode)))

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
                return spawn.allow_read(_current_folder(name))
            case "build":
                return spawn.allow_read_write(_current_folder(name))
        raise PolicyViolation(f"unknown policy preset {name!r}; expected one of: {', '.join(PRESETS)}")

    def to_json(self) -> str:
        """The policy as camelCase JSON, the form that the seed projects read."""
        return json.dumps(
            {
                "allowedPaths": [{"path": p.path, "mode": str(p.mode)} for p in self.allowed_paths],
                "allowNetwork": self.network,
                "networkRules": [{"domain": r.domain, "ports": list(r.ports)} for r in self.network_rules],
                "allowProcessSpawn": self.process_spawn,
                "env": dict(self.env),
                "mounts": [{"host": m.host, "guest": m.guest, "writable": m.writable} for m in self.mounts],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> SandboxPolicy:
        """Read what ``to_json`` wrote; unknown keys are errors, so that a typo never widens or narrows in silence."""
        try:
            document = json.loads(text, object_pairs_hook=_no_key_twice)
        except (ValueError, RecursionError, TypeError) as error:
            raise PolicyViolation(f"policy is not JSON: {error}") from None
        return _from_document(document)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SandboxPolicy:
        """Read a policy file: TOML, or JSON when the name ends in .json; the keys are the same."""
        try:
            raw = _read(Path(_path_text(path)))
        except OSError as error:
            raise PolicyViolation(f"policy file {str(path)!r} cannot be read: {error.strerror}") from None
        if str(path).lower().endswith(".json"):
            return cls.from_json(raw)
        import tomllib  # every start of a program would pay for it

        try:
            return _from_document(tomllib.loads(raw.decode("utf-8-sig")))
        except (ValueError, RecursionError) as error:
            raise PolicyViolation(f"policy file {str(path)!r} is not TOML: {error}") from None

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


def _current_folder(asked: str) -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise PolicyViolation(
            f"policy needs the current folder for {asked!r}, and there is none any more ({error.strerror}); "
            "go to a folder that exists"
        ) from None


def _read(path: Path) -> bytes:
    """A policy file; what is no file, or is endless, is not waited for."""
    if path.exists() and not path.is_dir() and not path.is_file():
        raise PolicyViolation(f"policy file {str(path)!r} is no regular file; give a .toml or .json file")
    with path.open("rb") as file:
        raw = file.read(_MAX_FILE + 1)
    if len(raw) > _MAX_FILE:
        raise PolicyViolation(f"policy file {str(path)!r} has more than {_MAX_FILE} bytes; no policy has")
    return raw


def _no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A key that stands twice is a mistake, and whichever of the two were taken might widen."""
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        raise PolicyViolation(f"policy has the key {next(n for n in names if names.count(n) > 1)!r} twice; keep one")
    return document


def _mount_target(guest: object) -> str:
    """Where a mount appears inside, or why it cannot."""
    text = os.fspath(guest) if isinstance(guest, os.PathLike) else guest
    if not isinstance(text, str) or not text.startswith("/") or ".." in text.split("/") or "\0" in text:
        raise PolicyViolation(f"mount target {quoted(guest)} must be an absolute path without '..', for example /data")
    target = _normal(_path_text(text))
    if _is_own_place(target):
        raise PolicyViolation(f"mount target {text!r} is a place of the sandbox itself; choose another, like /data")
    return target


def _normal(path: str) -> str:
    """One form for one place: two leading slashes mean the same as one here, which ``normpath`` alone leaves open."""
    return "/" + os.path.normpath(path).lstrip("/")


def _is_own_place(target: str) -> bool:
    return target in _OWN_PLACES or target.startswith(_CLOSED_PLACES)


def _path_text(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise PolicyViolation(f"{quoted(path)} is not a path; give the name of a file or folder")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PolicyViolation(f"path {text!r} is not valid UTF-8; rename it or mount its parent") from None
    return text


def check_policy(policy: object) -> None:
    """Say what a policy is to whoever gives something else; None means the standard one."""
    if policy is not None and not isinstance(policy, SandboxPolicy):
        raise InvalidRequest(
            f"policy must be a SandboxPolicy, got {quoted(policy)}; for example SandboxPolicy.preset('standard'), "
            "SandboxPolicy.load('policy.toml') or SandboxPolicy().allow_read('data')"
        )


def resolve_grants(policy: SandboxPolicy) -> tuple[Grant, ...]:
    """Resolve every allowed path and mount on this host, in order; called by the jail before anything starts.

    A path is granted at the place the user wrote *and* at its real place, so that programs that resolve links find it.
    A path that does not exist is a ``PolicyViolation``: a typo must not become a sandbox that lacks its data.
    """
    grants: list[Grant] = []
    for allowed in policy.allowed_paths:
        written = _normal(_absolute(allowed.path))
        real = _real(allowed.path, written)
        writable = allowed.mode is AccessMode.READ_WRITE
        for target in dict.fromkeys((written, real)):
            if target in _ALWAYS_READABLE and not writable:
                continue
            if _is_own_place(target):
                raise PolicyViolation(
                    f"path {allowed.path!r} is a place that the sandbox provides itself; mount it elsewhere: "
                    f"policy.mount({allowed.path!r}, '/data')"
                )
            grants.append(Grant(real, target, writable))
    for mount in policy.mounts:
        real = _real(mount.host, _absolute(mount.host))
        grants.append(Grant(real, mount.guest, mount.writable))
    return tuple(dict.fromkeys(grants))


def _absolute(path: str) -> str:
    """A path as it is meant from here; only a relative one needs a folder that we are in."""
    home = os.path.expanduser(path)
    return os.path.normpath(home if os.path.isabs(home) else os.path.join(_current_folder(path), home))


def _real(asked: str, absolute: str) -> str:
    try:
        return os.path.realpath(absolute, strict=True)
    except OSError as error:
        raise PolicyViolation(
            f"policy allows {asked!r}, which does not resolve on this host: {error.strerror}; create it or remove it"
        ) from None


def _from_document(document: object) -> SandboxPolicy:
    known = ("allowedPaths", "allowNetwork", "networkRules", "allowProcessSpawn", "env", "mounts")
    fields = _table(document, "policy", known)
    policy = SandboxPolicy()
    for entry in _rows(fields.get("allowedPaths", []), "allowedPaths"):
        row = _table(entry, "allowedPaths", ("path", "mode"))
        path, mode = _text(row.get("path"), "path"), row.get("mode", "readOnly")
        if mode not in tuple(AccessMode):
            raise PolicyViolation(f"mode {mode!r} of {path!r} must be readOnly or readWrite")
        policy = policy.allow_read_write(path) if mode == AccessMode.READ_WRITE else policy.allow_read(path)
    for entry in _rows(fields.get("networkRules", []), "networkRules"):
        row = _table(entry, "networkRules", ("domain", "ports"))
        ports = _rows(row.get("ports", []), "ports")
        policy = policy.allow_domain(_text(row.get("domain"), "domain"), *ports)  # type: ignore[arg-type]
    for entry in _rows(fields.get("mounts", []), "mounts"):
        row = _table(entry, "mounts", ("host", "guest", "writable"))
        writable = _flag(row.get("writable", False), "writable")
        policy = policy.mount(_text(row.get("host"), "host"), _text(row.get("guest"), "guest"), writable)
    env = fields.get("env", {})
    if not isinstance(env, dict):
        raise PolicyViolation(f"env must be a table of strings, got {env!r}")
    for name, value in env.items():
        try:
            policy = policy.with_env(name, value)
        except InvalidRequest as error:
            raise PolicyViolation(str(error)) from None
    if _flag(fields.get("allowNetwork", False), "allowNetwork"):
        policy = policy.allow_network()
    return policy.allow_process_spawn(_flag(fields.get("allowProcessSpawn", False), "allowProcessSpawn"))


def _table(value: object, what: str, known: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise PolicyViolation(f"{what} must be a table with the keys {', '.join(known)}; got {value!r}")
    unknown = [key for key in value if key not in known]
    if unknown:
        raise PolicyViolation(f"{what} has the unknown key {unknown[0]!r}; known keys: {', '.join(known)}")
    return value


def _rows(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise PolicyViolation(f"{what} must be a list, got {value!r}")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise PolicyViolation(f"{what} must be a string, got {value!r}")
    return value


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise PolicyViolation(f"{what} must be true or false, got {quoted(value)}")
    return value
