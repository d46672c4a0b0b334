"""Callbacks of the caller. What one raises is wrapped, so that it is not mistaken for an error of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sandbox_kernel.model import OnOutput

Item = TypeVar("Item")


class ListenerFailed(Exception):
    """A callback of the caller raised an exception, or the caller was interrupted.

    ``Session.run`` raises the reason.
    """

    def __init__(self, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.reason = reason


def emitter(on_output: OnOutput | None, name: str) -> Callable[[str], None] | None:
    """Return the callback that receives one stream of a cell, as text."""
    return None if on_output is None else guarded(lambda text: on_output(name, text))


def guarded(listener: Callable[[Item], None] | None) -> Callable[[Item], None] | None:
    """Return a callback that raises ``ListenerFailed`` for what ``listener`` raises; ``KeyboardInterrupt`` passes."""
    if listener is None:
        return None

    def call(item: Item) -> None:
        try:
            listener(item)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ListenerFailed(error) from None

    return call
