"""How much memory is used when nothing runs, what does memory cost inside, and how exact is a memory limit?

    python -m benchmarks.bench_memory [--rounds 7]

Memory by the number of sessions is in ``bench_scaling``, that of one session in ``bench_session``, that of kernels in
``bench_kernel``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from benchmarks.idle_memory import idle_programs
from benchmarks.markdown_section import table
from benchmarks.measure import machine
from benchmarks.measure import table as times_table
from benchmarks.start_peers import find_peers, one_peer
from sandbox_kernel import ExecRequest, Language, ProcessBackend, Sandbox
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend

_MB = 1 << 20
TOUCH = "b = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): b[i] = 1"
HOG = "held = []\nwhile True: held.append(b'x' * (1 << 20))"
WASM_HOG = """(module (memory (export "memory") 1)
  (func (export "_start") (loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable))"""
LIMITS_MB = (64, 256, 1024)


def idle() -> str:
    rows = [
        [name, f"{held.resident_mb:.1f}", f"{held.proportional_mb:.1f}", str(held.processes)]
        for name, held in idle_programs().items()
    ]
    return f"### Idle: memory when nothing runs\n\n{table(['', 'RSS, MB', 'PSS, MB', 'processes'], rows)}\n"


def touched(rounds: int) -> str:
    """Write 1 GB page by page, inside and outside of a sandbox, to measure the cost of counting memory."""
    peers = find_peers("print(1)", install=False)
    backend = ProcessBackend()
    request = ExecRequest(language=Language.PYTHON, code=TOUCH, timeout=120, memory_limit_mb=1536)
    cases = {
        "plain python3": lambda: subprocess.run([sys.executable, "-c", TOUCH], check=True),
        "sandbox, limit 1536 MB": lambda: backend.run(request).raise_for_status(),
        **{label: one_peer(peers.names[label], TOUCH) for label in peers.cases},
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            began = time.perf_counter()
            case()
            times[name].append((time.perf_counter() - began) * 1e3)
    note = "Only the sandbox counts and limits the memory of the whole tree here."
    return times_table("A program that writes to every page of 1 GB", times, note=note)


def limits(rounds: int) -> str:
    """Run a program that takes all memory it can get; measure how much it got and how soon it was ended."""
    rows = []
    with Sandbox() as box, box.session("python", memory_mb=max(LIMITS_MB)) as session:
        session.run("kept = 1")
        wasm = WasmBackend()
        for limit in LIMITS_MB:
            for name, request in (
                ("python", ExecRequest(language=Language.PYTHON, code=HOG, timeout=120, memory_limit_mb=limit)),
                ("wasm", ExecRequest(language=Language.WASM, code=WASM_HOG, timeout=120, memory_limit_mb=limit)),
            ):
                backend = wasm if name == "wasm" else box.backend
                results = [backend.run(request) for _ in range(rounds)]
                assert {str(result.limit) for result in results} == {"memory"}, results
                rows.append(_row(f"{name}, {limit} MB", [r.peak_memory_bytes for r in results], _ms(results)))
        results = [session.run(HOG, timeout=120) for _ in range(rounds)]
        assert all(result.rolled_back for result in results), results
        rows.append(_row(f"session, {max(LIMITS_MB)} MB", [r.peak_memory_bytes for r in results], _ms(results)))
    return (
        "### At the limit: a program that takes all it can get\n\n"
        f"{table(['', 'peak, MB', 'of the limit', 'until told, ms'], rows)}\n\n"
        "The peak is the highest count of the control group, for a session with its checkpoints; a dash where nobody "
        "counts. The time is that of the whole run, taking the memory included.\n"
    )


def _ms(results: list) -> list[float]:  # type: ignore[type-arg]
    return [result.duration * 1e3 for result in results]


def _row(name: str, peaks: list[int | None], milliseconds: list[float]) -> list[str]:
    counted = [peak / _MB for peak in peaks if peak is not None]
    limit = int(name.split()[-2])
    middle = statistics.median(milliseconds)
    if not counted:
        return [name, "–", "–", f"{middle:.0f}"]
    return [name, f"{max(counted):.1f}", f"{max(counted) / limit:.2f}", f"{middle:.0f}"]


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{machine()}\n")
    print(idle(), flush=True)
    print(touched(options.rounds), flush=True)
    print(limits(options.rounds))


if __name__ == "__main__":
    main()
