"""A progress bar below a cell, while its language is prepared for the first time.

Made for each cell, on the loop that runs it. Shows nothing unless a language has to be prepared and a notebook page
runs the cell. The bar is removed afterwards, so that the saved notebook does not depend on it.
"""

from __future__ import annotations

import html
import uuid
from typing import TYPE_CHECKING, Protocol

from sandbox_kernel.notebook.render import ClearOutput, Message, ShowOutput

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.prepare import PrepareProgress

_BLOCKS = 20


class Page(Protocol):
    """The methods of ``execution.Door`` that the bar needs."""

    def watched(self) -> bool:
        """Whether a notebook page runs the cell."""

    def message(self, message: Message) -> None:
        """Show a message."""


class PreparationBar:
    """One bar in the output area of its cell.

    ``alone``: the cell has no other output yet. Then ``close`` clears the output; else it leaves an empty display.
    """

    def __init__(self, page: Page, *, alone: bool) -> None:
        self._page = page
        self._alone = alone
        self._id = ""

    def update(self, progress: PrepareProgress) -> None:
        """Draw the bar, or remove it at a fraction of 1. Called on the cell's loop."""
        if progress.fraction >= 1:
            self.close()
        elif self._id or self._page.watched():
            update = bool(self._id)
            self._id = self._id or uuid.uuid4().hex
            self._page.message(ShowOutput(bundle(progress), display_id=self._id, update=update))

    def close(self) -> None:
        """Remove the bar, if there is one; may be called twice."""
        if self._id:
            gone = (
                ClearOutput(wait=False)
                if self._alone
                else ShowOutput({"text/plain": ""}, display_id=self._id, update=True)
            )
            self._page.message(gone)
            self._id = ""


def bundle(progress: PrepareProgress) -> dict[str, object]:
    """Return the bar as HTML and as text."""
    fraction = min(1.0, max(0.0, progress.fraction))
    words = f"making {progress.language} ready, once: {progress.text}"
    full = round(fraction * _BLOCKS)
    return {
        "text/plain": f"{words} [{'#' * full}{'.' * (_BLOCKS - full)}] {fraction:.0%}",
        "text/html": f"<div><progress max='1' value='{fraction:.3f}'></progress> {html.escape(words)}</div>",
    }
