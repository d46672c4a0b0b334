"""``install`` writes the kernelspec, ``lab`` opens JupyterLab, ``prepare`` makes languages inside WebAssembly ready."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.commands.shared import add_option, add_place_options, show_bar
from sandbox_kernel.errors import BackendUnavailable, install_line
from sandbox_kernel.model import Language
from sandbox_kernel.notebook import kernelspec
from sandbox_kernel.notebook.options.cell_options import policy_of
from sandbox_kernel.notebook.options.option_table import OF_INSTALL
from sandbox_kernel.notebook.options.parse_cell import parse_options
from sandbox_kernel.policy import PRESETS

#: The name for Python sessions in WebAssembly, with numpy and pandas.
SCIENCE = "science"
#: What ``install`` says of options for new notebooks. Two policies are refused below, and not the first one ignored.
_AS_IN_A_CELL = {"action": "append", "default": [], "help": "as %%sandbox, for new notebooks"}
_OTHER_WORDS: dict[str, dict[str, object]] = {
    "--memory": {"type": str, "metavar": "4G", "help": "memory of cells of new notebooks, also in batch runs"},
    "--timeout": {"type": str, "metavar": "30m", "help": "time of a cell of new notebooks, also in batch runs"},
    "--here": {
        "metavar": "DIR", "help": "cells of new notebooks work on this folder (the notebook's own), copy-on-write"
    },
    "--gpu": {"help": "cells of new notebooks may use accelerators: all, or numbers like 0,1"},
}  # fmt: skip


def add_install_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``install``."""
    add_place_options(parser)
    parser.add_argument("--name", default="sandbox", help="the kernel's name (sandbox)")
    parser.add_argument("--display-name", default="Sandbox", help="the name in the launcher (Sandbox)")
    for option in OF_INSTALL:
        add_option(parser, option.name, **_OTHER_WORDS.get(option.name, _AS_IN_A_CELL))
    parser.add_argument(
        "--lines", choices=("ask", "limits", "locked", "all"),
        help="who gives rights that %%sandbox lines ask for: the user, who is asked (ask, the default); the user, in "
        "the side panel only (limits); nobody while the kernel runs (locked, for agents); the lines themselves (all)",
    )  # fmt: skip


def install(options: argparse.Namespace) -> int:
    """Check the options of new notebooks, and write the kernelspec."""
    words = []
    for option in OF_INSTALL:
        given = getattr(options, option.name[2:].replace("-", "_"))
        values = [given] if isinstance(given, str) else given or []
        if option.name == "--mount":  # the host's path comes first, so the whole value can be made absolute
            values = [os.path.abspath(os.path.expanduser(value)) for value in values]
        elif option.name == "--policy":
            values = [name if name in PRESETS else os.path.abspath(name) for name in values]
        words += [f"{option.name}={value}" for value in values]
    policy_of(parse_options(words))  # raises for what is none
    given = {"options": shlex.join(words) or None, "lines": options.lines}
    place = kernelspec.install(options.name, options.display_name, options.prefix, **given)
    print(f"installed kernel {options.name!r} in {place}")
    return 0


def add_lab_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``lab``."""
    parser.add_argument("notebook", nargs="?", help="the notebook or folder (the tour, if it is here)")
    parser.set_defaults(args=())


def lab(options: argparse.Namespace) -> NoReturn:
    """Replace this process by JupyterLab, with the arguments after ``--``. Jupyter refuses root unless it is told."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise BackendUnavailable(f"JupyterLab is not installed here; install it with: {install_line('lab')}")
    tour = Path("notebooks") / "tour.ipynb"
    target = options.notebook or (str(tour) if tour.exists() else ".")
    root = ["--allow-root"] if os.geteuid() == 0 else []
    os.execv(sys.executable, [sys.executable, "-P", "-m", "jupyterlab", target, *root, *options.args])


def add_prepare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``prepare``."""
    parser.add_argument(
        "languages", nargs="*", metavar="LANGUAGE",
        help="which (all of the catalogue but science: Python sessions with numpy and pandas, which take minutes)",
    )  # fmt: skip


def prepare(options: argparse.Namespace) -> int:
    """Prepare the languages with a progress bar."""
    names = [name for name in options.languages if name != SCIENCE]
    languages = [Language.parse(name) for name in names]
    backend = WasmBackend()
    if languages or not options.languages:
        backend.prepare(languages, show_bar)
    if SCIENCE in options.languages:
        backend.prepare_science(show_bar)
    return 0
