"""How does it scale: many executions at once, large heaps, many sessions?

    python -m benchmarks.bench_scaling [--rounds 3] [--most 64] [--no-install] [--only-throughput]

Rows of a table come from one run and are measured in turns at every level. Peers as in ``bench_start``.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Mapping

from benchmarks.checkpoint_cost import checkpoint_cost, heap_of, plain_cost
from benchmarks.idle_memory import ipykernel_memory, session_memory
from benchmarks.library_peer import library_peer
from benchmarks.many_at_once import Pace, command, library, measure, sandboxed
from benchmarks.markdown_section import table
from benchmarks.measure import machine, p95
from benchmarks.start_peers import Call, Command, find_peers
from sandbox_kernel import ProcessBackend, Sandbox

CODE = "print(1)"
LEVELS = (1, 2, 4, 8, 16, 32, 64)
HEAPS_MB = (1, 10, 30, 100, 300, 1000, 2000)
SESSIONS = (1, 2, 4, 8, 16, 32)
KERNELS = (1, 2, 4)
PLAIN, OURS = "plain python3 -c", "sandbox"
#: A peer that takes longer than this for one execution runs fewer of them.
SLOW_S = 0.2


def many_at_once(rounds: int, most: int, *, install: bool) -> str:
    peers = find_peers(CODE, install=install)
    with Sandbox() as box, contextlib.ExitStack() as stack:
        contenders = {PLAIN: command([sys.executable, "-c", CODE], env={}), OURS: sandboxed(box, CODE)}
        for name, case in peers.cases.items():
            if isinstance(case, Command):
                contenders[name] = command(case.argv, case.cwd, slow=_seconds(case) > SLOW_S)
            elif isinstance(case, Call):
                program = stack.enter_context(contextlib.closing(library_peer(peers.names[name], CODE)))
                contenders[name] = library(program)
        found = measure(contenders, [level for level in LEVELS if level <= most], rounds, count=48)
    header, rates, delays = ["at once", *contenders], [], []
    for level, paces in found.items():
        base = statistics.median(paces[PLAIN].rates)
        rates.append([str(level), *(_rate(pace, base) for pace in paces.values())])
        delays.append([str(level), *(f"{p95(pace.times):.0f}" if pace.times else "–" for pace in paces.values())])
        for name, pace in paces.items():
            assert not pace.failures or name in peers.cases, (name, level, pace.failures)
    return (
        f"### Many at once: executions a second\n\n{table(header, rates)}\n\n"
        "Medians of the rounds, and the ratio to the plain program. The time of ours ends when as many sandboxes wait "
        "again as before. sandlock and nono-py are libraries: a program for each calls them in as many threads as are "
        f"at once. Who takes more than {SLOW_S:g} s for one runs once for each that is at once.\n\n"
        f"### Many at once: 95th percentile of one execution, in milliseconds\n\n{table(header, delays)}\n\n"
        + _reasons(found)
        + (f"Did not take part: {'; '.join(peers.absent)}.\n" if peers.absent else "")
    )


def _seconds(case: Command) -> float:
    began = time.perf_counter()
    case()
    return time.perf_counter() - began


def _reasons(found: Mapping[int, Mapping[str, Pace]]) -> str:
    """Return the reasons of executions that failed under load, each once."""
    said = {name: pace.failures[0] for paces in found.values() for name, pace in paces.items() if pace.failures}
    return "".join(f"{name} failed with: {' '.join(reason.split())[:200]}\n\n" for name, reason in said.items())


def _rate(pace: Pace, base: float) -> str:
    rate = statistics.median(pace.rates)
    failed = f", ✗ {len(pace.failures)} of {len(pace.times) + len(pace.failures)} failed" if pace.failures else ""
    return f"{rate:.0f} ({rate / base:.2f}×){failed}"


def heaps(rounds: int) -> str:
    backend, rows = ProcessBackend(), []
    for megabytes in HEAPS_MB:
        cost = checkpoint_cost(backend, heap_of(megabytes), rounds)
        forks, pickles = plain_cost(megabytes, rounds)
        columns = (cost.forks, cost.backs, cost.nexts, forks, pickles)
        rows.append([str(megabytes), *(f"{statistics.median(column):.1f}" for column in columns)])
    header = ["heap, MB", "checkpoint", "rollback", "next cell", "plain os.fork", "plain pickle.dumps"]
    return (
        f"### Heaps: milliseconds of a checkpoint, by the size of the heap\n\n{table(header, rows)}\n\n"
        "A checkpoint is made after the reply, off the user's path; the next cell waits for it only if it comes at "
        "once. Plain columns are of a program without a sandbox: a fork alone, and writing the same bytes down.\n"
    )


def sessions() -> str:
    ours = {f"sessions with {count or 'no'} checkpoints": session_memory(SESSIONS, count) for count in (5, 0)}
    columns = {**ours, "ipykernel": ipykernel_memory(KERNELS)}
    rows = []
    for count in SESSIONS:
        held = [column.get(count) for column in columns.values()]
        rows.append([str(count), *("–" if mb is None else f"{mb:.0f} ({mb / count:.1f} each)" for mb in held)])
    return (
        f"### Sessions: megabytes of everything, by their number\n\n{table(['number', *columns], rows)}\n\n"
        "Proportional set sizes of all processes that were started: workers, checkpoints, templates, waiting sandboxes."
        " Each session has run one cell more than it keeps checkpoints.\n"
    )


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=64, help="the highest concurrency")
    parser.add_argument("--no-install", action="store_true", help="use only those peers that are installed already")
    parser.add_argument("--only-throughput", action="store_true", help="many executions at once, and nothing else")
    options = parser.parse_args()
    print(f"{machine()}\n")
    if not options.only_throughput:
        print(sessions(), flush=True)
        print(heaps(max(3, 3 * options.rounds)), flush=True)
    print(many_at_once(options.rounds, options.most, install=not options.no_install))


if __name__ == "__main__":
    main()
