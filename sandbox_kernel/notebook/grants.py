"""From the options of a cell to the policy and the limits it runs under."""

from __future__ import annotations

from sandbox_kernel.limits import Limits
from sandbox_kernel.notebook.cell_options import CellOptions
from sandbox_kernel.policy import PRESETS, SandboxPolicy


def policy_of(options: CellOptions) -> SandboxPolicy:
    """The policy by name or from a file, with the cell's own grants added; reads the file, resolves no path."""
    name = options.policy or "standard"
    policy = SandboxPolicy.preset(name) if name in PRESETS else SandboxPolicy.load(name)
    for grant in options.allow_net:
        policy = policy.allow_domain(grant.domain, *(() if grant.port is None else (grant.port,)))
    for mount in options.mounts:
        policy = policy.mount(mount.host, mount.guest, mount.writable)
    return policy


def limits_of(options: CellOptions) -> Limits:
    """The limits besides time and memory; what was not asked for keeps its safe default."""
    standard = Limits()
    return Limits(
        cpu_seconds=options.cpu_s,
        processes=options.processes if options.processes is not None else standard.processes,
        disk_mb=options.disk_mb if options.disk_mb is not None else standard.disk_mb,
        output_bytes=options.output_bytes if options.output_bytes is not None else standard.output_bytes,
    )
