"""How long does a fresh sandboxed program take, against the same program without a sandbox and in other sandboxes?

    python -m benchmarks.bench_start [--rounds 40] [--no-install]

All rows of a table come from one run, interleaved. Peers are found and installed by ``start_peers.py``.
"""

from __future__ import annotations

import argparse
import asyncio
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


def cpu_work() -> str:
    backend = ProcessBackend(ProcessConfig())
    rows = [
        "### CPU-bound work inside (seconds in the program itself, best of 7)",
        "",
        "| | plain | sandboxed | ÷ |",
        "|---|---|---|---|",
    ]
    for name, code in WORK.items():
        timed = f"import time\nb = time.perf_counter()\n{code}\nprint(time.perf_counter() - b)"
        inside, outside = [], []
        for _ in range(7):
            outside.append(float(subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True).stdout))
            inside.append(float(backend.run(ExecRequest(language=Language.PYTHON, code=timed, timeout=60)).stdout))
        rows.append(f"| {name} | {min(outside):.4f} | {min(inside):.4f} | {min(inside) / min(outside):.3f} |")
    return "\n".join(rows) + "\n"


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
    options = parser.parse_args()
    print(f"{machine()}\n")
    peers = find_peers(CODE, install=not options.no_install)
    with Sandbox() as box:
        # Nothing waits for the run but the template that it is forked from; and not even that, as for the first run.
        cold = ProcessBackend(ProcessConfig(pool_size=0))
        first = ProcessBackend(ProcessConfig(pool_size=0, templates=False))
        request = ExecRequest(language=Language.PYTHON, code=CODE, timeout=60)

        def warm() -> None:
            box.run(CODE, "python", timeout=60)

        def settle() -> None:
            # Off the clock: what a user does between two cells is when the next sandbox is made.
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
