"""How long does a fresh sandboxed program take, against the same program without a sandbox and in other sandboxes?

    python -m benchmarks.bench_start [--rounds 40] [--peers]

All rows of a table come from one run, interleaved. Peers are used when they are found: bwrap and firejail on PATH,
sandlock and nono-py in this environment.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.measure import interleaved, machine, table
from sandbox_kernel import ExecRequest, Language, Limits, ProcessBackend, ProcessConfig, Sandbox

CODE = "print(1)"
WORK = {
    "fib(24)": "def f(n): return n if n < 2 else f(n-1) + f(n-2)\nf(24)",
    "loop 2e6": "x = 0\nfor i in range(2_000_000): x += i",
    "json": "import json\nd = {i: list(range(20)) for i in range(2000)}\nfor _ in range(9): json.loads(json.dumps(d))",
}


def plain(code: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env={})


def peers() -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {}
    binds = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent"]
    if shutil.which("bwrap"):
        found["plain bwrap --unshare-all"] = lambda: subprocess.run(
            ["bwrap", *binds, "--", sys.executable, "-c", CODE], check=True, capture_output=True
        )
    if shutil.which("firejail"):
        found["firejail"] = lambda: subprocess.run(
            ["firejail", "--quiet", "--net=none", "--noprofile", "--", sys.executable, "-c", CODE], check=True,
            capture_output=True,
        )  # fmt: skip
    if importlib.util.find_spec("sandlock"):
        from sandlock import Policy
        from sandlock import Sandbox as Sandlock

        policy = Policy(fs_readable=["/usr", "/lib", "/lib64", "/bin", "/etc", sys.prefix, sys.base_prefix])
        found["sandlock"] = lambda: Sandlock(policy).run([sys.executable, "-c", CODE])
    if importlib.util.find_spec("nono_py"):
        import nono_py

        caps = nono_py.CapabilitySet()
        for path in {"/usr", "/lib", "/bin", "/etc", sys.prefix, sys.base_prefix}:
            caps.allow_path(path, nono_py.AccessMode.READ)
        found["nono-py"] = lambda: nono_py.sandboxed_exec(caps, [sys.executable, "-c", CODE])
    return found


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


def streaming(megabytes: int = 2048) -> str:
    code = f"import sys\nb = 'x' * (1 << 20)\nfor _ in range({megabytes}): sys.stdout.write(b)"
    backend = ProcessBackend(ProcessConfig())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=120, limits=Limits()))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert result.stdout_bytes == megabytes << 20
    return (
        f"### Output\n\n{megabytes} MB printed: {megabytes / result.duration:.0f} MB/s, host memory +{grown:.0f} MB\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    print(f"{machine()}\n")
    with Sandbox() as box:
        cold = ProcessBackend(ProcessConfig(pool_size=0))
        request = ExecRequest(language=Language.PYTHON, code=CODE, timeout=60)

        def warm() -> None:
            box.run(CODE, "python", timeout=60)

        def settle() -> None:
            # Off the clock: what a user does between two cells is when the next sandbox is made.
            while box.backend._pool.spares() < 1:
                time.sleep(0.001)

        cases: dict[str, Callable[[], object]] = {
            "plain python3 -c": plain(CODE), "sandbox, cold": lambda: cold.run(request), **peers(),
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
        print(table(f"A fresh Python program: {CODE}", times))
    print(throughput())
    print(cpu_work())
    print(streaming())


if __name__ == "__main__":
    main()
