"""What does a cell of each language cost, against the same program without a sandbox?

    python -m benchmarks.bench_languages [--rounds 20]

Rows of a table come from one run and are measured in turns. A warm cell starts when the next sandbox is ready, as after
a user's pause between two cells. Compiled cells are measured twice: compiled in each round, against the same compiler
and program without a sandbox; and from the cache, against the program alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measure import interleaved, machine, table
from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.languages.node import find_node
from sandbox_kernel.languages.rust import find_rustc

Case = Callable[[], object]

PAUSE_S = 1.0

SCRIPTS = {
    "JavaScript": (Language.JAVASCRIPT, "console.log(6 * 7)"),
    "JavaScript, ES module": (Language.JAVASCRIPT, "import fs from 'node:fs'\nconsole.log(await 42)"),
    "TypeScript": (Language.TYPESCRIPT, "enum A { B = 42 }\nconst n: number = A.B\nconsole.log(n)"),
    "command": (Language.COMMAND, "echo 42"),
    "SQL": (Language.SQL, "select 6 * 7"),
}


@dataclass(frozen=True)
class Compiled:
    """A program, and the command that compiles it outside of a sandbox, with the same flags as in a cell."""

    language: Language
    name: str
    code: str
    argv: Sequence[str]


COMPILED = {
    "C": Compiled(
        Language.C, "cell.c", '#include <stdio.h>\nint main(void) { puts("42"); }\n',
        ["cc", "-std=gnu17", "-O1", "-Wall", "-Wextra", "-pthread", "-o", "cell", "cell.c", "-lm"],
    ),
    "C++": Compiled(
        Language.CPP, "cell.cpp", '#include <iostream>\nint main() { std::cout << "42\\n"; }\n',
        ["c++", "-std=gnu++20", "-O1", "-Wall", "-Wextra", "-pthread", "-o", "cell", "cell.cpp"],
    ),
    "Rust": Compiled(
        Language.RUST, "cell.rs", 'fn main() { println!("42"); }\n',
        ["rustc", "--edition", "2024", "--crate-name", "cell", "-C", "opt-level=1", "-C", "debug-assertions=on",
         "-C", "strip=debuginfo", "-o", "cell", "cell.rs"],
    ),
}  # fmt: skip


def plain(argv: Sequence[str], folder: str | None = None) -> Case:
    return lambda: subprocess.run(argv, check=True, capture_output=True, cwd=folder)


def cell(backend: ProcessBackend, language: Language, code: str) -> Case:
    request = ExecRequest(language=language, code=code, timeout=120)

    def run() -> None:
        result = backend.run(request)
        assert "42" in result.stdout, result

    return run


def settled(case: Case) -> float:
    """Measure one cell after a pause in which the next sandbox, and its Node.js if any, are made ready."""
    time.sleep(PAUSE_S)
    began = time.perf_counter()
    case()
    return (time.perf_counter() - began) * 1e3


def scripts(rounds: int) -> str:
    node, _ = find_node("node")
    backend = ProcessBackend(ProcessConfig())
    times: dict[str, list[float]] = {"plain node -e": []}
    outside = plain([node, "-e", "console.log(6 * 7)"])
    cases = {name: cell(backend, language, code) for name, (language, code) in SCRIPTS.items()}
    for turn in range(rounds + 1):
        times["plain node -e"] += interleaved({"node": outside}, 1)["node"]
        for name, case in cases.items():
            measured = settled(case)
            if turn:
                times.setdefault(name, []).append(measured)
    return table("Warm cells", times, note="The aim for JavaScript is 0.4 of a plain start of Node.js.")


def compiled(name: str, program: Compiled, rounds: int) -> str:
    fresh = ProcessBackend(ProcessConfig(cache_dir=""))
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, program.name), "w") as file:
            file.write(program.code)
        argv = list(program.argv)
        if program.language is Language.RUST:
            argv[0] = find_rustc("rustc").executable
        kept = ProcessBackend(ProcessConfig(cache_dir=os.path.join(folder, "cache")))
        jail = cell(kept, Language.COMMAND, "echo 42")

        def both() -> None:
            plain(argv, folder)()
            plain(["./cell"], folder)()

        rows: Mapping[str, Case] = {
            "compiler and program, plainly": both,
            "first cell": cell(fresh, program.language, program.code),
            "program, plainly": plain(["./cell"], folder),
            "cell from the cache": cell(kept, program.language, program.code),
            "an empty command cell (the jail's own cost)": jail,
        }
        both()
        times: dict[str, list[float]] = {row: [] for row in rows}
        for turn in range(rounds + 1):
            for row, case in rows.items():
                measured = settled(case)
                if turn:
                    times[row].append(measured)
    note = "Aims: a first cell within 1.15 of the compiler; a cached one within twice the program and the jail."
    return table(name, times, note=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    print(f"{machine()}\n")
    print(scripts(options.rounds))
    for name, program in COMPILED.items():
        print(compiled(name, program, options.rounds))


if __name__ == "__main__":
    main()
