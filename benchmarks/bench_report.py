"""How long does the capability report take, measured again and from the kept results? The goal is 3 s for the former.

python -m benchmarks.bench_report [--rounds 5]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from benchmarks.measure import interleaved, machine, table
from sandbox_kernel import Sandbox

COMMAND = (sys.executable, "-m", "sandbox_kernel", "report")
CASES = {
    "the command, measured anew": (*COMMAND, "--fresh"),
    "the command, kept from before": COMMAND,
    "the command, measured anew, WebAssembly": (*COMMAND, "--fresh", "--backend", "wasm"),
}


def _run(argv: tuple[str, ...]) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{machine()}\n")
    with Sandbox() as box:
        cases: dict[str, Callable[[], object]] = {name: partial(_run, argv) for name, argv in CASES.items()}
        cases["box.report(again=True), in a program that runs"] = lambda: box.report(again=True)
        times = interleaved(cases, options.rounds)
        counted = len(box.report().lines)
    print(table(f"The report: {counted} lines, each with its control", times))


if __name__ == "__main__":
    main()
