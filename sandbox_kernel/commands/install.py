"""``sandbox-kernel install``: write the kernelspec, so that Jupyter finds the kernel."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (the default)")
    where.add_argument("--sys-prefix", action="store_true", help="into this environment")
    where.add_argument("--prefix", metavar="PATH", help="below this folder")
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


def execute(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from sandbox_kernel.notebook.kernelspec import install
    from sandbox_kernel.policy.gpu import parse_gpu

    place = install(
        user=options.user, prefix=options.prefix, sys_prefix=options.sys_prefix, name=options.name,
        display_name=options.display_name, here=options.here,
        gpu=None if options.gpu is None else str(parse_gpu(options.gpu)),
    )  # fmt: skip
    print(f"installed kernel {options.name!r} in {place}")
    return 0
