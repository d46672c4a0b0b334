"""``sandbox-kernel unwrap NAME``: remove a wrapped kernel. The kernel that it wraps stays."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("name", metavar="NAME", help="the wrapped kernel, or the kernel that it wraps")


def execute(options: argparse.Namespace) -> int:
    """See ``Command``."""
    from sandbox_kernel.wrapped.kernelspecs import unwrap

    gone = unwrap(options.name)
    print(f"removed kernel {gone.name!r} from {gone.folder}; {gone.wraps!r} is as before")
    return 0
