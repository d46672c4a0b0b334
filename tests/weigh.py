"""Puts the house on the scales: ``python -m tests.weigh`` prints lines and files of every room beside its budget.

A budget is a number in ``budgets.toml`` that a review may raise, with a reason in the commit. CI fails above it
(``tests/test_weight.py``), so that nothing grows without somebody noticing.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from functools import reduce
from operator import and_
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[1]
_RUN = """
import sys
from sandbox_kernel import Sandbox
calls = 0
def count(frame, event, _):
    global calls
    calls += event == 'call' and 'sandbox_kernel' in frame.f_code.co_filename
with Sandbox() as box:
    box.run('print(1)'), box.run('print(1)')
    counted = []
    for _ in range(150):  # the watch loop looks more often while others use the machine
        calls = 0
        sys.setprofile(count)
        box.run('print(1)')
        sys.setprofile(None)
        counted.append(calls)
print(sum(name.startswith('sandbox_kernel') for name in sys.modules), min(counted))
"""

#: A kernel that prints, for each cell, which of our functions it calls until its reply, on all threads, and how often.
_KERNEL = """
import sys, threading
calls, counts = {}, False
def count(frame, event, _):
    global calls, counts
    file, name = place = frame.f_code.co_filename, frame.f_code.co_qualname
    if event != 'call' or 'sandbox_kernel' not in file:
        return
    if name == 'RequestLoop._take' and not counts:
        calls, counts = {}, True
    if counts:
        calls[place] = calls.get(place, 0) + 1
    if name == 'RequestLoop.reply' and counts:
        counts = False
        if frame.f_locals['request'].kind == 'execute_request':
            print(calls, flush=True)
threading.setprofile(count)
sys.setprofile(count)
sys.argv = ['kernel', '-f', sys.argv[1]]
from sandbox_kernel.__main__ import main
main()
"""


def budgets() -> dict[str, int]:
    """Return the most that each row may weigh."""
    return {
        f"{kind}: {name}" if kind != "all" else name: most
        for kind, rows in tomllib.loads((ROOT / "budgets.toml").read_text()).items()
        for name, most in rows.items()
    }


def weights() -> dict[str, int]:
    """Return what each row weighs now, without running anything."""
    package, tests = _python("sandbox_kernel"), _python("tests")
    texts = {path: path.read_text() for path in package}
    lines: Counter[str] = Counter()
    for path, text in texts.items():
        parts = path.relative_to(ROOT / "sandbox_kernel").parts
        lines[parts[0] if len(parts) > 1 else "top"] += text.count("\n")
    glossary = (ROOT / "docs/glossary.md").read_text().splitlines()
    return {
        "lines": sum(lines.values()),
        "files": len(package),
        "folders": len({path.parent for path in package}),
        "modules with one importer": sum(len(found) == 1 for found in _importers(texts).values()),
        "lines of tests": sum(path.read_text().count("\n") for path in tests),
        "words of the glossary": sum(bool(re.match(r"\| \*\*", line)) for line in glossary),
        "words of docs": sum(len(path.read_text().split()) for path in _listed("docs/*.md")),
        "files of JavaScript": len(_listed("labextension/static/*.js")),
        **{f"room: {name}": count for name, count in lines.items()},
    }


def run_weights() -> dict[str, int]:
    """Return how many of our modules a plain run loads, and how many of our functions a warm one calls."""
    done = subprocess.run([sys.executable, "-c", _RUN], cwd=ROOT, capture_output=True, text=True, check=True)
    modules, calls = map(int, done.stdout.split())
    return {"modules of a run": modules, "calls of a run": calls, **_cell_weights()}


def _cell_weights() -> dict[str, int]:
    with tempfile.TemporaryFile("w+") as printed:
        manager = KernelManager()
        manager._kernel_spec = KernelSpec(argv=[sys.executable, "-P", "-c", _KERNEL, "{connection_file}"])
        manager.start_kernel(env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=printed)
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            for _ in range(12):
                time.sleep(0.3)
                client.execute_interactive("print(41)", timeout=60, output_hook=lambda _: None)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
        printed.seek(0)
        # The fewest of each function: what goes on between cells, or at a tick, is counted where it meets one.
        fewest = reduce(and_, (Counter(ast.literal_eval(line)) for line in printed))
    return {"calls of a cell": fewest.total(), "files of a cell": len({file for file, _ in fewest})}


def _listed(pattern: str) -> list[Path]:
    words = ["git", "ls-files", "-co", "--exclude-standard", pattern]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in found if name and (ROOT / name).exists()]


def _python(folder: str) -> list[Path]:
    return [path for path in _listed(f"{folder}/*.py") if path.suffix == ".py"]


def _importers(texts: dict[Path, str]) -> dict[str, set[Path]]:
    """Return who imports each module, as far as imports say so."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in texts if path.stem != "__init__"}
    found: dict[str, set[Path]] = defaultdict(set)
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            named: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                named = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
            elif isinstance(node, ast.Import):
                named = [each.name for each in node.names]
            for name in named:
                if name in names and names[name] != path:
                    found[name].add(path)
    return found


def main() -> None:
    """Print the table."""
    most = budgets()
    for name, weight in (weights() | run_weights()).items():
        print(f"{name:28}{weight:>8}{most.get(name, 0):>8}{'' if weight <= most.get(name, 0) else '  too much'}")


if __name__ == "__main__":
    main()
