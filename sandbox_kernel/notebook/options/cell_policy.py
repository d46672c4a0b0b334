"""From the options of a cell to the policy, the limits and the programs it runs with."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.languages.support.recipe import ProcessConfig
from sandbox_kernel.limits import Limits
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.policy import PRESETS, SandboxPolicy


def policy_of(options: CellOptions) -> SandboxPolicy:
    """The policy by name or from a file, with the cell's own grants added; reads the file, resolves no path."""
    name = options.policy or "standard"
    policy = SandboxPolicy.preset(name) if name in PRESETS else _load(name)
    for grant in options.allow_net:
        policy = policy.allow_domain(grant.domain, *(() if grant.port is None else (grant.port,)))
    for mount in options.mounts:
        policy = policy.mount(mount.host, mount.guest, mount.writable)
    return policy


def _load(name: str) -> SandboxPolicy:
    """A policy file; a word that is none was meant to be a preset."""
    if "/" not in name and "." not in name and not Path(name).exists():
        near = difflib.get_close_matches(name[:80], PRESETS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"presets: {', '.join(PRESETS)}; files end in .toml or .json"
        raise PolicyViolation(f"--policy {name[:80]!r} is neither a preset nor a file; {hint}")
    return SandboxPolicy.load(name)


def may_share(one: SandboxPolicy, other: SandboxPolicy) -> bool:
    """Whether cells under these policies find each other's files in /box: they see the same of the host.

    What a cell with the network downloads is there for the others. But what a cell copied from a mounted folder, or
    from its environment, is not there for a cell that may send it away and was not shown it.
    """
    seen = [(policy.allowed_paths, policy.mounts, policy.env) for policy in (one, other)]
    return seen[0] == seen[1]


def limits_of(options: CellOptions) -> Limits:
    """The limits besides time and memory; what was not asked for keeps its safe default."""
    standard = Limits()
    return Limits(
        cpu_seconds=options.cpu_s,
        processes=options.processes if options.processes is not None else standard.processes,
        disk_mb=options.disk_mb if options.disk_mb is not None else standard.disk_mb,
        output_bytes=options.output_bytes if options.output_bytes is not None else standard.output_bytes,
    )


def config_of(options: CellOptions) -> ProcessConfig:
    """Which programs serve the cell: another Python, or a type checker before TypeScript."""
    standard = ProcessConfig()
    return replace(
        standard,
        python_path=options.python or standard.python_path,
        check_types=options.check,
    )
