"""``sandbox-kernel install``: write the kernelspec, so that Jupyter finds the kernel."""

from __future__ import annotations

import argparse
import os
import shlex

from sandbox_kernel.commands.shared import add_option, add_place_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    add_place_options(parser)
    parser.add_argument("--name", default="sandbox", help="the kernel's name (sandbox)")
    parser.add_argument("--display-name", default="Sandbox", help="the name in the launcher (Sandbox)")
    add_option(
        parser, "--here", metavar="DIR",
        help="cells of new notebooks work on this folder (the notebook's own), copy-on-write",
    )  # fmt: skip
    add_option(
        parser, "--gpu", nargs="?", const="all",
        help="cells of new notebooks may use accelerators: all, or numbers like 0,1",
    )  # fmt: skip
    for name in ("--mount", "--allow-net", "--policy"):
        add_option(parser, name, action="append", default=[], help="as %%sandbox, for new notebooks")
    parser.add_argument(
        "--lines", choices=("ask", "limits", "locked", "all"),
        help="who gives rights that %%sandbox lines ask for: the user, who is asked (ask, the default); the user, in "
        "the side panel only (limits); nobody while the kernel runs (locked, for agents); the lines themselves (all)",
    )  # fmt: skip


def execute(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from sandbox_kernel.notebook.kernelspec import install
    from sandbox_kernel.notebook.options.cell_options import policy_of
    from sandbox_kernel.notebook.options.parse_options import parse_options
    from sandbox_kernel.policy import PRESETS
    from sandbox_kernel.policy.gpu import parse_gpu

    # A mount's host path comes first, so the whole value can be made absolute.
    words = [f"--mount={os.path.abspath(os.path.expanduser(value))}" for value in options.mount]
    words += [f"--allow-net={value}" for value in options.allow_net]
    words += [f"--policy={name if name in PRESETS else os.path.abspath(name)}" for name in options.policy]
    policy_of(parse_options(words))  # raises for what is none
    place = install(
        user=options.user, prefix=options.prefix, sys_prefix=options.sys_prefix, name=options.name,
        display_name=options.display_name, here=options.here,
        gpu=None if options.gpu is None else str(parse_gpu(options.gpu)), lines=options.lines,
        options=shlex.join(words) or None,
    )  # fmt: skip
    print(f"installed kernel {options.name!r} in {place}")
    return 0
