"""An input prompt of a running program. The loop that watches the program creates it and waits for the answer."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable

#: The longest line that ``input()`` returns.
MAX_INPUT = 32 << 10

#: Called with the prompt and whether the answer is a secret. Raises ``EOFError`` when there is no user to ask.
OnInput = Callable[[str, bool], str]
AnyOnInput = Callable[[str, bool], str | Awaitable[str]]


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
