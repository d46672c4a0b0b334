"""How many programs a second go through the doors for many: ``map``, the HTTP server, an evaluator, an adapter?

    python -m benchmarks.bench_volume [--programs 100] [--at-once 8] [--rounds 3]

Every program prints one line in a sandbox of its own; the adapter's machine runs commands one after another in one
sandbox. The rows are measured in turns, so compare the ratios; the first row is Python without any wall.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from benchmarks.measure import interleaved, machine
from sandbox_kernel import Sandbox
from sandbox_kernel.evals import check_samples
from sandbox_kernel.integrations.machine import SandboxMachine

CODE = "print(1)"
TOKEN = "0123456789abcdef0123"
PROBLEM = {
    "task_id": "t/0",
    "prompt": "def add(a, b):\n",
    "entry_point": "add",
    "test": "def check(f):\n    assert f(2, 3) == 5\n",
}


@contextmanager
def server(at_once: int, waiting: int) -> Iterator[int]:
    """Start ``sandbox-kernel serve`` and yield its port."""
    words = ["serve", "--port", "0", "--workers", str(at_once), "--queue", str(waiting)]
    started = subprocess.Popen(
        [sys.executable, "-m", "sandbox_kernel", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SANDBOX_KERNEL_SERVE_TOKEN": TOKEN},
    )
    assert started.stderr is not None
    try:
        yield int(started.stderr.readline().split("/run_code")[0].rpartition(":")[2])
    finally:
        started.terminate()
        started.wait()
        started.stderr.close()


def ask(port: int) -> None:
    """Send one program to the server."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = json.dumps({"language": "python", "code": CODE})
    connection.request("POST", "/run_code", body, {"Authorization": f"Bearer {TOKEN}"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert answer["run_result"]["stdout"] == "1\n", answer


def rate_table(times: dict[str, list[float]], programs: int, at_once: int) -> str:
    """Return the rows as programs a second."""
    rows = [f"### {programs} programs, {at_once} at once: programs a second", ""]
    rows += ["| | median | best | × plain python3 |", "|---|---|---|---|"]
    rates = {name: sorted(programs / took * 1e3 for took in taken) for name, taken in times.items()}
    plain = rates["plain python3"][len(rates["plain python3"]) // 2]
    for name, found in rates.items():
        median = found[len(found) // 2]
        rows.append(f"| {name} | {median:.0f} | {found[-1]:.0f} | {median / plain:.2f} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    many, at_once = given.programs, given.at_once

    def spread(act: Callable[[], object]) -> None:
        with ThreadPoolExecutor(at_once) as pool:
            for done in [pool.submit(act) for _ in range(many)]:
                done.result()

    def evaluate() -> None:
        samples = [{"task_id": "t/0", "completion": f"    return a + b  # {number}"} for number in range(many)]
        results = check_samples({"t/0": PROBLEM}, samples, max_workers=at_once)
        assert all(result["passed"] for result in results)

    plain = [sys.executable, "-I", "-S", "-c", CODE]
    with Sandbox() as box, server(at_once, many) as port:
        agent = SandboxMachine()
        cases: dict[str, Callable[[], object]] = {
            "plain python3": lambda: spread(lambda: subprocess.run(plain, check=True, capture_output=True)),
            "box.map": lambda: box.map(CODE, [""] * many, max_workers=at_once),
            "sandbox-kernel serve": lambda: spread(lambda: ask(port)),
            "check_samples": evaluate,
            "a command of an adapter, one at a time": lambda: [agent.run("echo 1") for _ in range(many)],
        }
        try:
            times = interleaved(cases, given.rounds)
        finally:
            agent.close()
    print(machine(), "\n")
    print(rate_table(times, many, at_once))


if __name__ == "__main__":
    main()
