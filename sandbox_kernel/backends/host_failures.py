"""When the host itself fails a run: out of descriptors, a control group that somebody removed, a full disk.

What the operating system says then is an ``OSError`` from anywhere below; callers are promised typed errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.jail.core.job import OnOutput
from sandbox_kernel.limits import quoted


class Listener:
    """The caller's listener; remembers what it raised, which is the caller's own and passes as it is."""

    def __init__(self, on_output: OnOutput) -> None:
        check_listener("on_output", on_output)
        self._on_output = on_output
        self.failure: BaseException | None = None

    def __call__(self, stream: str, text: str) -> None:
        """Hand it on."""
        try:
            self._on_output(stream, text)
        except BaseException as error:
            self.failure = error
            raise


def check_listener(name: str, listener: object) -> None:
    """Refuse, before anything runs, a callback that cannot be called."""
    if listener is not None and not callable(listener):
        raise InvalidRequest(f"{name} must be a function, got {quoted(listener)}; for example {name}=print")


@contextmanager
def host_trouble(listener: Listener | None = None) -> Iterator[None]:
    """Turn an ``OSError`` of ours into ``BackendUnavailable``; one of the listener's stays."""
    try:
        yield
    except OSError as error:
        if listener is not None and error is listener.failure:
            raise
        raise told(error) from error


def told(error: OSError) -> BackendUnavailable:
    """What the caller is told of the host's trouble."""
    return BackendUnavailable(
        f"the host could not run it: {error}; see to its open files, disk and control groups, then run it again"
    )
