"""Runs cells under Kishu, which commits each, and prints its times and sizes as JSON. Runs in Kishu's own Python.

python kishu_program.py CASES.json, with HOME set to an empty folder, where Kishu keeps its database.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def run_case(name: str, cells: list[str]) -> dict[str, Any]:
    """Run the cells of one notebook and check out states; milliseconds, bytes, and how often Kishu failed."""
    from IPython.core.interactiveshell import InteractiveShell
    from kishu.jupyterint import KishuForJupyter  # type: ignore[import-not-found]
    from kishu.notebook_id import NotebookId  # type: ignore[import-not-found]

    shell = InteractiveShell()
    path = Path.home() / f"{name}.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": []}))
    kishu = KishuForJupyter(NotebookId(key=name, path=path, kernel_id="none"), ip=shell)
    commits: list[float] = []
    failures: list[str] = []
    for hook in ("pre_run_cell", "post_run_cell"):
        setattr(kishu, hook, _timed(getattr(kishu, hook), commits, failures))
    kishu.install_kishu_hooks()
    raised = 0
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            raised += not shell.run_cell(cell, store_history=True).success
    each = [before + after for before, after in zip(commits[::2], commits[1::2], strict=False)]
    moves: list[float] = []
    for commit in (f"0:0:{max(1, len(cells) // 2)}", f"0:0:{len(cells)}"):
        began = time.perf_counter()
        try:
            kishu.checkout(commit, skip_notebook=True)
            moves.append((time.perf_counter() - began) * 1e3)
        except Exception as error:
            failures.append(f"checkout: {type(error).__name__}: {error}"[:200])
    size = os.path.getsize(kishu.database_path())
    return {"commits": each, "checkouts": moves, "bytes": size, "failures": failures, "raised": raised}


def _timed(hook: Any, times: list[float], failures: list[str]) -> Any:
    def run(argument: object) -> None:
        began = time.perf_counter()
        try:
            hook(argument)
        except Exception as error:
            failures.append(f"commit: {type(error).__name__}: {error}"[:200])
        times.append((time.perf_counter() - began) * 1e3)

    return run


def main() -> None:
    """Run every case in this process."""
    os.environ["ENV_KISHU_TEST_MODE"] = "1"  # commits are numbered, and no notebook is saved
    cases = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps({name: run_case(name, cells) for name, cells in cases.items()}))


if __name__ == "__main__":
    main()
