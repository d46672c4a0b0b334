"""Compares a wrapped ipykernel with the bare one in one run: start, `pass`, 100 MB of output. Cells run in turns.

python -m benchmarks.bench_wrapped --rounds 100
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time

#: What is printed within 0.2 s is one message; a wrapped kernel's may have 64 MB (``MAX_MESSAGE``).
BIG = """import sys
for _ in range(10):
    sys.stdout.write(('x' * 999 + '\\n') * 10_000)
    sys.stdout.flush()"""
#: The issue's own bounds for the ratio of the medians.
BOUNDS = {"start": 1.5, "`pass`": 1.15, "100 MB of output": 1.5}


class _Kernel:
    """One kernel and its client."""

    def __init__(self, name: str) -> None:
        from jupyter_client.manager import KernelManager

        self.manager = KernelManager(kernel_name=name)
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code: str) -> int:
        """Run a cell until its idle message; returns how much it printed."""
        request = self.client.execute(code, allow_stdin=False)
        printed = 0
        while True:
            message = self.client.get_iopub_msg(timeout=300)
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "stream":
                printed += len(message["content"]["text"])
            if message["content"].get("execution_state") == "idle":
                break
        while self.client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") != request:
            pass
        return printed

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def timed(call: object, *args: object) -> float:
    begun = time.perf_counter()
    assert callable(call)
    call(*args)
    return time.perf_counter() - begun


def measure(rounds: int, starts: int) -> dict[str, dict[str, float]]:
    """Return the median of each case for both kernels, in seconds."""
    names = {"bare": "python3", "wrapped": "sandbox-python3"}
    found: dict[str, dict[str, list[float]]] = {case: {who: [] for who in names} for case in BOUNDS}
    kernels: dict[str, _Kernel] = {}
    for turn in range(starts):
        for who, name in names.items():
            begun = time.perf_counter()
            kernel = _Kernel(name)
            kernel.run("pass")
            found["start"][who].append(time.perf_counter() - begun)
            if turn < starts - 1:
                kernel.close()
            else:
                kernels[who] = kernel
    for _ in range(rounds):
        for who, kernel in kernels.items():
            found["`pass`"][who].append(timed(kernel.run, "pass"))
    for _ in range(3):
        for who, kernel in kernels.items():
            begun = time.perf_counter()
            printed = kernel.run(BIG)
            found["100 MB of output"][who].append(time.perf_counter() - begun)
            assert printed == 100_000_000, f"{who} lost output: {printed} of 100000000"
    for kernel in kernels.values():
        kernel.close()
    return {case: {who: statistics.median(times) for who, times in each.items()} for case, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-bench-") as folder:
        os.environ["JUPYTER_DATA_DIR"] = folder
        from sandbox_kernel.cli import main as command

        assert command(["wrap", "python3"]) == 0
        medians = measure(options.rounds, options.starts)
    print("| case | bare | wrapped | ratio | bound |\n|---|---|---|---|---|")
    for case, bound in BOUNDS.items():
        bare, wrapped = medians[case]["bare"], medians[case]["wrapped"]
        print(f"| {case} | {bare * 1000:.1f} ms | {wrapped * 1000:.1f} ms | {wrapped / bare:.2f} | {bound} |")


if __name__ == "__main__":
    main()
