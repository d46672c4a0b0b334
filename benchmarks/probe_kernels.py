"""Probes installed kernels and prints which protocol features work in which.

    python -m benchmarks.probe_kernels

Every mark is a result of a running kernel. Kernels that cannot be installed here are listed below the table.
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

from benchmarks.kernel_client import NoAnswer, RunningKernel
from benchmarks.kernel_features import PROTOCOL
from benchmarks.kernel_finding import Feature, Finding
from benchmarks.kernel_peers import DEFAULT_SCRATCH, Field, Kernel, find_kernels
from benchmarks.kernel_programs import PROGRAMS
from benchmarks.kernel_walls import CANARY_ENVIRONMENT, WALLS
from benchmarks.markdown_section import table

FEATURES = PROTOCOL + WALLS


def probe(kernel: Kernel) -> list[Finding]:
    """Run all probes on one kernel. Restarts it after a probe that left it dead or without answer."""
    running: RunningKernel | None = None
    findings = []
    for feature in FEATURES:
        if running is None:
            running = RunningKernel(kernel, CANARY_ENVIRONMENT)
        finding, usable = _probe_feature(feature, running)
        findings.append(finding)
        print(f"{kernel.label:12} {feature.title:45} {finding}", file=sys.stderr)
        if not usable or feature.ends_kernel or not running.alive:
            running.close()
            running = None
    if running is not None:
        running.close()
    return findings


def _probe_feature(feature: Feature, running: RunningKernel) -> tuple[Finding, bool]:
    try:
        return feature.probe(running, PROGRAMS[running.kernel.language]), True
    except NoAnswer as error:
        return Finding("✗", "the kernel dies" if error.died else "no answer"), False
    except (KeyError, TypeError, AttributeError) as error:
        return Finding("✗", f"malformed answer ({type(error).__name__} {error})"), False


def markdown(field: Field, columns: list[list[Finding]]) -> str:
    """Return the table, and notes for reading it."""
    header = ["", *(f"{kernel.label} {kernel.version}" for kernel in field.kernels)]
    rows = [[feature.title, *map(str, found)] for feature, *found in zip(FEATURES, *columns, strict=True)]
    notes = [
        "✓ works · ~ in part · ✗ does not · – does not apply.",
        f"Probed by `python -m benchmarks.probe_kernels` on {platform.system()} {platform.machine()}.",
        *(f"Not probed here: {reason}." for reason in field.absent),
    ]
    return table(header, rows) + "\n\n" + " ".join(notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--scratch", type=Path, default=DEFAULT_SCRATCH, help="where other kernels are installed")
    parser.add_argument("--no-install", action="store_true", help="probe only what is installed already")
    parser.add_argument("--only", nargs="+", metavar="KERNEL", help="probe only these")
    options = parser.parse_args()
    field = find_kernels(options.scratch, install=not options.no_install)
    chosen = tuple(k for k in field.kernels if not options.only or k.label in options.only)
    field = Field(chosen, field.absent)
    print(markdown(field, [probe(kernel) for kernel in field.kernels]))


if __name__ == "__main__":
    main()
