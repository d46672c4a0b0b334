"""Input prompts of one run. Shows one prompt at a time and pauses the run's deadline until it is answered."""

from __future__ import annotations

import inspect
import os
import selectors
import threading
import time
from collections.abc import Callable
from functools import partial

from sandbox_kernel.model import OnInput

# An input prompt of a running program. The loop that watches the program creates it and waits for the answer.

#: The longest line that ``input()`` returns.
MAX_INPUT = 32 << 10


def takes_prompt_alone(ask: Callable[..., object]) -> bool:
    """Whether a function takes only the prompt, as the builtin ``input`` does."""
    try:
        signature = inspect.signature(ask)
    except (TypeError, ValueError):
        return False
    return not _fits(signature, 2) and _fits(signature, 1)


def _fits(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


class InputPrompt:
    """One prompt, shown on a thread of its own, because the loop must go on while the user types."""

    def __init__(self, prompt: str, password: bool, ask: OnInput) -> None:
        self.began = time.monotonic()
        self.value: object = ""
        self.failure: BaseException | None = None
        self._answered, self._tell = os.pipe2(os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._open = True
        arguments = (prompt,) if takes_prompt_alone(ask) else (prompt, password)

        def target() -> None:
            try:
                self.value = ask(*arguments)
            except BaseException as error:
                self.failure = error
            with self._lock:
                if self._open:
                    os.write(self._tell, b"x")

        threading.Thread(target=target, name="sandbox-input", daemon=True).start()

    def fileno(self) -> int:
        """Return a descriptor for ``selectors`` that becomes readable with the answer."""
        return self._answered

    @property
    def text(self) -> str | None:
        """The answer in a form that a program can read; None for the end of input."""
        if self.failure is not None or self.value is None:
            return None
        return str(self.value)[:MAX_INPUT].encode("utf-8", "replace").decode()

    def close(self) -> None:
        """Drop the prompt: the answer is no longer needed. May be called twice."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._answered)
                os.close(self._tell)


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
