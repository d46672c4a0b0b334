"""What does a cell of a session cost, with its checkpoint, and how fast is a rollback?

    python -m benchmarks.bench_session [--rounds 100] [--no-ipykernel]

Rows of a table come from one run and are measured in turns. ipykernel runs as for users: as a kernel process, over the
Jupyter protocol, without a sandbox.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.checkpoint_cost import checkpoint_cost, heap_of, settle
from benchmarks.measure import interleaved, machine, table
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig, shared_pool
from sandbox_kernel.jail.accounting.processes import proportional_bytes, tree
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session

_MB = 1 << 20
HEAPS = {
    "10 MB": heap_of(10),
    "100 MB": heap_of(100),
    "1 GB": heap_of(1024),
    "1 GB numpy array": "import numpy as np; a = np.ones(1 << 27)",
    "1 GB of small objects": "a = [(i, str(i)) for i in range(7_500_000)]",
}


@contextlib.contextmanager
def ipykernel_pass() -> Iterator[Callable[[], object]]:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    try:
        yield lambda: client.execute_interactive("pass", timeout=60)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def cells(backend: ProcessBackend, rounds: int, *, with_ipykernel: bool) -> str:
    with contextlib.ExitStack() as stack:

        def opened(language: str = "python", checkpoints: int = 5) -> Session:
            return stack.enter_context(open_session(backend, language, checkpoints=checkpoints))

        cases: dict[str, Callable[[], object]] = {}
        if with_ipykernel:
            cases["ipykernel"] = stack.enter_context(ipykernel_pass())
        python, bare, javascript, command = opened(), opened(checkpoints=0), opened("javascript"), opened("command")
        cases |= {
            "python session": lambda: python.run("pass"),
            "python session, no checkpoints": lambda: bare.run("pass"),
            "javascript session": lambda: javascript.run("1"),
            "command session": lambda: command.run(":"),
        }
        return table("A cell that does nothing, checkpoint included", interleaved(cases, rounds))


def checkpoints(backend: ProcessBackend, rounds: int) -> str:
    rows = [
        "### A checkpoint, by the size of the heap (off the user's path: after the reply, before the next cell)",
        "",
        "| heap | fork, median ms | min ms | next cell, median ms | rollback, median ms |",
        "|---|---|---|---|---|",
    ]
    for name, code in HEAPS.items():
        cost, middle = checkpoint_cost(backend, code, rounds), statistics.median
        rows.append(
            f"| {name} | {middle(cost.forks):.1f} | {min(cost.forks):.1f} | {middle(cost.nexts):.1f} | "
            f"{middle(cost.backs):.1f} |"
        )
    return "\n".join(rows) + "\n"


def rollback(backend: ProcessBackend, rounds: int) -> str:
    limit = 0.2
    times: dict[str, list[float]] = {}
    for language, endless in (
        ("python", "while True: pass"),
        ("javascript", "while (true);"),
        ("command", "while :; do :; done"),
    ):
        with open_session(backend, language) as session:
            session.run("x = 1" if language != "command" else "x=1")
            found = times.setdefault(language, [])
            for _ in range(rounds):
                began = time.perf_counter()
                assert session.run(endless, timeout=limit).rolled_back
                found.append((time.perf_counter() - began - limit) * 1e3)
    return table("Rollback after a timeout: milliseconds beyond the limit, until the session is as it was", times)


def starts(rounds: int) -> str:
    warm, cold = ProcessBackend(ProcessConfig()), ProcessBackend(ProcessConfig(pool_size=0, templates=False))
    times: dict[str, list[float]] = {}
    for language in ("python", "command", "javascript"):
        for _ in range(2):  # spares are made from the second session on
            open_session(warm, language).close()
        for name, backend in (("warm", warm), ("cold", cold)):
            found = times.setdefault(f"{language}, {name}", [])
            for _ in range(rounds):
                pool = shared_pool(backend.config.pool_size)
                while name == "warm" and pool.spares() < 2:
                    time.sleep(0.01)
                began = time.perf_counter()
                session = open_session(backend, language)
                found.append((time.perf_counter() - began) * 1e3)
                session.close()
    return table("Opening a session, from a waiting sandbox and from nothing", times)


def memory(backend: ProcessBackend) -> str:
    rows = ["### Memory of an idle session (proportional set size)", "", "| | MB |", "|---|---|"]
    for language, code in (("python", "x = 1"), ("javascript", "let x = 1"), ("command", "x=1")):
        for count in (0, 5):
            with open_session(backend, language, checkpoints=count) as session:
                for _ in range(6):
                    session.run(code)
                settle(session)
                live = session._supervisor.live
                assert live is not None
                held = proportional_bytes(tree(live.jail.init_pid)) / _MB
            rows.append(f"| {language}, {count or 'no'} checkpoints | {held:.1f} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--no-ipykernel", action="store_true")
    options = parser.parse_args()
    backend = ProcessBackend()
    print(f"{machine()}\n")
    print(cells(backend, options.rounds, with_ipykernel=not options.no_ipykernel))
    print(rollback(backend, max(5, options.rounds // 10)))
    print(starts(max(5, options.rounds // 10)))
    print(checkpoints(backend, max(5, options.rounds // 10)))
    print(memory(backend))


if __name__ == "__main__":
    main()
