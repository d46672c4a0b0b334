"""``sandbox-kernel lab``: open JupyterLab on a notebook."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

from sandbox_kernel.errors import BackendUnavailable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("notebook", nargs="?", help="the notebook or folder (the tour, if it is here)")


def execute(options: argparse.Namespace) -> NoReturn:
    """Replace this process by JupyterLab."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise BackendUnavailable("JupyterLab is not installed here; install it with: pip install jupyterlab")
    tour = Path("notebooks") / "tour.ipynb"
    target = options.notebook or (str(tour) if tour.exists() else ".")
    os.execv(sys.executable, [sys.executable, "-P", "-m", "jupyterlab", target])
