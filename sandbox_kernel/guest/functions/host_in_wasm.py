"""The module ``host`` of Python inside WebAssembly: ``from host import search``. No module imports it.

Runs in the guest, as a package with ``calling`` of this folder. ``offer`` is called once, with
the functions and the way to the embedder: in a session by ``cell_boot.py``, in a run by ``over_descriptor``.
"""

import json
import os
import sys
from collections.abc import Callable

from .calling import Calls, make_module

#: How much of an answer is read at once.
_READ = 1 << 18


def offer(listing: list[list[str]], send: Callable[[bytes], bytes]) -> None:
    """Define the functions of the host. ``send`` gets a message and returns its answer."""
    sys.modules["host"] = make_module(Calls(send), listing)


def over_descriptor(number: int) -> None:
    """Offer the functions that the embedder lists; a descriptor leads to it (``guest/wasm/run.py``)."""

    def send(message: bytes) -> bytes:
        data = message + b"\n"
        while data:
            data = data[os.write(number, data) :]
        # The embedder fills every read, so one that is not full is the last.
        parts = [os.read(number, _READ)]
        while len(parts[-1]) == _READ:
            parts.append(os.read(number, _READ))
        return b"".join(parts)

    offer(json.loads(send(b"{}"))["functions"], send)
