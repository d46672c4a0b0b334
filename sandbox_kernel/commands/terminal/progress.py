"""Shows progress on standard error: as a bar on a terminal, as lines in a log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.prepare import PrepareProgress


def show_measuring(done: int, total: int) -> None:
    """Draw a bar of the canaries that have finished; remove it after the last one."""
    filled = round(done / total * 24)
    end = "\r\033[K" if done == total else ""
    print(f"\r\033[Kmeasuring {'█' * filled}{'·' * (24 - filled)}{end}", end="", file=sys.stderr, flush=True)


def show_bar(progress: PrepareProgress) -> None:
    """Draw a bar for each language that is prepared."""
    filled = round(progress.fraction * 24)
    bar = "█" * filled + "·" * (24 - filled)
    print(f"\r\033[K{progress.language:12} {bar} {progress.text}", end="", file=sys.stderr, flush=True)
    if progress.fraction >= 1:
        print(file=sys.stderr)


class Lines:
    """Prints progress for logs: one line for each step."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, progress: PrepareProgress) -> None:
        """Print the step, unless it was printed before."""
        line = f"{progress.language}: {progress.text}"
        if line != self._last:
            print(line, file=sys.stderr, flush=True)
            self._last = line
