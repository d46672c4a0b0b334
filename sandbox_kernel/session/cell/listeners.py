"""The caller's callbacks: what one of them raises must not be taken for an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sandbox_kernel.jail.core.job import OnOutput

Item = TypeVar("Item")


class ListenerFailed(Exception):
    """A callback of the caller's raised, or the caller was interrupted; not to be taken for an error of ours.

    ``Session.run`` raises the reason.
    """

    def __init__(self, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.reason = reason


def emitter(on_output: OnOutput | None, name: str) -> Callable[[str], None] | None:
    """Who hears one stream of a cell."""
    return None if on_output is None else guarded(lambda text: on_output(name, text))


def guarded(listener: Callable[[Item], None] | None) -> Callable[[Item], None] | None:
    """The same listener; what it raises is a ``ListenerFailed``, but for the interrupt of the caller."""
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
