"""The way of a guest to host functions: its messages go through the embedder, which has the hatch.

A message is JSON, and so is its answer (``guest/functions/calling.py``). Python inside the guest gets the module
``host`` as source, JavaScript the object ``host``; both end here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from ..functions.caller import Caller, CallStopped
from ..functions.calling import HostError

_FUNCTIONS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "functions")


class HostLine:
    """Sends messages of one guest through the hatch; ``listing`` has name, signature and text of each function."""

    def __init__(self, hatch: int, listing: list[list[str]]) -> None:
        self.listing = listing
        os.set_inheritable(hatch, False)
        self._caller = Caller(hatch)

    def stop_by(self, stopped: Callable[[], bool]) -> None:
        """Ask this function while a call waits; for guests whose interrupts are no exceptions here."""
        self._caller.stopped = stopped

    def answer(self, message: bytes) -> bytes:
        """Return the host's answer to a message of the guest, or an error in its place."""
        try:
            return self._caller.exchange(message)
        except HostError as error:
            return failed(error.type, error.message)
        except CallStopped:
            return failed("KeyboardInterrupt", "")
        except OSError as error:
            return failed("ConnectionLost", f"the call did not reach the host: {error}")


def failed(kind: str, message: str) -> bytes:
    """Return the answer to a call that did not reach the host."""
    return json.dumps({"error": {"type": kind, "message": message}}).encode()


def python_sources() -> dict[str, str]:
    """Return the modules of ``import host`` in a guest, by name; those that others import come first."""
    files = {"host.values": "values.py", "host.calling": "calling.py", "host": "host_in_wasm.py"}
    return {name: _text(os.path.join(_FUNCTIONS, file)) for name, file in files.items()}


def javascript_source() -> str:
    """Return the program that makes the object ``host``."""
    return _text(os.path.join(_FUNCTIONS, "host_object.js"))


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
