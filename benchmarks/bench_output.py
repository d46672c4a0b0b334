"""How fast is output, and how much memory of the host does it need?

    python -m benchmarks.bench_output [--megabytes 512] [--rounds 5] [--no-install]

Each way runs in a separate process, whose memory is the growth of its largest resident size from before the first run
to after the last. Peers as in ``bench_start``; those that capture output hold all of it.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.markdown_section import table
from benchmarks.measure import machine
from benchmarks.start_peers import find_peers, one_peer
from sandbox_kernel import ExecRequest, Language, Limits, ProcessBackend, Sandbox

PROGRAM = "import sys\nb = 'x' * (1 << 20)\nfor _ in range({megabytes}): sys.stdout.write(b)"
FLOOD = """(module (import "wasi_snapshot_preview1" "fd_write" (func $w (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start") (local $i i32) (i32.store (i32.const 4) (i32.const 65536))
    (loop $l (drop (call $w (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $l (i32.lt_u (local.get $i) (i32.const {writes}))))))"""
NOTE = (
    "Of a sandbox's output the head and the tail are kept, 1 MiB of each stream unless told otherwise; the rest is "
    "read, counted and dropped. One row is told to keep all of it. Others keep everything or, drained, nothing: "
    "sandlock and nono-py hand out what they captured, the rest are captured as a plain program is."
)
Way = Callable[[int], int]


@dataclass(frozen=True)
class Flood:
    """The measurements of one way."""

    seconds: list[float]
    grown_mb: float
    came: int


def drained(megabytes: int) -> int:
    """Run a plain process and discard its output: the fastest possible."""
    came = 0
    argv = [sys.executable, "-c", PROGRAM.format(megabytes=megabytes)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
            came += len(piece)
    return came


def captured(megabytes: int) -> int:
    """Run a plain process and keep its output, as most callers do."""
    argv = [sys.executable, "-c", PROGRAM.format(megabytes=megabytes)]
    return len(subprocess.run(argv, check=True, capture_output=True).stdout)


def sandboxed(megabytes: int) -> int:
    """Run it in our sandbox."""
    request = ExecRequest(language=Language.PYTHON, code=PROGRAM.format(megabytes=megabytes), timeout=300)
    return ProcessBackend().run(request).stdout_bytes


def heard(megabytes: int) -> int:
    """Run it in our sandbox, keep all output, and call ``on_output`` for all of it."""
    came = 0

    def hear(stream: str, text: str) -> None:
        nonlocal came
        came += len(text)

    with Sandbox() as box:
        limits = Limits(output_bytes=megabytes << 20)
        box.run(PROGRAM.format(megabytes=megabytes), "python", timeout=300, limits=limits, on_output=hear)
    return came


def in_session(megabytes: int) -> int:
    """Run it as a cell of a session."""
    with Sandbox() as box, box.session("python") as session:
        return session.run(PROGRAM.format(megabytes=megabytes), timeout=300).stdout_bytes


def in_wasm(megabytes: int) -> int:
    """Run a wasm module that writes 64 KiB at a time."""
    from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend

    code = FLOOD.format(writes=megabytes * 16)
    return WasmBackend().run(ExecRequest(language=Language.WASM, code=code, timeout=300)).stdout_bytes


WAYS: dict[str, Way] = {
    "plain python3, drained": drained,
    "plain python3, captured": captured,
    "sandbox": sandboxed,
    "sandbox, all kept and told as it comes": heard,
    "sandbox session, one cell": in_session,
    "sandbox, WebAssembly": in_wasm,
}


def peer(name: str) -> Way:
    """Run it in another sandbox, by its name for ``one_peer``. Its output is not counted; a failure is raised."""

    def run(megabytes: int) -> int:
        one_peer(name, PROGRAM.format(megabytes=megabytes))()
        return megabytes << 20

    return run


def flood(way: Way, megabytes: int, rounds: int) -> Flood:
    """Measure one way, after a short run that imports and builds what it needs."""
    way(1)
    before, seconds, came = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, [], 0
    for _ in range(rounds):
        began = time.perf_counter()
        came = way(megabytes)
        seconds.append(time.perf_counter() - began)
    return Flood(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, came)


def measured(way: str, megabytes: int, rounds: int) -> Flood:
    """Measure one way in a separate process."""
    argv = [sys.executable, "-m", "benchmarks.bench_output", "--way", way, "--megabytes", str(megabytes)]
    done = subprocess.run([*argv, "--rounds", str(rounds)], check=True, stdout=subprocess.PIPE, text=True)
    return Flood(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print the table; with ``--way`` measure one way and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-install", action="store_true", help="use only those peers that are installed already")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(vars(flood(WAYS.get(options.way) or peer(options.way), options.megabytes, options.rounds))))
        return
    print(f"{machine()}\n")
    peers = find_peers("print(1)", install=not options.no_install)
    ways = {**{name: name for name in WAYS}, **{label: peers.names[label] for label in peers.cases}}
    floods = {label: measured(way, options.megabytes, options.rounds) for label, way in ways.items()}
    rates = {label: options.megabytes / statistics.median(found.seconds) for label, found in floods.items()}
    base = next(iter(rates.values()))
    rows = [
        [label, f"{rates[label]:.0f}", f"{rates[label] / base:.2f}", f"{found.grown_mb:.0f}"]
        for label, found in floods.items()
    ]
    for label, found in floods.items():
        assert found.came == options.megabytes << 20, (label, found)
    print(f"### {options.megabytes} MB printed by a program\n")
    print(table(["", "MB/s", f"÷ {next(iter(rates))}", "host memory, MB more"], rows))
    print(f"\nMedians of {options.rounds}. {NOTE}")
    if peers.absent:
        print(f"\nDid not take part: {'; '.join(peers.absent)}.")


if __name__ == "__main__":
    main()
