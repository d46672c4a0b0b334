"""A tree of states beside Kishu's, on the same cells in one run: commit, checkout and size.

    python -m benchmarks.bench_kishu --kishu PYTHON [--notebooks FOLDER] [--rounds N] [--write FILE]

PYTHON is an interpreter with ``kishu``, numpy, pandas, scikit-learn and matplotlib from the registry. FOLDER holds
notebooks of Kishu's own tests (``kishu/tests/notebooks`` of its repository); without it only our cases are run.
Each case runs once here and once there in every round.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkpoint_cost import settle
from benchmarks.markdown_section import table
from benchmarks.measure import machine
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.jail.accounting.processes import proportional_bytes, tree
from sandbox_kernel.session.open_session import open_session

#: The notebooks of Kishu's tests that need neither network nor files, nor Kishu itself.
NOTEBOOKS = (
    "simple",
    "numpy",
    "test_unserializable_var",
    "nbexec_test_case_1",
    "nbexec_test_case_2",
    "nbexec_test_case_3",
    "04_training_linear_models",
)
#: How many states with pandas loaded are held at once, and what may be held beyond the live one.
HELD, HELD_MB = 50, 150
_FRAME = "import numpy as np, pandas as pd\ndf = pd.DataFrame(np.random.rand(1_250_000, 10))"
OUR_CASES = {
    "small variables": [f"x{n} = {n}" for n in range(20)],
    "100 MB frame, small changes": [_FRAME, *(f"x{n} = {n}" for n in range(10))],
    "100 MB frame, a new column each": [_FRAME, *(f"df['c{n}'] = {n}.0" for n in range(10))],
    "a generator": ["lines = (n for n in range(100))", *("next(lines)" for _ in range(10))],
}
#: How long Kishu may take for one case, and our session for one cell.
KISHU_S, CELL_S = 600, 120
_PROGRAM = Path(__file__).parent / "kishu_program.py"


@dataclass(frozen=True)
class TreeCost:
    """Milliseconds of each commit and checkout, bytes of all states beside the live one, and what went wrong."""

    commits: list[float]
    checkouts: list[float]
    size: int
    failures: list[str]
    #: How many cells raised an exception: the same on both sides, or they were not run alike.
    raised: int = 0


def own_cost(cells: list[str]) -> TreeCost:
    """Run the cells in a session that keeps a state after each."""
    commits: list[float] = []
    checkouts: list[float] = []
    failures: list[str] = []
    raised = 0
    with open_session(ProcessBackend(), memory_mb=8000, checkpoints=60) as session:
        for cell in cells:
            result = session.run(cell, timeout=CELL_S)
            raised += not result.ok
            if result.rolled_back:
                failures.append(f"a cell was rolled back: {result.notes}"[:200])
            commits.append(settle(session))
        held = session.history()
        size = sum(node.memory_bytes or 0 for node in held if node.alive)
        for node in (held[len(held) // 2], held[-1]):
            began = time.perf_counter()
            session.checkout(node)
            checkouts.append((time.perf_counter() - began) * 1e3)
    return TreeCost(commits, checkouts, size, failures, raised)


def held_mb(count: int = HELD) -> float:
    """Return the megabytes that this many states with pandas loaded hold beyond the live session."""
    with open_session(ProcessBackend(), memory_mb=8000, checkpoints=60) as session:
        made = session.run("import numpy as np, pandas as pd\ndf = pd.DataFrame({'a': range(1000)})", timeout=CELL_S)
        if not made.ok:
            raise SystemExit(f"pandas is not installed: {made.error}")
        settle(session)
        worker = session._supervisor.live
        assert worker is not None
        before = proportional_bytes(tree(worker.jail.init_pid))
        for number in range(count):
            session.run(f"x{number} = {number}")
            settle(session)
        return (proportional_bytes(tree(worker.jail.init_pid)) - before) / 1e6


def kishu_cost(python: str, cells: list[str]) -> TreeCost:
    """Run the same cells under Kishu, in a Python that has it."""
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "cases.json"
        order.write_text(json.dumps({"case": cells}))
        env = {"HOME": folder, "MPLBACKEND": "agg", "PATH": "/usr/bin:/bin"}
        argv = [python, str(_PROGRAM), str(order)]
        try:
            done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=KISHU_S)
            cost = json.loads(done.stdout.splitlines()[-1])["case"]
        except subprocess.TimeoutExpired:
            return TreeCost([], [], 0, [f"it did not end within {KISHU_S} s"])
        except (IndexError, ValueError):
            return TreeCost([], [], 0, [f"it ended with {done.returncode}: {done.stderr[-200:]}"])
    return TreeCost(cost["commits"], cost["checkouts"], cost["bytes"], cost["failures"], cost["raised"])


def cells_of(notebook: Path) -> list[str]:
    """Return the code cells of a notebook."""
    cells = json.loads(notebook.read_text())["cells"]
    return [
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code" and "".join(cell["source"]).strip()
    ]


def together(rounds: list[TreeCost]) -> TreeCost:
    """Return what several rounds of one case cost: all times, the median size, every failure."""
    return TreeCost(
        [one for cost in rounds for one in cost.commits],
        [one for cost in rounds for one in cost.checkouts],
        int(statistics.median(cost.size for cost in rounds)),
        [one for cost in rounds for one in cost.failures],
        max(cost.raised for cost in rounds),
    )


def rows(ours: dict[str, TreeCost], kishu: dict[str, TreeCost]) -> list[list[str]]:
    """Return one row for each case: median commit, median checkout and total size of both."""

    def words(values: list[float]) -> str:
        return f"{statistics.median(values):.1f}" if values else "failed"

    found = []
    for name, own in ours.items():
        other = kishu[name]
        wrong = f", {len(other.failures)} failed" if other.failures else ""
        mine = f", {len(own.failures)} failed" if own.failures else ""
        unlike = f" ({own.raised} and {other.raised} cells raised)" if own.raised != other.raised else ""
        found.append(
            [
                f"{name}{unlike}",
                f"{words(own.commits)}{mine} / {words(other.commits)}{wrong}",
                f"{words(own.checkouts)} / {words(other.checkouts)}",
                f"{own.size / 1e6:.1f} / {other.size / 1e6:.1f}",
            ]
        )
    return found


def rollbacks() -> list[float]:
    """Return the milliseconds of each undo in a session with a small heap."""
    times: list[float] = []
    with open_session(ProcessBackend(), checkpoints=5) as session:
        for number in range(15):
            session.run(f"x = {number}")
            settle(session)
            began = time.perf_counter()
            session.undo()
            times.append((time.perf_counter() - began) * 1e3)
            settle(session)
    return times


def main() -> None:
    """Measure and print, or write into a file, from which ``python -m benchmarks --write`` takes its line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kishu", required=True)
    parser.add_argument("--notebooks", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    cases = dict(OUR_CASES)
    if asked.notebooks is not None:
        cases |= {f"Kishu's {name}": cells_of(asked.notebooks / f"{name}.ipynb") for name in NOTEBOOKS}
    own: dict[str, list[TreeCost]] = {name: [] for name in cases}
    other: dict[str, list[TreeCost]] = {name: [] for name in cases}
    undo: list[float] = []
    for _ in range(asked.rounds):
        for name, cells in cases.items():
            own[name].append(own_cost(cells))
            other[name].append(kishu_cost(asked.kishu, cells))
            print(" | ".join(rows({name: own[name][-1]}, {name: other[name][-1]})[0]), flush=True)
        undo += rollbacks()
    ours = {name: together(costs) for name, costs in own.items()}
    kishu = {name: together(costs) for name, costs in other.items()}
    header = ["cells", "commit ms, ours / Kishu", "checkout ms, ours / Kishu", "all states MB, ours / Kishu"]
    text = (
        f"{datetime.date.today().isoformat()} · {machine()}\n\n{table(header, rows(ours, kishu))}\n\n"
        f"{asked.rounds} rounds. Undo with a small heap: {statistics.median(undo):.1f} ms, at best {min(undo):.1f} "
        f"(of {len(undo)}). {HELD} states with pandas loaded hold "
        f"{held_mb():.0f} MB beyond the live session (goal: {HELD_MB})."
    )
    if asked.write is None:
        print(text)
    else:
        asked.write.write_text(text)
    for side, costs in (("Kishu", kishu), ("ours", ours)):
        for name, cost in costs.items():
            for failure in cost.failures[:3]:
                print(f"{side}, {name}: {failure}")


if __name__ == "__main__":
    main()
