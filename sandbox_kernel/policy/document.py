"""Reads and writes policies as JSON and TOML. Strict: an unknown key is an error, so no typo changes what is allowed.

A module of its own, because few programs read or write policies and the others need not load it.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.policy.places import AccessMode, flag, path_text
from sandbox_kernel.policy.written_folders import written_place

if TYPE_CHECKING:
    from sandbox_kernel.policy.sandbox_policy import SandboxPolicy


#: Longer policy files are refused.
_MAX_FILE = 1 << 20


def to_json(policy: SandboxPolicy) -> str:
    """Return the policy as camelCase JSON, the form that the seed projects read."""
    return json.dumps(
        {
            "allowedPaths": [{"path": p.path, "mode": str(p.mode)} for p in policy.allowed_paths],
            "allowNetwork": policy.network,
            "networkRules": [{"domain": r.domain, "ports": list(r.ports)} for r in policy.network_rules],
            "allowProcessSpawn": policy.process_spawn,
            "env": dict(policy.env),
            "mounts": [{"host": m.host, "guest": m.guest, "writable": m.writable} for m in policy.mounts],
            **({} if policy.gpu is None else {"gpu": "all" if policy.gpu.cards is None else list(policy.gpu.cards)}),
        }
    )


def from_json(text: str | bytes, empty: SandboxPolicy) -> SandboxPolicy:
    """Return the policy that ``to_json`` wrote. Raises ``PolicyViolation`` for anything else."""
    try:
        document = json.loads(text, object_pairs_hook=_no_key_twice)
    except (ValueError, RecursionError, TypeError) as error:
        raise PolicyViolation(f"policy is not JSON: {error}") from None
    return from_document(document, empty)


def load(path: str | os.PathLike[str], empty: SandboxPolicy) -> SandboxPolicy:
    """Read a policy file: JSON when the name ends in .json, else TOML. The keys are the same in both."""
    try:
        raw = _read(Path(path_text(path)))
    except OSError as error:
        raise PolicyViolation(f"policy file {str(path)!r} cannot be read: {error.strerror}") from None
    if str(path).lower().endswith(".json"):
        policy = from_json(raw, empty)
    else:
        import tomllib  # not needed for JSON

        try:
            policy = from_document(tomllib.loads(raw.decode("utf-8-sig")), empty)
        except (ValueError, RecursionError) as error:
            raise PolicyViolation(f"policy file {str(path)!r} is not TOML: {error}") from None
    check_file_place(path, policy)
    return policy


def check_file_place(path: str | os.PathLike[str], policy: SandboxPolicy) -> None:
    """Raise ``PolicyViolation`` when programs may write to the policy file: the next start would obey them."""
    given = [each.path for each in policy.allowed_paths if each.mode is AccessMode.READ_WRITE]
    writable = set[tuple[int, int]]()
    for folder in (*given, *(mount.host for mount in policy.mounts if mount.writable)):
        with contextlib.suppress(OSError):
            info = os.stat(os.path.expanduser(folder))
            writable.add((info.st_dev, info.st_ino))
    place = written_place(path_text(path), writable)
    if place:
        raise PolicyViolation(
            f"policy file {str(path)!r} is not obeyed, because programs could give themselves more: {place}"
        )


def _read(path: Path) -> bytes:
    """Return the content of a policy file. Refuses pipes, devices and files that are too long, and never blocks."""
    if path.exists() and not path.is_dir() and not path.is_file():
        raise PolicyViolation(f"policy file {str(path)!r} is no regular file; give a .toml or .json file")
    with path.open("rb") as file:
        raw = file.read(_MAX_FILE + 1)
    if len(raw) > _MAX_FILE:
        raise PolicyViolation(f"policy file {str(path)!r} has more than {_MAX_FILE} bytes, the most that are accepted")
    return raw


def _no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Raise ``PolicyViolation`` for a repeated key: it is a mistake, and either value could allow too much."""
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        raise PolicyViolation(f"policy has the key {next(n for n in names if names.count(n) > 1)!r} twice; keep one")
    return document


def from_document(document: object, empty: SandboxPolicy) -> SandboxPolicy:
    """Return the empty policy with what a document allows. Raises ``PolicyViolation`` for unknown keys."""
    known = ("allowedPaths", "allowNetwork", "networkRules", "allowProcessSpawn", "env", "mounts", "gpu")
    fields = _table(document, "policy", known)
    policy = empty
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
        writable = flag(row.get("writable", False), "writable")
        policy = policy.mount(_text(row.get("host"), "host"), _text(row.get("guest"), "guest"), writable)
    if fields.get("gpu") is not None:
        policy = policy.allow_gpu(fields["gpu"])  # type: ignore[arg-type]
    env = fields.get("env", {})
    if not isinstance(env, dict):
        raise PolicyViolation(f"env must be a table of strings, got {env!r}")
    for name, value in env.items():
        try:
            policy = policy.with_env(name, value)
        except InvalidRequest as error:
            raise PolicyViolation(str(error)) from None
    if flag(fields.get("allowNetwork", False), "allowNetwork"):
        policy = policy.allow_network()
    return policy.allow_process_spawn(flag(fields.get("allowProcessSpawn", False), "allowProcessSpawn"))


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
