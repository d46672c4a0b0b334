"""``sandbox-kernel prepare``: fetch and compile what languages inside WebAssembly need."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from sandbox_kernel.commands.terminal import Lines, show_bar
from sandbox_kernel.model import Language

#: The name for Python sessions in WebAssembly, with numpy and pandas.
SCIENCE = "science"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument(
        "languages", nargs="*", metavar="LANGUAGE",
        help="which (all of the catalogue but science: Python sessions with numpy and pandas, which take minutes)",
    )  # fmt: skip
    parser.add_argument("--background", action="store_true", help="return at once; messages go to a file")


def execute(options: argparse.Namespace) -> int:
    """Prepare the languages with a progress bar, or start a background process that does."""
    from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend

    names = [name for name in options.languages if name != SCIENCE]
    languages = [Language.parse(name) for name in names]
    if options.background:
        return _prepare_in_background(options.languages)
    tell = show_bar if sys.stderr.isatty() else Lines()
    backend = WasmBackend()
    if languages or not options.languages:
        backend.prepare(languages, tell)
    if SCIENCE in options.languages:
        backend.prepare_science(tell)
    return 0


def _prepare_in_background(names: Sequence[str]) -> int:
    """Start this command in a process that outlives this one. Two such processes wait for each other."""
    from sandbox_kernel.backends.wasm.store import WasmStore

    log_path = os.path.join(WasmStore().folder, ".prepare.log")
    with open(log_path, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "sandbox_kernel", "prepare", *names],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    print(f"preparing in the background as process {child.pid}; messages are in {log_path}")
    return 0
