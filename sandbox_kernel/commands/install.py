"""``sandbox-kernel install``: write the kernelspec, so that Jupyter finds the kernel."""

from __future__ import annotations

import argparse

from sandbox_kernel.commands.options.spec_place import add_place_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    add_place_options(parser)
    parser.add_argument("--name", default="sandbox", help="the kernel's name (sandbox)")
    parser.add_argument("--display-name", default="Sandbox", help="the name in the launcher (Sandbox)")
    parser.add_argument(
        "--here", nargs="?", const=".", metavar="DIR",
        help="cells of new notebooks work on this folder (the notebook's own), copy-on-write",
    )  # fmt: skip
    parser.add_argument(
        "--gpu", nargs="?", const="all", metavar="CARDS",
        help="cells of new notebooks may use accelerators: all, or numbers like 0,1",
    )  # fmt: skip
    parser.add_argument(
        "--lines", choices=("all", "limits"),
        help="what %%sandbox lines may give: all (the default), or limits and no rights, for strangers' notebooks",
    )  # fmt: skip


def execute(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from sandbox_kernel.notebook.kernelspec import install
    from sandbox_kernel.policy.gpu import parse_gpu

    place = install(
        user=options.user, prefix=options.prefix, sys_prefix=options.sys_prefix, name=options.name,
        display_name=options.display_name, here=options.here,
        gpu=None if options.gpu is None else str(parse_gpu(options.gpu)), lines=options.lines,
    )  # fmt: skip
    print(f"installed kernel {options.name!r} in {place}")
    return 0
