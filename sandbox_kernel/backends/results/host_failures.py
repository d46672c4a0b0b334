"""Turns failures of the host into typed errors: no descriptors left, a removed control group, a full disk.

Such a failure is an ``OSError`` from any lower layer; callers of a backend get ``BackendUnavailable``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.model import OnOutput, check_listener


class Listener:
    """Calls the output callback of the caller and remembers its exception, which is passed on unchanged."""

    def __init__(self, on_output: OnOutput) -> None:
        check_listener("on_output", on_output)
        self._on_output = on_output
        self.failure: BaseException | None = None

    def __call__(self, stream: str, text: str) -> None:
        """Call the callback."""
        try:
            self._on_output(stream, text)
        except BaseException as error:
            self.failure = error
            raise


@contextmanager
def host_trouble(listener: Listener | None = None) -> Iterator[None]:
    """Turn an ``OSError`` into ``BackendUnavailable``, except one that the listener raised."""
    try:
        yield
    except OSError as error:
        if listener is not None and error is listener.failure:
            raise
        raise told(error) from error


def told(error: OSError) -> BackendUnavailable:
    """Return the error for the caller when the host failed."""
    return BackendUnavailable(
        f"the host could not run it: {error}; check its open files, disk space and control groups, then run it again"
    )
