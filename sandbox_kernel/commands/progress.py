"""How far something is that takes its time: a bar on a terminal, lines in a log. All of it on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.prepare import PrepareProgress


def show_measuring(done: int, total: int) -> None:
    """A bar of the canaries that are back; it is gone when all are."""
    filled = round(done / total * 24)
    end = "\r\033[K" if done == total else ""
    print(f"\r\033[Kmeasuring {'█' * filled}{'·' * (24 - filled)}{end}", end="", file=sys.stderr, flush=True)


def show_bar(progress: PrepareProgress) -> None:
    """A bar for each language that is made ready."""
    filled = round(progress.fraction * 24)
    bar = "█" * filled + "·" * (24 - filled)
    print(f"\r\033[K{progress.language:12} {bar} {progress.text}", end="", file=sys.stderr, flush=True)
    if progress.fraction >= 1:
        print(file=sys.stderr)


class Lines:
    """For logs: a line for each step, not for each second of it."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, progress: PrepareProgress) -> None:
        """Say what is new."""
        line = f"{progress.language}: {progress.text}"
        if line != self._last:
            print(line, file=sys.stderr, flush=True)
            self._last = line
