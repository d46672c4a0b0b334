"""How many tool calls can an agent make, and what does each layer above a bare process cost?

    python -m benchmarks.bench_agent [--calls 200] [--concurrency 8] [--rounds 3] [--mcp]

Every call is a fresh run that prints one line. Rows are measured in turns, so that load on the machine affects all of
them; compare the ratios. ``--mcp`` adds the same calls through the MCP server on standard input and output, in a
separate process.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from benchmarks.measure import machine, table
from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig, SandboxTool

CODE = "print(1)"
ARGS = {"language": "python", "code": CODE}

Act = Callable[[], Awaitable[str]]


async def plain() -> str:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CODE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}
    )
    out, _ = await child.communicate()
    return out.decode()


async def mcp_act(stack: AsyncExitStack) -> Act:
    from mcp import Client, StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "sandbox_kernel", "mcp"], env={"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    client = await stack.enter_async_context(Client(stdio_client(server)))
    await client.list_tools()

    async def act() -> str:
        result = await client.call_tool("sandbox_exec", dict(ARGS))
        return str(result.structured_content["stdout"])

    return act


async def burst(act: Act, calls: int, concurrency: int) -> tuple[list[float], float]:
    """Return the milliseconds of each call, and the calls per second of all calls."""
    gate = asyncio.Semaphore(concurrency)
    times: list[float] = []

    async def one() -> None:
        async with gate:
            began = time.perf_counter()
            assert await act() == "1\n"
            times.append((time.perf_counter() - began) * 1e3)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(calls)))
    return times, calls / (time.perf_counter() - began)


async def measure(options: argparse.Namespace) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=options.pool))
    tool = SandboxTool(backend)

    async def run_backend() -> str:
        return (await backend.execute(ExecRequest(language=Language.PYTHON, code=CODE, timeout=60))).stdout

    async def call_tool() -> str:
        return str((await tool.execute(ARGS))["stdout"])

    async with AsyncExitStack() as stack:
        acts: dict[str, Act] = {"plain python3 -c": plain, "backend.execute": run_backend, "SandboxTool": call_tool}
        if options.mcp:
            if importlib.util.find_spec("mcp") is None:
                raise SystemExit("--mcp needs the SDK: pip install 'mcp>=2'")
            acts["MCP over stdio"] = await mcp_act(stack)
        times: dict[str, list[float]] = {name: [] for name in acts}
        rates: dict[str, list[float]] = {name: [] for name in acts}
        for act in acts.values():
            await act()
        for _ in range(options.rounds):
            for name, act in acts.items():
                taken, rate = await burst(act, options.calls, options.concurrency)
                times[name] += taken
                rates[name].append(rate)
    said = ", ".join(f"{name} {statistics.median(found):.0f}" for name, found in rates.items())
    title = f"{options.calls} tool calls at concurrency {options.concurrency}, each a fresh sandbox: {CODE}"
    print(table(title, times, note=f"Calls per second (median of {options.rounds} rounds): {said}."))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pool", type=int, default=ProcessConfig().pool_size, help="spare sandboxes kept ready")
    parser.add_argument("--mcp", action="store_true")
    options = parser.parse_args()
    print(f"{machine()}\n")
    asyncio.run(measure(options))


if __name__ == "__main__":
    main()
