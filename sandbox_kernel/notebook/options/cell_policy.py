"""Turns the options of a cell into a policy, limits and a configuration of programs."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.limits import Limits
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.policy import PRESETS, AllowedPath, Mount, SandboxPolicy
from sandbox_kernel.policy.gpu import parse_gpu
from sandbox_kernel.policy.network_rule import NetworkRule

if TYPE_CHECKING:
    from sandbox_kernel.workspace.kept_work import KeptWork


def policy_of(options: CellOptions) -> SandboxPolicy:
    """Return the policy, by name or from a file, with the cell's mounts and domains added. Resolves no path."""
    name = options.policy or "standard"
    policy = SandboxPolicy.preset(name) if name in PRESETS else _load(name)
    for grant in options.allow_net:
        policy = policy.allow_domain(grant.domain, *(() if grant.port is None else (grant.port,)))
    for mount in options.mounts:
        policy = policy.mount(mount.host, mount.guest, mount.writable)
    return policy if options.gpu is None else replace(policy, gpu=parse_gpu(options.gpu))


def _load(name: str) -> SandboxPolicy:
    """Load a policy file. If the name is neither a path nor a file, suggest a preset."""
    if "/" not in name and "." not in name and not Path(name).exists():
        near = difflib.get_close_matches(name[:80], PRESETS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"presets: {', '.join(PRESETS)}; files end in .toml or .json"
        raise PolicyViolation(f"--policy {name[:80]!r} is neither a preset nor a file; {hint}")
    return SandboxPolicy.load(name)


def policy_rows(policy: SandboxPolicy) -> list[tuple[str, str]]:
    """Return what a policy gives: names and words, for a table. A field without a name here has a row too."""
    nothing = type(policy)()
    all_fields = {one.name: getattr(policy, one.name) for one in fields(policy)}
    given = {name: _words(value) for name, value in all_fields.items() if value != getattr(nothing, name)}
    network = ("every public address" if given.pop("network", "") else "", given.pop("network_rules", ""))
    return [
        ("files", given.pop("allowed_paths", "no host files")),
        ("mounts", given.pop("mounts", "none")),
        ("network", ", ".join(filter(None, network)) or "none"),
        ("processes", "may be started" if given.pop("process_spawn", "") else "may not be started"),
        ("environment", given.pop("env", "no host variables")),
        *given.items(),
    ]


def _words(value: object) -> str:
    match value:
        case tuple() | Mapping():  # of variables the names
            return ", ".join(map(_words, value))
        case AllowedPath():
            return f"{value.path} ({value.mode})"
        case Mount():
            return f"{value.host} at {value.guest}{' (rw)' if value.writable else ''}"
        case NetworkRule():
            return value.domain + "".join(f":{port}" for port in value.ports)
    return str(value)


def may_share(one: SandboxPolicy, other: SandboxPolicy) -> bool:
    """Whether cells under these two policies may share the work folder: they see the same host files and variables.

    Otherwise a cell could copy a mounted file or a variable into the work folder, and another cell, which may not see
    it but has the network, could send it away. Different network rules alone do not separate cells.
    """
    return _seen(one) == _seen(other)


def changes_place(kept: KeptWork | None, here: str, policy: SandboxPolicy, options: str = "--here") -> str | None:
    """Return where changes to a folder of the user stay for the next kernel; cells that see other files have another.

    None where nothing is kept, or another sandbox has the place. ``options`` is what the user writes to have them.
    """
    return None if kept is None else kept.place_of_changes(os.path.realpath(here), repr(_seen(policy)), options)


def _seen(policy: SandboxPolicy) -> tuple[object, ...]:
    """Return what cells under a policy see of the host beside the work folder."""
    return policy.allowed_paths, policy.mounts, policy.env


def limits_of(options: CellOptions) -> Limits:
    """Return the limits besides time and memory; safe defaults for options that were not given."""
    standard = Limits()
    return Limits(
        cpu_seconds=options.cpu_s,
        processes=options.processes if options.processes is not None else standard.processes,
        disk_mb=options.disk_mb if options.disk_mb is not None else standard.disk_mb,
        gpu_memory_mb=options.gpu_memory_mb,
        output_bytes=options.output_bytes if options.output_bytes is not None else standard.output_bytes,
    )


def config_of(options: CellOptions) -> ProcessConfig:
    """Return which programs run the cell: another Python, and whether TypeScript is type-checked."""
    standard = ProcessConfig()
    return replace(
        standard,
        python_path=options.python or standard.python_path,
        check_types=options.check,
    )
