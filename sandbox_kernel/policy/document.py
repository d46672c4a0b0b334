"""Reads and writes policies as JSON and TOML. An unknown key is an error, so that no typo changes what is allowed."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.policy.written_folders import path_text, written_place
from sandbox_kernel.util.wire import BadMessage, check, no_key_twice

if TYPE_CHECKING:
    from sandbox_kernel.policy.sandbox_policy import SandboxPolicy

#: Longer policy files are refused.
_MAX_FILE = 64 << 10
#: Most dots in a line. ``tomllib`` takes time and memory with the square of the parts of a key.
_MAX_DOTS = 200


class _Path(Struct, forbid_unknown_fields=True):
    path: str
    mode: Literal["readOnly", "readWrite"] = "readOnly"


class _Rule(Struct, forbid_unknown_fields=True):
    domain: str
    ports: list[int] = field(default_factory=list)


class _Mount(Struct, forbid_unknown_fields=True):
    host: str
    guest: str
    writable: bool = False


class _Document(Struct, rename="camel", forbid_unknown_fields=True):
    """A policy as it is written; the form that the seed projects read."""

    allowed_paths: list[_Path] = field(default_factory=list)
    allow_network: bool = False
    network_rules: list[_Rule] = field(default_factory=list)
    allow_process_spawn: bool = False
    env: dict[str, str] = field(default_factory=dict)
    mounts: list[_Mount] = field(default_factory=list)
    gpu: str | list[int] | None = None


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
        document = json.loads(text, object_pairs_hook=no_key_twice)
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

        if any(line.count(b".") > _MAX_DOTS for line in raw.split(b"\n")):
            raise PolicyViolation(f"policy file {str(path)!r} has more than {_MAX_DOTS} dots in a line")
        try:
            policy = from_document(tomllib.loads(raw.decode("utf-8-sig")), empty)
        except (ValueError, RecursionError) as error:
            raise PolicyViolation(f"policy file {str(path)!r} is not TOML: {error}") from None
    check_file_place(path, policy)
    return policy


def check_file_place(path: str | os.PathLike[str], policy: SandboxPolicy) -> None:
    """Raise ``PolicyViolation`` when programs may write to the policy file: the next start would obey them."""
    given = [each.path for each in policy.allowed_paths if each.mode == "readWrite"]
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


def from_document(document: object, empty: SandboxPolicy) -> SandboxPolicy:
    """Return the empty policy with what a document allows. Raises ``PolicyViolation`` for another form."""
    try:
        read = check(document, _Document)
    except BadMessage as error:
        keys = ", ".join(_Document.__struct_encode_fields__)
        raise PolicyViolation(f"policy has another form than it must: {error}; its keys are {keys}") from None
    # Each row by itself: a policy that grows row by row is checked as a whole with each.
    allow = {"readOnly": empty.allow_read, "readWrite": empty.allow_read_write}
    try:
        policy = replace(
            empty,
            allowed_paths=tuple(allow[row.mode](row.path).allowed_paths[-1] for row in read.allowed_paths),
            network_rules=tuple(
                empty.allow_domain(row.domain, *row.ports).network_rules[-1] for row in read.network_rules
            ),
            mounts=tuple(empty.mount(row.host, row.guest, row.writable).mounts[-1] for row in read.mounts),
            env=read.env,
        )
    except InvalidRequest as error:
        raise PolicyViolation(str(error)) from None
    if read.gpu is not None:
        policy = policy.allow_gpu(read.gpu)
    if read.allow_network:
        policy = policy.allow_network()
    return policy.allow_process_spawn(read.allow_process_spawn)
