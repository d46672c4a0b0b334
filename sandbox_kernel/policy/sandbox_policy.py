"""``SandboxPolicy``: the permissions of a sandbox. Each method returns a new policy that allows one thing more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from types import MappingProxyType

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import check_env
from sandbox_kernel.model.request import is_own_place
from sandbox_kernel.policy.gpu import GpuRule, gpu_rule
from sandbox_kernel.policy.network_rule import NetworkRule, domain_rule
from sandbox_kernel.policy.written_folders import path_text
from sandbox_kernel.util.values import dataclass

#: The root of a program; only WebAssembly, whose programs see folders by name, can be given another one.
ROOT = "/"
#: The name of the folder of installed packages (``notebook/packages.py``), on the host and below /opt inside.
PACKAGES = "sandbox-packages"


class AccessMode(StrEnum):
    """How an allowed path may be used."""

    READ_ONLY = "readOnly"
    READ_WRITE = "readWrite"


def flag(value: object, what: str) -> bool:
    """A switch of a policy: a word like 'no' is true in Python, so only true and false are taken."""
    if not isinstance(value, bool):
        raise PolicyViolation(f"{what} must be true or false, got {quoted(value)}")
    return value


def mount_target(guest: object) -> str:
    """Return the normalised path of a mount inside. Raises ``PolicyViolation`` when nothing can be mounted there."""
    text = os.fspath(guest) if isinstance(guest, os.PathLike) else guest
    if not isinstance(text, str) or not text.startswith("/") or ".." in text.split("/") or "\0" in text:
        raise PolicyViolation(f"mount target {quoted(guest)} must be an absolute path without '..', for example /data")
    target = normal(path_text(text))
    if target != ROOT and is_own_place(target):
        raise PolicyViolation(f"mount target {text!r} is a place of the sandbox itself; choose another, like /data")
    return target


def normal(path: str) -> str:
    """Normalise a path. Two leading slashes become one, which ``normpath`` does not do."""
    return "/" + os.path.normpath(path).lstrip("/")


def current_folder(asked: str) -> str:
    """Return the current folder. Raises ``PolicyViolation`` that names ``asked`` when it was deleted."""
    try:
        return os.getcwd()
    except OSError as error:
        raise PolicyViolation(
            f"policy needs the current folder for {asked!r}, which was deleted ({error.strerror}); "
            "go to a folder that exists"
        ) from None


PRESETS = ("standard", "strict", "classroom", "data", "build", "gpu")


@dataclass(frozen=True)
class AllowedPath:
    """A host path, as the user wrote it, that appears inside at the same path."""

    path: str
    mode: AccessMode = AccessMode.READ_ONLY


@dataclass(frozen=True)
class Mount:
    """A host path that appears inside at another, absolute path."""

    host: str
    guest: str
    writable: bool = False


def _frozen_map(value: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(value))


@dataclass(frozen=True)
class SandboxPolicy:
    """The permissions of a sandbox. ``SandboxPolicy()`` allows nothing, not even starting processes.

    Args:
        allowed_paths: Host paths that appear inside at the same path.
        network: Whether the program may reach every public address.
        network_rules: Single domains that the program may reach.
        process_spawn: Whether the program may start processes.
        env: Environment variables for every program.
        mounts: Host paths that appear inside at another path.
        gpu: The accelerators that the program may use; None for none.
    """

    allowed_paths: tuple[AllowedPath, ...] = ()
    network: bool = False
    network_rules: tuple[NetworkRule, ...] = ()
    process_spawn: bool = False
    env: Mapping[str, str] = field(default_factory=lambda: _frozen_map({}))
    mounts: tuple[Mount, ...] = ()
    gpu: GpuRule | None = None

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
        if self.gpu is not None and not isinstance(self.gpu, GpuRule):
            raise PolicyViolation(f"gpu must be a GpuRule(...) or None, got {quoted(self.gpu)}; see allow_gpu")
        check_env(self.env, loader_names_allowed=True)
        object.__setattr__(self, "env", _frozen_map(self.env))

    def allow_read(self, path: str | os.PathLike[str]) -> SandboxPolicy:
        """Let the program read a file or folder of the host, at the same path; relative ones resolve at the start."""
        return self._with_path(path, AccessMode.READ_ONLY)

    def allow_read_write(self, path: str | os.PathLike[str]) -> SandboxPolicy:
        """Let the program also write to what ``allow_read`` lets it read. The disk limit does not apply there."""
        return self._with_path(path, AccessMode.READ_WRITE)

    def mount(
        self, host: str | os.PathLike[str], guest: str | os.PathLike[str], writable: bool = False
    ) -> SandboxPolicy:
        """Show a file or folder of the host at another, absolute path inside, for example ``/data``."""
        # Only a bool is accepted: a string like 'no' would count as true and allow writing.
        new = Mount(path_text(host), mount_target(guest), flag(writable, "writable"))
        return replace(self, mounts=(*self.mounts, new))

    def allow_network(self) -> SandboxPolicy:
        """Let the program reach every public address. Private addresses stay refused."""
        return replace(self, network=True)

    def allow_domain(self, domain: str, *ports: int) -> SandboxPolicy:
        """Let the program reach a domain, ``*.example.org`` or an address, at these ports or at 80 and 443."""
        return replace(self, network_rules=(*self.network_rules, domain_rule(domain, *ports)))

    def allow_process_spawn(self, allowed: bool = True) -> SandboxPolicy:
        """Let the program start processes, up to the process limit. False takes the permission away."""
        return replace(self, process_spawn=flag(allowed, "allow_process_spawn"))

    def allow_gpu(self, devices: str | Sequence[int] = "all") -> SandboxPolicy:
        """Let the program use accelerators: ``"all"``, or the cards of these numbers, for example ``[0, 1]``.

        It then speaks to the host's driver, which is large: see docs/security.md.
        """
        return replace(self, gpu=gpu_rule(devices))

    def with_env(self, name: str, value: str) -> SandboxPolicy:
        """Set an environment variable for every program. ``LD_PRELOAD`` and its kind can be set only here."""
        check_env({name: value}, loader_names_allowed=True)
        return replace(self, env=_frozen_map({**self.env, name: value}))

    def _with_path(self, path: str | os.PathLike[str], mode: AccessMode) -> SandboxPolicy:
        return replace(self, allowed_paths=(*self.allowed_paths, AllowedPath(path_text(path), mode)))

    @classmethod
    def preset(cls, name: str) -> SandboxPolicy:
        """Return a ready-made policy.

        ``strict`` allows nothing. ``standard`` and ``classroom`` let programs start processes. ``data`` also lets them
        read the current folder, ``build`` write it too. ``gpu`` is ``standard`` with all accelerators of the host.
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
            case "gpu":
                return spawn.allow_gpu()
        raise PolicyViolation(f"unknown policy preset {name!r}; expected one of: {', '.join(PRESETS)}")

    def to_json(self) -> str:
        """Return the policy as camelCase JSON, the form that the seed projects read."""
        from sandbox_kernel.policy.document import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> SandboxPolicy:
        """Return the policy that ``to_json`` wrote. Raises ``PolicyViolation`` for unknown keys."""
        from sandbox_kernel.policy.document import from_json

        return from_json(text, cls())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SandboxPolicy:
        """Read a policy file: JSON when the name ends in .json, else TOML. The keys are the same in both."""
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
    """Raise ``InvalidRequest`` for anything but a policy or None, which means the standard policy."""
    if policy is not None and not isinstance(policy, SandboxPolicy):
        raise InvalidRequest(
            f"policy must be a SandboxPolicy, got {quoted(policy)}; for example SandboxPolicy.preset('standard'), "
            "SandboxPolicy.load('policy.toml') or SandboxPolicy().allow_read('data')"
        )


def parse_mount(text: str) -> Mount:
    """Parse ``HOST:GUEST``, ``HOST:GUEST:ro`` or ``…:rw``, the value of ``--mount``. Only HOST may contain colons."""
    rest, _, mode = text.rpartition(":")
    if mode not in ("rw", "ro"):
        rest, mode = text, "ro"
    host, _, guest = rest.rpartition(":")
    if not host or not guest:
        raise PolicyViolation("a part is missing")
    return SandboxPolicy().mount(host, guest, writable=mode == "rw").mounts[0]


# Resolves a policy on this host: the real path of each grant, and where it appears inside.

#: Every jail shows these already, so allowing them is accepted and changes nothing.
_ALWAYS_READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib64")


@dataclass(frozen=True)
class Grant:
    """One resolved permission: the host path ``source`` appears inside at ``target``."""

    source: str
    target: str
    writable: bool
    #: Device and inode of what was granted. Walls are refused that would show something else; None is not compared.
    identity: tuple[int, int] | None = None


def resolve_grants(
    policy: SandboxPolicy, *, root: bool = False, real: Callable[[str], str] | None = None
) -> tuple[Grant, ...]:
    """Resolve every allowed path and mount on this host, in order. Sandboxes do it once, in ``GivenGrants``.

    With ``root`` a folder may be mounted as the root of the program; without it that raises ``PolicyViolation``.
    ``real`` returns the real path of an absolute one, or raises ``OSError``; by default it follows every link.

    An allowed path is granted at the path the user wrote *and* at its real path, so that programs that resolve links
    find it. A path that does not exist raises ``PolicyViolation``, because it is probably a typo.
    """
    grants: list[Grant] = []
    for allowed in policy.allowed_paths:
        written = normal(_absolute(allowed.path))
        found = _real(allowed.path, written, real)
        writable = allowed.mode is AccessMode.READ_WRITE
        for target in dict.fromkeys((written, found)):
            if target in _ALWAYS_READABLE and not writable:
                continue
            if is_own_place(target):
                raise PolicyViolation(
                    f"path {allowed.path!r} is a place that the sandbox provides itself; mount it elsewhere: "
                    f"policy.mount({allowed.path!r}, '/data')"
                )
            grants.append(Grant(found, target, writable))
    check_targets(policy, root=root)
    for mount in policy.mounts:
        found = _real(mount.host, _absolute(mount.host), real)
        grants.append(Grant(found, mount.guest, mount.writable))
    return tuple(dict.fromkeys(grants))


def check_targets(policy: SandboxPolicy, *, root: bool) -> None:
    """Raise ``PolicyViolation`` for a mount at a place that programs cannot have; ``root``: see ``resolve_grants``."""
    for mount in policy.mounts:
        if mount.guest == ROOT and not root:
            raise PolicyViolation(
                f"{mount.host!r} is mounted at '/', which only programs inside WebAssembly can have (backend='wasm'); "
                f"mount it elsewhere: policy.mount({mount.host!r}, '/data')"
            )
        system = next((top for top in _ALWAYS_READABLE if mount.guest.startswith(f"{top}/")), None)
        if system is not None and not root and not os.path.exists(mount.guest):
            raise PolicyViolation(
                f"nothing can be mounted at {mount.guest!r}: {system} inside is the host's, read-only, and has no such "
                f"place; mount it elsewhere: policy.mount({mount.host!r}, '/data')"
            )


def _absolute(path: str) -> str:
    """Return an absolute path; the current folder is looked up for relative paths only."""
    home = os.path.expanduser(path)
    return os.path.normpath(home if os.path.isabs(home) else os.path.join(current_folder(path), home))


def _real(asked: str, absolute: str, real: Callable[[str], str] | None) -> str:
    try:
        return real(absolute) if real is not None else os.path.realpath(absolute, strict=True)
    except OSError as error:
        raise PolicyViolation(
            f"policy allows {asked!r}, which does not resolve on this host: {error.strerror}; create it or remove it"
        ) from None


def named_policy(name: str) -> SandboxPolicy:
    """Return a preset or the policy of a file. If the name is neither a path nor a file, suggest a preset."""
    if name in PRESETS:
        return SandboxPolicy.preset(name)
    if "/" not in name and "." not in name and not os.path.exists(name):
        import difflib  # most names are right

        near = difflib.get_close_matches(name[:80], PRESETS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"presets: {', '.join(PRESETS)}; files end in .toml or .json"
        raise PolicyViolation(f"--policy {name[:80]!r} is neither a preset nor a file; {hint}")
    return SandboxPolicy.load(name)


def policy_with(
    name: str, mounts: Iterable[Mount] = (), rules: Iterable[NetworkRule] = (), gpu: GpuRule | None = None
) -> SandboxPolicy:
    """Return a policy by its name or file, with more that it allows. Raises ``PolicyViolation``; resolves no mount."""
    policy = named_policy(name)
    for mount in mounts:
        policy = policy.mount(mount.host, mount.guest, mount.writable)
    if name not in PRESETS:
        from sandbox_kernel.policy.document import check_file_place

        check_file_place(name, policy)  # with these mounts
    for rule in rules:
        policy = policy.allow_domain(rule.domain, *rule.ports)
    return policy if gpu is None else replace(policy, gpu=gpu)
