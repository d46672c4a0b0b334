"""Where sessions meet the notebook: what the runner, the line commands and the completer need of one.

``sandbox_kernel/session`` provides it; here it is only named, so that the notebook works (every cell fresh) where a
language has no session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from sandbox_kernel.model import Display, ExecResult

OnOutput = Callable[[str, str], None]
OnDisplay = Callable[[Display], None]
#: Asked with the prompt and whether the answer is a secret; ``EOFError`` when there is nobody to ask.
OnInput = Callable[[str, bool], Awaitable[str]]


class Session(Protocol):
    """State between cells. Every callback is called on the loop that runs ``arun``."""

    @property
    def alive(self) -> bool:
        """Whether the session can run another cell."""
        ...

    async def arun(
        self,
        code: str,
        *,
        timeout: float,
        on_output: OnOutput | None = None,
        on_input: OnInput | None = None,
        on_display: OnDisplay | None = None,
    ) -> ExecResult:
        """Run one cell. A session without ``on_display`` shows everything at the end of the cell."""
        ...

    def interrupt(self) -> object:
        """Stop the running cell as Ctrl-C would; callable from any thread."""
        ...

    def undo(self, n: int = 1) -> object:
        """Go back to the state before the last ``n`` cells."""
        ...

    def checkpoints(self) -> Sequence[object]:
        """The states that ``undo`` can go back to."""
        ...

    def restart(self) -> None:
        """Begin again with nothing."""
        ...

    def complete(self, code: str, pos: int) -> Mapping[str, object]:
        """What could stand at ``pos``: ``matches``, ``cursor_start``, ``cursor_end``, ``metadata``."""
        ...

    def inspect(self, code: str, pos: int) -> Mapping[str, object]:
        """What stands at ``pos``, as a MIME bundle; empty when unknown."""
        ...

    def is_complete(self, code: str) -> object:
        """``complete``, ``incomplete`` or ``invalid``; or a mapping with ``status`` and ``indent``."""
        ...

    def close(self) -> None:
        """End the session and everything in it."""
        ...
