"""What does a call of a host function cost?

    python -m benchmarks.bench_functions [--calls 300] [--rounds 5]

Every row is one round trip, timed inside by the caller. The rows are measured in turns, so compare the ratios: the
first row is the least that any such call can cost here, one byte there and back between two processes.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import time

from benchmarks.measure import machine, table
from sandbox_kernel import FunctionLimits, Sandbox

INSIDE = """
import time
from host import nothing, search, data
def measure(call):
    call()
    began = time.perf_counter()
    for _ in range({calls}): call()
    return (time.perf_counter() - began) / {calls} * 1e3
print(measure(nothing), measure(lambda: search("boats", limit=10)), measure(lambda: data(bytes(100_000))))
"""
NAMES = ("nothing()", "search() → 10 rows", "100 KB of bytes and back")


def echo(calls: int) -> float:
    """Return the milliseconds of one byte to another process and back."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        while theirs.recv(1):
            theirs.send(b"x")
        os._exit(0)
    theirs.close()
    with ours:
        began = time.perf_counter()
        for _ in range(calls):
            ours.send(b"x")
            ours.recv(1)
        took = (time.perf_counter() - began) / calls * 1e3
    os.waitpid(child, 0)
    return took


def search(query: str, limit: int = 10) -> list[dict[str, object]]:
    return [{"title": query, "number": number} for number in range(limit)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    functions = {"nothing": lambda: None, "search": search, "data": lambda raw: raw}
    limits = FunctionLimits(calls=10_000_000, seconds=600, bytes=1 << 30)
    times: dict[str, list[float]] = {"one byte there and back": [], **{name: [] for name in NAMES}}
    sessions: dict[str, list[float]] = {name: [] for name in NAMES}
    wasm: dict[str, list[float]] = {name: [] for name in NAMES}
    with (
        Sandbox(functions=functions, function_limits=limits) as box,
        box.session() as session,
        Sandbox(backend="wasm", functions=functions, function_limits=limits) as guest,
    ):
        code = INSIDE.format(calls=given.calls)
        for _ in range(given.rounds):
            times["one byte there and back"].append(echo(given.calls))
            runs = (box.run(code, timeout=300), session.run(code, timeout=300), guest.run(code, timeout=300))
            for kept, result in zip((times, sessions, wasm), runs, strict=True):
                for name, took in zip(NAMES, result.raise_for_status().stdout.split(), strict=True):
                    kept[name].append(float(took))
    print(machine(), "\n")
    print(table("One call of a host function, from a Python run", times))
    for place, kept in (("a session", sessions), ("Python inside WebAssembly", wasm)):
        rows = [f"{name} {statistics.median(took):.2f} ms ({min(took):.2f} at best)" for name, took in kept.items()]
        print(f"From {place}: {', '.join(rows)}.")


if __name__ == "__main__":
    main()
