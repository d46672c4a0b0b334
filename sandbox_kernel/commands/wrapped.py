"""``sandbox-kernel wrapped``: list the wrapped kernels with what each may touch, or what recorded ones did."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from sandbox_kernel.commands.terminal.echo import say

if TYPE_CHECKING:
    from sandbox_kernel.wrapped.kernelspecs import WrappedKernel

_NOTEBOOK = "the folder of the notebook"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    parser.add_argument("--record", metavar="FILE", help="what kernels wrapped with --record FILE did, instead")


def execute(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from sandbox_kernel.wrapped.kernelspecs import wrapped_kernels

    if options.record is not None:
        return _show_record(options.record, as_json=options.json)
    kernels = wrapped_kernels()
    if options.json:
        print(json.dumps([_facts(kernel) for kernel in kernels], indent=2))
        return 0
    if not kernels:
        say("no kernel is wrapped; wrap one with: sandbox-kernel wrap NAME", to=sys.stdout)
    for kernel in kernels:
        say(f"{kernel.name}: {kernel.display_name}", to=sys.stdout)
        for name, value in _facts(kernel).items():
            if name not in ("name", "display_name"):
                say(f"  {name.replace('_', ' ')}: {_shown(value)}", to=sys.stdout)
    return 0


def _show_record(path: str, *, as_json: bool) -> int:
    """Print what each kernel of a record did, by the folder in which it was started."""
    from sandbox_kernel.wrapped.record import describe, read

    records = read(path)
    if as_json:
        print(json.dumps([asdict(record) for record in records], indent=2))
        return 0
    for record in sorted(records, key=lambda each: each.folder):
        lines = list(describe(record))
        say(f"{record.folder}: {record.cells} cells" + ("" if lines else ", nothing was stopped"), to=sys.stdout)
        for line in lines:
            say(f"  {line}", to=sys.stdout)
    return 0


def _shown(value: object) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def _facts(kernel: WrappedKernel) -> dict[str, object]:
    """Return what a wrapped kernel is and may touch: files, network, memory, time."""
    from sandbox_kernel.errors import SandboxError
    from sandbox_kernel.policy import PRESETS
    from sandbox_kernel.policy.sandbox_policy import make_policy
    from sandbox_kernel.wrapped.needed_files import needed_files

    options = kernel.options
    facts: dict[str, object] = {"name": kernel.name, "display_name": kernel.display_name, "wraps": kernel.wraps}
    try:
        files = needed_files(options.command, options.env, options.resource_dir)
        policy = make_policy(options.policy or None, options.mounts, options.domains)
    except SandboxError as error:
        return {**facts, "problem": str(error)}
    # A preset means the folder in which a kernel is started; here that would be the folder of this command.
    here, of_preset = os.getcwd(), options.policy in PRESETS
    shown = {path.path: _NOTEBOOK if of_preset and path.path == here else path.path for path in policy.allowed_paths}
    paths = [f"{shown[path.path]} ({path.mode.value})" for path in policy.allowed_paths]
    paths += [f"{mount.host} at {mount.guest}{' (writable)' if mount.writable else ''}" for mount in policy.mounts]
    return {
        **facts,
        "policy": options.policy or "standard",
        "files_of_the_kernel": [grant.target for grant in files.grants],
        "files_of_the_policy": paths,
        "works_on": _works_on(options.here, shown=_NOTEBOOK in shown.values()),
        "network": ["every public address"] if policy.network else [rule.domain for rule in policy.network_rules],
        "memory": f"{options.memory_mb} MB",
        "time_of_a_cell": f"{options.timeout_s:g} s" if options.timeout_s is not None else "no limit",
    }


def _works_on(here: str, *, shown: bool) -> str:
    if not here:
        empty = "an empty folder that ends with the kernel"
        return _NOTEBOOK if shown else f"{_NOTEBOOK} if the policy shows it, else {empty}"
    return f"{_NOTEBOOK if here == '.' else here}, copy-on-write (sandbox-kernel changes)"
