"""The rows of ``bench_speed`` that compare our kernel with ipykernel. Cells take turns; each row is one ratio."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from benchmarks.kernel_client import NoAnswer, RunningKernel
from benchmarks.kernel_peers import REPOSITORY, Kernel, ipykernel
from benchmarks.speed_row import Row

SMALL = ("pass", "1+1", "print(1)")
BURST = 20
_PAUSE_S = 0.05
_PATIENCE_S = 120.0
#: What a notebook of a person who works with data has loaded.
HEAP = "import pandas, matplotlib.pyplot, sklearn"


def pair() -> tuple[Kernel, Kernel]:
    """Our kernel of this tree, and ipykernel of this interpreter."""
    ours = Kernel("sandbox", "", "python", REPOSITORY / "kernelspec" / "sandbox", {"PYTHONPATH": str(REPOSITORY)})
    return ours, ipykernel()


@contextmanager
def _both() -> Iterator[tuple[RunningKernel, RunningKernel]]:
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(closing(RunningKernel(kernel))) for kernel in pair())
        yield ours, theirs


def small_cells(rounds: int) -> list[Row]:
    """Cells that do nothing much, each after a pause, as a person sends them."""
    times: dict[tuple[str, int], list[float]] = {(code, who): [] for code in SMALL for who in (0, 1)}
    with _both() as kernels:
        for running in kernels:
            for _ in range(5):
                running.run("pass")
        for turn in range(rounds):
            for who in ((0, 1), (1, 0))[turn % 2]:
                for code in SMALL:
                    time.sleep(_PAUSE_S)
                    times[code, who].append(kernels[who].run(code).seconds)
    return [Row.ratio(f"kernel `{code}` ÷ ipykernel", times[code, 0], times[code, 1], goal=1.0) for code in SMALL]


def bursts(rounds: int) -> Row:
    """Cells without pauses, with libraries loaded."""
    goal, what = 1.3, f"{BURST} cells back to back, pandas, matplotlib, sklearn loaded ÷ ipykernel"
    times: tuple[list[float], list[float]] = ([], [])
    with _both() as kernels:
        for running in kernels:
            if running.run(HEAP, patience=_PATIENCE_S).reply["status"] != "ok":
                return Row.absent(what, goal, "pandas, matplotlib and sklearn are not all installed")
        for turn in range(rounds):
            for who in ((0, 1), (1, 0))[turn % 2]:
                time.sleep(0.5)
                began = time.perf_counter()
                for _ in range(BURST):
                    kernels[who].run("x = 1")
                times[who].append(time.perf_counter() - began)
    return Row.ratio(what, *times, goal=goal)


def starts(rounds: int) -> list[Row]:
    """From the start of the process to the reply to a first cell; and the memory of all processes some time after."""
    times: tuple[list[float], list[float]] = ([], [])
    memory: tuple[list[float], list[float]] = ([], [])
    kernels = pair()
    for turn in range(rounds):
        for who in ((0, 1), (1, 0))[turn % 2]:
            began = time.perf_counter()
            with closing(RunningKernel(kernels[who], settle=False)) as running:
                running.reply(running.execute("print(1)"), patience=_PATIENCE_S)
                times[who].append(time.perf_counter() - began)
                time.sleep(1.0)  # idle: spares are made, copies have settled
                memory[who].append(running.pss_bytes() / (1 << 20))
    return [
        Row.ratio("kernel start to first reply ÷ ipykernel", *times, goal=1.0),
        Row.ratio("idle kernel, PSS ÷ ipykernel", *memory, goal=1.3, unit="MB", scale=1.0),
    ]


def notebooks(folder: Path | None, rounds: int) -> Row:
    """Whole notebooks, start included."""
    what, goal = "public notebooks of 15 to 50 cells, start included ÷ ipykernel", 1.0
    if folder is None:
        return Row.absent(what, goal, "no notebooks were given; give a folder with --notebooks")
    codes = [cells for file in sorted(folder.glob("*.ipynb")) if 15 <= len(cells := _code(file)) <= 50]
    if not codes:
        return Row.absent(what, goal, f"{folder.name} has no notebook of 15 to 50 cells")
    kernels = pair()
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for cells in codes:
            for who in ((0, 1), (1, 0))[turn % 2]:
                times[who].append(_whole(kernels[who], cells))
    ratios = [ours / theirs for ours, theirs in zip(*times, strict=True)]
    return Row(what, f"{len(codes)} notebooks", f"{statistics.median(ratios):.2f}", goal)


def _code(file: Path) -> list[str]:
    cells = json.loads(file.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _whole(kernel: Kernel, cells: Sequence[str]) -> float:
    began = time.perf_counter()
    with closing(RunningKernel(kernel, settle=False)) as running:
        for code in cells:
            try:
                running.run(code, patience=_PATIENCE_S, stop_on_error=False)
            except NoAnswer:
                break
        return time.perf_counter() - began
