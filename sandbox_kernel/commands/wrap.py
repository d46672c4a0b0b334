"""Wrapped kernels: ``wrap`` makes a copy of a kernel that runs in a sandbox; ``unwrap`` and ``wrapped``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict

from sandbox_kernel.commands.shared import POLICY_HELP, add_option, add_place_options, duration, megabytes, say
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import DEFAULT_MEMORY_MB
from sandbox_kernel.policy import PRESETS
from sandbox_kernel.policy.sandbox_policy import make_policy, parse_mount
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.wrapped import kernelspecs
from sandbox_kernel.wrapped.needed_files import needed_files
from sandbox_kernel.wrapped.record import check_path, describe, read
from sandbox_kernel.wrapped.wrap_options import WrapOptions

_NOTEBOOK = "the folder of the notebook"


def add_wrap_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wrap``."""
    add = parser.add_argument
    add("name", metavar="NAME", help="the kernel, as 'jupyter kernelspec list' names it")
    add_option(parser, "--policy", default="", help=POLICY_HELP)
    add_option(parser, "--mount")
    add_option(parser, "--allow-net")
    add_option(
        parser, "--memory", "-m", type=megabytes, default=DEFAULT_MEMORY_MB, metavar="2G",
        help=f"memory limit of the kernel and its processes ({DEFAULT_MEMORY_MB}M)",
    )  # fmt: skip
    add_option(parser, "--timeout", "-t", type=duration, metavar="60s", help="time limit of one cell (none)")
    add("--record", default="", metavar="FILE", help="add what each kernel did to this file, when it ends")
    add_option(
        parser, "--here", default="", metavar="DIR",
        help="work on a folder (the notebook's own without =DIR), copy-on-write: see sandbox-kernel changes",
    )  # fmt: skip
    add("--display-name", default="", help="the name in the launcher (the kernel's, and 'sandboxed')")
    add("--name", dest="new_name", default="", help="the name of the wrapped kernel (sandbox-NAME)")
    add_place_options(parser)


def wrap(options: argparse.Namespace) -> int:
    """Check the options, and write the kernelspec of the wrapped kernel."""
    original = kernelspecs.find_original(options.name)
    # A relative path of a policy file or a mount means this folder, not the one that a notebook will be in.
    policy = options.policy if options.policy in ("", *PRESETS) else os.path.abspath(options.policy)
    make_policy(policy or None, options.mount, options.allow_net)
    mounts = tuple(mount if mount.startswith(("/", "~")) else os.path.abspath(mount) for mount in options.mount)
    chosen = WrapOptions(
        command=kernelspecs.command_of(original),
        env=original.env,
        resource_dir=original.resource_dir,
        interrupt=original.interrupt_mode,
        policy=policy,
        mounts=mounts,
        domains=tuple(options.allow_net),
        memory_mb=options.memory,
        timeout_s=options.timeout,
        record=check_path(options.record) if options.record else "",
        # A path that does not depend on where one is; the notebook's own folder stays that.
        here=options.here if options.here in ("", ".") else ProjectFolder(options.here).path,
    )
    needed_files(chosen.command, chosen.env, chosen.resource_dir)
    prefix = sys.prefix if options.sys_prefix else options.prefix
    made = kernelspecs.wrap(
        options.name, chosen, name=options.new_name, display_name=options.display_name, prefix=prefix
    )
    print(f"wrapped kernel {options.name!r} as {made.name!r} ({made.display_name}) in {made.folder}")
    for host in (parse_mount(mount).host for mount in mounts):
        if not os.path.exists(os.path.expanduser(host)):
            sys.stderr.write(f"sandbox-kernel: {host!r} is not there; the kernel does not start until it is\n")
    return 0


def add_unwrap_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``unwrap``."""
    parser.add_argument("name", metavar="NAME", help="the wrapped kernel, or the kernel that it wraps")


def unwrap(options: argparse.Namespace) -> int:
    """Remove a wrapped kernel. The kernel that it wraps stays."""
    gone = kernelspecs.unwrap(options.name)
    print(f"removed kernel {gone.name!r} from {gone.folder}; {gone.wraps!r} is as before")
    return 0


def add_wrapped_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wrapped``."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    parser.add_argument("--record", metavar="FILE", help="what kernels wrapped with --record FILE did, instead")


def wrapped(options: argparse.Namespace) -> int:
    """List the wrapped kernels with what each may touch, or what recorded ones did."""
    if options.record is not None:
        return _show_record(options.record, as_json=options.json)
    kernels = kernelspecs.wrapped_kernels()
    if options.json:
        print(json.dumps([_facts(kernel) for kernel in kernels], indent=2))
        return 0
    if not kernels:
        say("no kernel is wrapped; wrap one with: sandbox-kernel wrap NAME", to=sys.stdout)
    for kernel in kernels:
        say(f"{kernel.name}: {kernel.display_name}", to=sys.stdout)
        for name, value in _facts(kernel).items():
            if name not in ("name", "display_name"):
                shown = ", ".join(map(str, value)) or "none" if isinstance(value, list) else value
                say(f"  {name.replace('_', ' ')}: {shown}", to=sys.stdout)
    return 0


def _show_record(path: str, *, as_json: bool) -> int:
    records = read(path)
    if as_json:
        print(json.dumps([asdict(record) for record in records], indent=2))
        return 0
    for one in sorted(records, key=lambda each: each.folder):
        lines = list(describe(one))
        say(f"{one.folder}: {one.cells} cells" + ("" if lines else ", nothing was stopped"), to=sys.stdout)
        for line in lines:
            say(f"  {line}", to=sys.stdout)
    return 0


def _facts(kernel: kernelspecs.WrappedKernel) -> dict[str, object]:
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
