"""``sandbox-kernel wrap NAME``: make a copy of an installed kernel that runs in a sandbox."""

from __future__ import annotations

import argparse
import os
import sys

from sandbox_kernel.commands.options.argument_types import duration, megabytes
from sandbox_kernel.commands.options.spec_place import add_place_options
from sandbox_kernel.limits import DEFAULT_MEMORY_MB
from sandbox_kernel.policy import PRESETS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    add = parser.add_argument
    add("name", metavar="NAME", help="the kernel, as 'jupyter kernelspec list' names it")
    add("--policy", default="", metavar="FILE|PRESET", help=f"policy file, or one of: {', '.join(PRESETS)}")
    add("--mount", action="append", default=[], metavar="HOST:GUEST[:rw]", help="show a host path inside")
    add("--allow-net", action="append", default=[], metavar="DOMAIN[:PORT]", help="let it reach a domain")
    add(
        "-m", "--memory", type=megabytes, default=DEFAULT_MEMORY_MB, metavar="2G",
        help=f"memory limit of the kernel and its processes ({DEFAULT_MEMORY_MB}M)",
    )  # fmt: skip
    add("-t", "--timeout", type=duration, metavar="60s", help="time limit of one cell (none)")
    add("--record", default="", metavar="FILE", help="add what each kernel did to this file, when it ends")
    add(
        "--here", nargs="?", const=".", default="", metavar="DIR",
        help="work on a folder (the notebook's own without =DIR), copy-on-write: see sandbox-kernel changes",
    )  # fmt: skip
    add("--display-name", default="", help="the name in the launcher (the kernel's, and 'sandboxed')")
    add("--name", dest="new_name", default="", help="the name of the wrapped kernel (sandbox-NAME)")
    add_place_options(parser)


def execute(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from sandbox_kernel.policy.sandbox_policy import make_policy, parse_mount
    from sandbox_kernel.wrapped.kernelspecs import command_of, find_original, wrap
    from sandbox_kernel.wrapped.needed_files import needed_files
    from sandbox_kernel.wrapped.record import check_path
    from sandbox_kernel.wrapped.wrap_options import WrapOptions

    original = find_original(options.name)
    # A relative path of a policy file or a mount means this folder, not the one that a notebook will be in.
    policy = options.policy if options.policy in ("", *PRESETS) else os.path.abspath(options.policy)
    make_policy(policy or None, options.mount, options.allow_net)
    mounts = tuple(mount if mount.startswith(("/", "~")) else os.path.abspath(mount) for mount in options.mount)
    chosen = WrapOptions(
        command=command_of(original),
        env=original.env,
        resource_dir=original.resource_dir,
        interrupt=original.interrupt,
        policy=policy,
        mounts=mounts,
        domains=tuple(options.allow_net),
        memory_mb=options.memory,
        timeout_s=options.timeout,
        record=check_path(options.record) if options.record else "",
        here=_folder(options.here),
    )
    needed_files(chosen.command, chosen.env, chosen.resource_dir)
    prefix = sys.prefix if options.sys_prefix else options.prefix
    made = wrap(original, chosen, name=options.new_name, display_name=options.display_name, prefix=prefix)
    print(f"wrapped kernel {original.name!r} as {made.name!r} ({made.display_name}) in {made.folder}")
    for host in (parse_mount(mount).host for mount in mounts):
        if not os.path.exists(os.path.expanduser(host)):
            sys.stderr.write(f"sandbox-kernel: {host!r} is not there; the kernel does not start until it is\n")
    return 0


def _folder(here: str) -> str:
    """Return the folder of ``--here`` as the kernelspec names it: a path that does not depend on where one is."""
    from sandbox_kernel.workspace.overlay.project import ProjectFolder

    return here if here in ("", ".") else ProjectFolder(here).path
