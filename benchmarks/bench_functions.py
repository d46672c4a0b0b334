"""What does a call of a host function cost, from each language and place?

    python -m benchmarks.bench_functions [--calls 200] [--rounds 5] [--no-wasm]

Every row is one round trip, timed inside by the caller: the mean of a round's calls. The rows are measured in turns, so
compare the ratios: the first row is the least that any such call can cost here, one byte there and back between two
processes. The shell starts a process for each call; its row stands beside ``/bin/true``, which does nothing else. What
this machine cannot run is named below the table.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.measure import machine, table
from sandbox_kernel import FunctionLimits, Sandbox
from sandbox_kernel.errors import SandboxError

PYTHON = """
import time
from host import nothing, search, data
def measure(call, calls):
    call()
    began = time.perf_counter()
    for _ in range(calls): call()
    print((time.perf_counter() - began) / calls * 1e3)
measure(nothing, {calls})
measure(lambda: search("boats", limit=10), {calls})
measure(lambda: data(bytes(100_000)), {few})
"""
JAVASCRIPT = """
function measure(call, calls) {{
  call();
  const began = performance.now();
  for (let turn = 0; turn < calls; turn++) call();
  console.log((performance.now() - began) / calls);
}}
measure(() => host.nothing(), {calls});
measure(() => host.search("boats", {{limit: 10}}), {calls});
measure(() => host.data(new Uint8Array(100000)), {few});
"""
SHELL = """
began=$(date +%s%N); for turn in 1 2 3 4 5; do host nothing; done; ended=$(date +%s%N)
echo $(( (ended - began) / 5000 )) | sed 's/...$/.&/'
began=$(date +%s%N); for turn in 1 2 3 4 5; do /bin/true; done; ended=$(date +%s%N)
echo $(( (ended - began) / 5000 )) | sed 's/...$/.&/'
"""
THREE = ("nothing()", "search() → 10 rows", "100 KB of bytes and back")
TWO = ("host nothing", "/bin/true, for comparison")
#: Place, language, program and what its lines mean.
DOORS = (
    ("Python", "python", PYTHON, THREE),
    ("JavaScript", "javascript", JAVASCRIPT, THREE),
    ("Shell", "command", SHELL, TWO),
)


ECHO = "import socket, sys; end = socket.socket(fileno=int(sys.argv[1]))\nwhile end.recv(1): end.send(b'x')"


def echo(calls: int) -> float:
    """Return the milliseconds of one byte to another process and back."""
    ours, theirs = socket.socketpair()
    program = [sys.executable, "-c", ECHO, str(theirs.fileno())]
    with subprocess.Popen(program, pass_fds=[theirs.fileno()]), ours:
        theirs.close()
        ours.send(b"x")
        ours.recv(1)
        began = time.perf_counter()
        for _ in range(calls):
            ours.send(b"x")
            ours.recv(1)
        took = (time.perf_counter() - began) / calls * 1e3
        ours.shutdown(socket.SHUT_RDWR)
    return took


def search(query: str, limit: int = 10) -> list[dict[str, object]]:
    return [{"title": query, "number": number} for number in range(limit)]


def open_doors(
    stack: contextlib.ExitStack, calls: int, *, wasm: bool
) -> tuple[dict[str, Callable[[], str]], list[str]]:
    """Return a program for each place that this machine has, and why it lacks the others."""
    functions = {"nothing": lambda: None, "search": search, "data": lambda raw: raw}
    limits = FunctionLimits(calls=10_000_000, seconds=600, bytes=1 << 30)
    found: dict[str, Callable[[], str]] = {}
    absent: list[str] = []
    for backend in ("process", "wasm") if wasm else ("process",):
        inside = " inside WebAssembly" if backend == "wasm" else ""
        try:
            box = stack.enter_context(Sandbox(backend=backend, functions=functions, function_limits=limits))
        except SandboxError as error:
            absent.append(f"{backend}: {str(error).splitlines()[0][:160]}")
            continue
        for name, language, program, _ in DOORS[: 2 if inside else 3]:
            code = program.format(calls=calls, few=max(5, calls // 10)) if program is not SHELL else program

            def run(box: Sandbox = box, code: str = code, language: str = language) -> str:
                return box.run(code, language, timeout=300).raise_for_status().stdout

            try:
                session = stack.enter_context(box.session(language))
                session.run("1" if language != "command" else ":")
                run()
            except SandboxError as error:
                absent.append(f"{name}{inside}: {str(error).splitlines()[0][:160]}")
                continue
            found[f"{name}, a run{inside}"] = run
            found[f"{name}, a session{inside}"] = lambda session=session, code=code: (  # type: ignore[misc]
                session.run(code, timeout=300).raise_for_status().stdout
            )
    return found, absent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-wasm", action="store_true", help="leave out WebAssembly")
    given = parser.parse_args()
    least = "one byte there and back"
    times: dict[str, list[float]] = {least: []}
    with contextlib.ExitStack() as stack:
        doors, absent = open_doors(stack, given.calls, wasm=not given.no_wasm)
        for _ in range(given.rounds):
            times[least].append(echo(given.calls))
            for place, run in doors.items():
                said = run().split()
                for name, took in zip(THREE if len(said) == 3 else TWO, said, strict=True):
                    times.setdefault(f"{place}: {name}", []).append(float(took))
    print(machine(), "\n")
    print(table("One call of a host function", times))
    if absent:
        print(f"Not here: {'; '.join(absent)}.")


if __name__ == "__main__":
    main()
