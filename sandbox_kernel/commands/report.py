"""``sandbox-kernel report``: print what is enforced on this host."""

from __future__ import annotations

import argparse
import json
import sys

from sandbox_kernel.box.sandbox import BACKENDS, Sandbox
from sandbox_kernel.commands.shared import add_policy_options, names, policy_of, show_measuring


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``report``."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--html", action="store_true", help="as an HTML page")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="which backend to measure (auto: process)")
    add_policy_options(parser)
    parser.add_argument("--fresh", action="store_true", help="measure again instead of using the results of this boot")
    parser.add_argument("--require", type=names, default=[], metavar="A,B", help="fail unless these are enforced")


def report(options: argparse.Namespace) -> int:
    """Measure, and print what was found."""
    with Sandbox(
        policy_of(options), options.backend, audit=options.audit, allow_private_for=options.allow_private
    ) as box:
        progress = show_measuring if sys.stderr.isatty() else None
        found = box.report(fresh=options.fresh, on_progress=progress)
    found.require(*options.require)
    if options.json:
        print(json.dumps(found.to_dict(), indent=2))
    elif options.html:
        print(found._repr_html_())
    else:
        print(found)
    return 0
