"""A question of a running program to its user. The loop that watches the program makes one and watches it too."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable

#: Longest line that ``input()`` is given.
MAX_INPUT = 32 << 10

#: Called with the prompt and whether the answer is a secret; ``EOFError`` where there is nobody to ask.
OnInput = Callable[[str, bool], str]
AnyOnInput = Callable[[str, bool], str | Awaitable[str]]


def takes_prompt_alone(ask: Callable[..., object]) -> bool:
    """Whether a function wants the prompt and nothing else, as ``input`` itself does."""
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
    """One question to the user, asked on a thread of its own: the loop must go on while a person thinks."""

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
        """For ``selectors``."""
        return self._answered

    @property
    def text(self) -> str | None:
        """The answer as a program can read it; None for the end of input."""
        if self.failure is not None or self.value is None:
            return None
        return str(self.value)[:MAX_INPUT].encode("utf-8", "replace").decode()

    def close(self) -> None:
        """Nobody waits for the answer any more; may be called twice."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._answered)
                os.close(self._tell)
