"""Shows how far a language is that has to be made ready before its first cell can run, and leaves nothing behind.

Made for each cell, on the loop that runs it; nothing is sent unless there is something to wait for and a person who
looks on. A notebook that is saved afterwards is the same as one whose language was ready.
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
    """What a bar needs of a ``Door``."""

    def watched(self) -> bool:
        """Whether a person looks on."""

    def message(self, message: Message) -> None:
        """Show something."""


class PreparationBar:
    """One bar in the output area of its cell.

    ``alone`` says that the cell has shown nothing yet; then the bar is cleared away, else its place is left empty.
    """

    def __init__(self, page: Page, *, alone: bool) -> None:
        self._page = page
        self._alone = alone
        self._id = ""

    def update(self, progress: PrepareProgress) -> None:
        """Draw it; called on the cell's loop. It goes when all is done."""
        if progress.fraction >= 1:
            self.close()
        elif self._id or self._page.watched():
            update = bool(self._id)
            self._id = self._id or uuid.uuid4().hex
            self._page.message(ShowOutput(bundle(progress), display_id=self._id, update=update))

    def close(self) -> None:
        """The language is ready, or will not be; may be called twice, and without a bar."""
        if self._id:
            gone = (
                ClearOutput(wait=False)
                if self._alone
                else ShowOutput({"text/plain": ""}, display_id=self._id, update=True)
            )
            self._page.message(gone)
            self._id = ""


def bundle(progress: PrepareProgress) -> dict[str, object]:
    """The bar as a page and as a terminal shows it."""
    fraction = min(1.0, max(0.0, progress.fraction))
    words = f"making {progress.language} ready, once: {progress.text}"
    full = round(fraction * _BLOCKS)
    return {
        "text/plain": f"{words} [{'#' * full}{'.' * (_BLOCKS - full)}] {fraction:.0%}",
        "text/html": f"<div><progress max='1' value='{fraction:.3f}'></progress> {html.escape(words)}</div>",
    }
