"""The results on docs/benchmarks.md: one line for each question, taken out of the long tables that benchmarks print."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.page_plots import find_table

#: What a benchmark's output says: ours, and what stands beside it.
Figures = tuple[str, str]
Find = Callable[[str], Figures | None]


@dataclass(frozen=True)
class Result:
    """One line of the page: the question, the benchmark that answers it, and where in its output the answer stands."""

    question: str
    section: str
    find: Find


def _cell(table: str, ours: str, peers: str = "", *, column: str = "median ms", beside: str = "") -> Find:
    """Look a cell up by its row and column; with it the same column of ``peers``, or the columns ``beside`` it.

    Several are separated by semicolons, and all are named by their first words. Where the second cell of a row belongs
    to its name, so it does here, after a dot.
    """

    def find(text: str) -> Figures | None:
        found = find_table(text, table)
        if found is None or column not in found.header:
            return None
        at = found.header.index(column)
        rows = {" · ".join(row): row for row in found.rows}

        def row(words: str) -> tuple[str, ...] | None:
            return next((rows[name] for name in rows if name.startswith(words)), None)

        own = row(ours)
        if own is None:
            return None
        others = [(words.partition(" · ")[2] or peer[0], peer[at]) for words in _split(peers) if (peer := row(words))]
        names = [name for name in found.header if _split(beside) and name.startswith(_split(beside))]
        others += [(name, own[found.header.index(name)]) for name in names]
        return own[at], ", ".join(f"{_plain(name)} {value}" for name, value in others)

    return find


def _split(words: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in words.split(";") if part)


def _goal(ours: str) -> Find:
    """Look a goal of the speed work up: its result, the figures and whether it is reached."""

    def find(text: str) -> Figures | None:
        found = find_table(text, "Every goal")
        row = next((row for row in found.rows if row[0].startswith(ours)), None) if found is not None else None
        return None if row is None else (row[2], f"{row[1]}; goal {row[3]}: {row[4]}")

    return find


def _line(pattern: str, shown: str, beside: str) -> Find:
    """Look for a pattern in the output; ``shown`` and ``beside`` say what to take from it."""

    def find(text: str) -> Figures | None:
        match = re.search(pattern, text, re.MULTILINE | re.DOTALL)
        return None if match is None else (match.expand(shown), match.expand(beside))

    return find


def _plain(name: str) -> str:
    """Return the name of a peer without its version and options."""
    return re.sub(r"^plain (?=\w+ |python)|^@[\w-]+/| --?[\w-]+.*$| \d[\d.]*$", "", re.sub(r" \d[\d.]+$", "", name))


_PEERS = "plain python3; plain bwrap; firejail; sandlock; nono-py; @anthropic"
_CAPTURED = _PEERS.replace("python3", "python3, captured")
_FRESH = "A fresh Python program"
_PLOTLY = "a Plotly cell, run until drawn"
_HASHED = r"^hash every file.*?one look +([\d.]+).*?^one look +([\d.]+)"
_FAULTS = r"^(\d+ of \d+) executions accounted for.*?slope (\S+ MB per 1000)"

RESULTS = (
    Result("a fresh `print(1)`, warm, ms", "start", _cell(_FRESH, "sandbox, warm", _PEERS)),
    Result("the same, without a template, ms", "start", _cell(_FRESH, "sandbox, cold, started", "plain python3")),
    Result("work that needs only CPU, s", "start", _cell("CPU-bound", "json", column="sandboxed", beside="plain")),
    Result("runs a second, 64 at once", "scaling", _cell("Many at once: ex", "64", column="sandbox", beside=_PEERS)),
    Result("kernel: `pass` ÷ ipykernel", "speed", _goal("kernel `pass`")),
    Result("kernel: `print(1)` ÷ ipykernel", "speed", _goal("kernel `print(1)`")),
    Result("kernel: 20 cells back to back, pandas loaded ÷ ipykernel", "speed", _goal("20 cells back to back")),
    Result("kernel: start to first reply ÷ ipykernel", "speed", _goal("kernel start")),
    Result("kernel: memory when idle ÷ ipykernel", "speed", _goal("idle kernel")),
    Result("whole public notebooks ÷ ipykernel", "speed", _goal("public notebooks")),
    Result("rollback after a timeout, small heap", "speed", _goal("rollback beyond the limit, small")),
    Result("a warm fresh run ÷ python3", "speed", _goal("warm fresh")),
    Result("the first run of a process ÷ python3", "speed", _goal("first run")),
    Result("the command line, `run -c` ÷ python3", "speed", _goal("`sandbox-kernel run")),
    Result("CPU of the host for a fresh run", "speed", _goal("CPU of the host")),
    Result("runs a second, 16 at once", "speed", _goal("runs a second")),
    Result("kernel: 10 MB of output", "kernel", _cell("", "sandbox", "ipykernel; deno; ba", column="10 MB of output")),
    Result("a cell of a Python session, ms", "session", _cell("A cell that does", "python session", "ipykernel")),
    Result("checkpoint of a heap of 1 GB, ms", "scaling", _cell("Heaps", "1000", column="checkpoint", beside="plain")),
    Result("memory of an idle sandbox, MB", "memory", _cell("Idle", "sandbox: with", "ipykernel", column="PSS, MB")),
    Result("a JavaScript cell, ms", "languages", _cell("Warm cells", "JavaScript", "plain node")),
    Result("a Rust cell, first, ms", "languages", _cell("Rust", "first cell", "compiler")),
    Result("a Rust cell, from the cache, ms", "languages", _cell("Rust", "cell from", "program,")),
    Result("a fresh run on a folder of 20 000 files, ms", "here", _cell("Warm fresh run", "here", "plain")),
    Result("changes in 10 000 files, ms", "diff", _line(_HASHED, r"\2", r"hash every file \1")),
    Result("512 MB printed, MB/s", "output", _cell("512 MB", "sandbox", _CAPTURED, column="MB/s")),
    Result("checking the worst output of 1 MB", "cleaning", _line(r"The slowest takes (\d+ ms)", r"\1", "aim 0.3 s")),
    Result("one request through the proxy, ms", "network", _cell("One request", "proxy, plain", "direct")),
    Result("200 MB through the proxy, MB/s", "network", _cell("One answer", "proxy, plain", "direct", column="MB/s")),
    Result("a Plotly cell, ms", "frames", _cell("", f"{_PLOTLY} · Sandbox", f"{_PLOTLY} · ipykernel")),
    Result("the measured report, ms", "report", _cell("The report", "the command, measured anew")),
    Result("a call of a host function, ms", "functions", _cell("One call", "Python, a run: nothing", "one byte")),
    Result("programs a second, `box.map`", "volume", _cell("", "box.map", "plain python3", column="median")),
    Result("a call of the agent's tool, 8 at once, ms", "agent", _cell("200 tool", "SandboxTool", "plain python3")),
    Result("a fresh Python in WebAssembly, ms", "wasm", _cell("A fresh program", "python (light)", "python3")),
    Result("`s.fork()` in WebAssembly, ms", "wasm", _cell("Sessions (Python", "`s.fork()`", column="ms")),
    Result("a wrapped ipykernel: start", "wrapped", _cell("", "start", column="wrapped", beside="bare")),
    Result("a wrapped ipykernel: `pass`", "wrapped", _cell("", "`pass`", column="wrapped", beside="bare")),
    Result("commit of a 100 MB frame, ms, ours / Kishu", "kishu", _cell("", "100 MB frame, a new",
           column="commit ms, ours / Kishu", beside="checkout; all states")),
    Result("cells with random deaths", "soak_sessions", _line(r"python: (\d+ cells)[^\n]*, ([^\n]*)$", r"\1", r"\2")),
    Result("executions under faults", "soak_executions", _line(_FAULTS, r"\1", r"memory of the host \2")),
)  # fmt: skip

HEAD = ("question", "ours", "beside it", "printed by", "when, where")


def result_rows(page: str, printed: Mapping[str, str]) -> list[list[str]]:
    """Return the lines of the page: anew for benchmarks whose output is given, and the others as they stand."""
    kept = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if line.startswith("| ")
    ]
    known = {row[0]: row for row in kept}
    rows = []
    for result in RESULTS:
        figures = result.find(printed[result.section]) if result.section in printed else None
        if figures is not None:
            date, _, machine = printed[result.section].splitlines()[0].partition(" · ")
            where = re.sub(r" \(.*", "", ", ".join(machine.split(", ")[:2]))
            rows.append([result.question, *figures, f"`{result.section}`", f"{date}, {where}"])
        elif result.question in known:
            rows.append(known[result.question])
    return rows
