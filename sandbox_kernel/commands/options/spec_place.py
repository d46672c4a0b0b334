"""``--user``, ``--sys-prefix`` and ``--prefix`` of commands that write a kernelspec."""

from __future__ import annotations

import argparse


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where a kernelspec goes."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (the default)")
    where.add_argument("--sys-prefix", action="store_true", help="into this environment")
    where.add_argument("--prefix", metavar="PATH", help="below this folder")
