"""How long does a fresh sandboxed program take, against the same program without a sandbox and in other sandboxes?

    python -m benchmarks.bench_start [--rounds 40] [--no-install]

Rows of a table come from one run and are measured in turns. ``start_peers.py`` finds and installs the peers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.measure import interleaved, machine, table
from benchmarks.start_peers import find_peers
from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig, Sandbox

CODE = "print(1)"
NOT_COMPARABLE = (
    "Not the same walls: plain bwrap, firejail and sandbox-runtime show the whole file system and limit nothing; "
    "sandlock and nono-py share the host's processes. The warm row leaves out the making of the next sandbox, which "
    "happens while the user reads; throughput, below, has it in. sandlock and nono-py are called as libraries, "
    "as are our rows but the command line's."
)
WORK = {
    "fib(24)": "def f(n): return n if n < 2 else f(n-1) + f(n-2)\nf(24)",
    "loop 2e6": "x = 0\nfor i in range(2_000_000): x += i",
    "json": "import json\nd = {i: list(range(20)) for i in range(2000)}\nfor _ in range(9): json.loads(json.dumps(d))",
}


def plain(code: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env={})


def command_line(code: str) -> Callable[[], object]:
    words = [sys.executable, "-m", "sandbox_kernel", "run", "--quiet", "-c", code]
    return lambda: subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def cpu_times(rounds: int = 5) -> dict[str, tuple[list[float], list[float]]]:
    """Return the seconds of each program outside and inside of a sandbox, measured in turns in this process."""
    backend = ProcessBackend(ProcessConfig())
    times: dict[str, tuple[list[float], list[float]]] = {}
    for name, code in WORK.items():
        timed = f"import time\nb = time.perf_counter()\n{code}\nprint(time.perf_counter() - b)"
        outside, inside = times.setdefault(name, ([], []))
        for _ in range(rounds):
            outside.append(float(subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True).stdout))
            inside.append(float(backend.run(ExecRequest(language=Language.PYTHON, code=timed, timeout=60)).stdout))
    return times


def cpu_work(hosts: int = 7) -> str:
    rows = [
        "### CPU-bound work inside (seconds in the program itself, medians)",
        "",
        "| | plain | sandboxed | ÷ |",
        "|---|---|---|---|",
    ]
    words = [sys.executable, "-m", "benchmarks.bench_start", "--cpu-times"]
    told = [json.loads(subprocess.run(words, check=True, capture_output=True).stdout) for _ in range(hosts)]
    for name in WORK:
        outside, inside = (statistics.median(seconds for one in told for seconds in one[name][side]) for side in (0, 1))
        rows.append(f"| {name} | {outside:.4f} | {inside:.4f} | {inside / outside:.3f} |")
    note = (
        f"{hosts} host processes, each with a template of its own: the jails of one template share its address layout, "
        "which alone makes a loop some per cent faster or slower, plainly too. The best of 7 in one host, as this "
        "table was once made, came out between 0.99 and 1.14 for the same code."
    )
    return "\n".join(rows) + f"\n\n{note}\n"


def throughput(count: int = 200, concurrency: int = 2) -> str:
    async def ours() -> float:
        backend = ProcessBackend(ProcessConfig(pool_size=4))
        gate = asyncio.Semaphore(concurrency)

        async def one() -> None:
            async with gate:
                await backend.execute(ExecRequest(language=Language.PYTHON, code=CODE, timeout=60))

        await one()
        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(count)))
        return count / (time.perf_counter() - began)

    async def theirs() -> float:
        gate = asyncio.Semaphore(concurrency)

        async def one() -> None:
            async with gate:
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", CODE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}
                )
                await child.communicate()

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(count)))
        return count / (time.perf_counter() - began)

    pairs = [(asyncio.run(ours()), asyncio.run(theirs())) for _ in range(3)]
    mine, plainly = (statistics.median(column) for column in zip(*pairs, strict=True))
    return (
        f"### {count} executions at concurrency {concurrency}\n\n| | executions/s | ÷ plain |\n|---|---|---|\n"
        f"| plain subprocess | {plainly:.0f} | 1.00 |\n| sandboxed | {mine:.0f} | {mine / plainly:.2f} |\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--no-install", action="store_true", help="use only those peers that are installed already")
    parser.add_argument("--cpu-times", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cpu_times:
        print(json.dumps(cpu_times()))
        return
    print(f"{machine()}\n")
    peers = find_peers(CODE, install=not options.no_install)
    with Sandbox() as box:
        # Without spares: the run is forked from a template. And without a template too, as the first run.
        cold = ProcessBackend(ProcessConfig(pool_size=0))
        first = ProcessBackend(ProcessConfig(pool_size=0, templates=False))
        request = ExecRequest(language=Language.PYTHON, code=CODE, timeout=60)

        def warm() -> None:
            box.run(CODE, "python", timeout=60)

        def settle() -> None:
            # Not measured: the next sandbox is made between two cells, while the user pauses.
            while box.backend._pool.spares() < 1:
                time.sleep(0.001)

        cases: dict[str, Callable[[], object]] = {
            "plain python3 -c": plain(CODE), "sandbox, cold": lambda: cold.run(request),
            "sandbox, cold, started without a template": lambda: first.run(request),
            "sandbox-kernel run -c": command_line(CODE), **peers.cases,
        }  # fmt: skip
        times = interleaved(cases, options.rounds)
        times["sandbox, warm pool"] = []
        warm()
        for _ in range(options.rounds):
            plain(CODE)()
            settle()
            began = time.perf_counter()
            warm()
            times["sandbox, warm pool"].append((time.perf_counter() - began) * 1e3)
        print(table(f"A fresh Python program: {CODE}", times, note=NOT_COMPARABLE))
        if peers.absent:
            print("Did not take part: " + "; ".join(peers.absent) + ".\n")
    print(throughput())
    print(cpu_work())


if __name__ == "__main__":
    main()
