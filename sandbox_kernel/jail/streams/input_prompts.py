"""Input prompts of one run. Shows one prompt at a time and pauses the run's deadline until it is answered."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from functools import partial

from sandbox_kernel.jail.streams.asking import InputPrompt, OnInput

#: Called with the answer; None is the end of input.
Answered = Callable[[str | None], None]


class InputPrompts:
    """The prompts of one run, watched by its loop.

    Args:
        selector: The selector of the loop.
        on_input: Asks the user.
        before: Called before the user is asked, so that earlier output is shown first.
        interrupted: Called when the user interrupts instead of answering.

    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_input: OnInput,
        before: Callable[[], None],
        interrupted: Callable[[], None],
    ) -> None:
        self._selector, self._on_input, self._before, self._interrupted = selector, on_input, before, interrupted
        #: The prompt that is open now.
        self.open: InputPrompt | None = None
        #: How long answered prompts were open, in seconds, all together.
        self.asked_s = 0.0

    def ask(self, prompt: str, answered: Answered) -> None:
        """Show a prompt and return. The loop calls ``answered`` later, and raises there what ``on_input`` raised."""
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
        """Drop an open prompt. May be called twice."""
        if self.open is not None:
            self.open.close()
