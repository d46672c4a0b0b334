"""Wrapped kernels: ``wrap`` makes a copy of a kernel that runs in a sandbox; ``unwrap`` and ``wrapped``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, replace

from sandbox_kernel.commands.shared import POLICY_HELP, add_option, add_place_options, say
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, PAGE_TIMEOUT_S
from sandbox_kernel.model.units import duration_text
from sandbox_kernel.notebook.options.cell_options import policy_rows
from sandbox_kernel.notebook.options.option_table import BY_SETTING
from sandbox_kernel.policy import PRESETS
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.wrapped import kernelspecs
from sandbox_kernel.wrapped.needed_files import needed_files
from sandbox_kernel.wrapped.record import describe, read

_NOTEBOOK = "the folder of the notebook"
_USUAL_MEMORY = f"in a page a quarter of the machine's, else {DEFAULT_MEMORY_MB}M"
_USUAL_TIME = f"in a page {duration_text(PAGE_TIMEOUT_S)}, else none"


def add_wrap_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wrap``."""
    add = parser.add_argument
    add("name", metavar="NAME", help="the kernel, as 'jupyter kernelspec list' names it")
    add_option(parser, "--policy", help=POLICY_HELP)
    add_option(parser, "--mount")
    add_option(parser, "--allow-net")
    add_option(
        parser, "--memory", "-m", type=str, metavar="2G",
        help=f"memory limit of the kernel and its processes ({_USUAL_MEMORY})",
    )  # fmt: skip
    add_option(parser, "--timeout", "-t", type=str, metavar="60s", help=f"time limit of one cell ({_USUAL_TIME})")
    add("--record", metavar="FILE", help=BY_SETTING["record"].help)
    add_option(
        parser, "--here", metavar="DIR",
        help="work on a folder (the notebook's own without =DIR), copy-on-write: see sandbox-kernel changes",
    )  # fmt: skip
    add("--display-name", default="", help="the name in the launcher (the kernel's, and 'sandboxed')")
    add("--name", dest="new_name", default="", help="the name of the wrapped kernel (sandbox-NAME)")
    add_place_options(parser)


def wrap(options: argparse.Namespace) -> int:
    """Check the options, and write the kernelspec of the wrapped kernel."""
    original = kernelspecs.find_original(options.name)
    asked = {name: getattr(options, row.name[2:].replace("-", "_"), None) or None for name, row in BY_SETTING.items()}
    chosen = kernelspecs.options_for(original, kernelspecs.command_of(original), asked)
    # A relative path of a mount or a project means this folder, not the one that a notebook will be in.
    hosts = [mount.host if mount.host[0] in "/~" else os.path.abspath(mount.host) for mount in chosen.mounts]
    chosen = replace(
        chosen,
        mounts=tuple(replace(mount, host=host) for mount, host in zip(chosen.mounts, hosts, strict=True)),
        here=chosen.here if chosen.here in ("", ".") else ProjectFolder(chosen.here).path,
    )
    named = {"name": options.new_name, "display_name": options.display_name, "prefix": options.prefix}
    made = kernelspecs.wrap(options.name, chosen, **named)
    print(f"wrapped kernel {options.name!r} as {made.name!r} ({made.display_name}) in {made.folder}")
    for host in hosts:
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
        policy = options.sandbox_policy()
    except SandboxError as error:
        return {**facts, "problem": str(error)}
    rows = dict(policy_rows(policy))
    # A preset means the folder in which a kernel is started; here that would be the folder of this command.
    if options.policy in PRESETS:
        rows["files"] = rows["files"].replace(os.getcwd(), _NOTEBOOK)
    works_on = f"{_NOTEBOOK if options.here == '.' else options.here}, copy-on-write (sandbox-kernel changes)"
    if not options.here:
        empty = f"{_NOTEBOOK} if the policy shows it, else an empty folder that ends with the kernel"
        works_on = _NOTEBOOK if _NOTEBOOK in rows["files"] else empty
    return {
        **facts,
        "policy": options.policy or "standard",
        "files_of_the_kernel": [grant.target for grant in files.grants],
        **rows,
        "works_on": works_on,
        "memory": f"{options.memory_mb} MB" if "memory" in options.settings() else _USUAL_MEMORY,
        "time_of_a_cell": f"{options.timeout_s:g} s" if options.timeout_s is not None else _USUAL_TIME,
    }
