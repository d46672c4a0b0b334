"""The questions of one run to its user, whoever of the run asks: one at a time, and its clock stands meanwhile."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from functools import partial

from sandbox_kernel.jail.streams.asking import InputPrompt, OnInput

#: Called with the answer; None is the end of input.
Answered = Callable[[str | None], None]


class InputPrompts:
    """Watched by the loop of the run.

    ``before`` is called before the user is asked, so that what was printed is seen first, and ``interrupted`` when the
    user interrupts instead of an answer.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_input: OnInput,
        before: Callable[[], None],
        interrupted: Callable[[], None],
    ) -> None:
        self._selector, self._on_input, self._before, self._interrupted = selector, on_input, before, interrupted
        #: The question that is open now.
        self.open: InputPrompt | None = None
        #: How long the user has been thinking, all answered questions together.
        self.asked_s = 0.0

    def ask(self, prompt: str, answered: Answered) -> None:
        """Ask, and go on; ``answered`` is called by the loop. What the asking raised, but the end, is raised there."""
        self._before()
        self.open = InputPrompt(prompt, False, self._on_input)
        self._selector.register(self.open, selectors.EVENT_READ, partial(self._on_readable, answered))

    def _on_readable(self, answered: Answered, fd: int) -> None:
        asking, self.open = self.open, None
        assert asking is not None
        self._selector.unregister(fd)
        asking.close()
        self.asked_s += time.monotonic() - asking.began
        if isinstance(asking.failure, KeyboardInterrupt):
            self._interrupted()
            return
        if asking.failure is not None and not isinstance(asking.failure, EOFError):
            raise asking.failure
        answered(asking.text)

    def close(self) -> None:
        """Nobody waits for an answer any more; may be called twice."""
        if self.open is not None:
            self.open.close()
