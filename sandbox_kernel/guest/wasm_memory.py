"""The linear memory of a guest as a file: all of its state, when it is between two calls."""

from __future__ import annotations

import ctypes
import hashlib
import os
from typing import Protocol

import wasmtime

from .wasm_inspect import PAGE_BYTES


class HasMemory(Protocol):
    """A guest between two calls."""

    memory: wasmtime.Memory
    store: wasmtime.Store


_CHUNK = 1 << 20


def _view(js: HasMemory) -> memoryview:
    """The memory as bytes, without a copy; only good until it grows."""
    size = js.memory.data_len(js.store)
    base = ctypes.addressof(js.memory.data_ptr(js.store).contents)
    return memoryview((ctypes.c_ubyte * size).from_address(base)).cast("B")


def write_memory(js: HasMemory, path: str) -> dict[str, object]:
    """Write the memory to a new file; its size and SHA-256, or the ``problem``."""
    view = _view(js)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return {"problem": error.strerror}
    try:
        rest = view
        while rest:
            rest = rest[os.write(descriptor, rest[:_CHUNK]) :]
    except OSError as error:
        os.unlink(path)
        return {"problem": error.strerror}
    finally:
        os.close(descriptor)
    return {"size": len(view), "sha256": hashlib.sha256(view).hexdigest()}


def read_memory(js: HasMemory, path: str, size: int) -> None:
    """Fill the memory of a fresh instance with what was written; it grows to that size first."""
    missing = size - js.memory.data_len(js.store)
    if missing > 0:
        js.memory.grow(js.store, -(-missing // PAGE_BYTES))
    view = _view(js)
    if len(view) != size:
        raise RuntimeError(f"an image of {size} bytes does not fit a memory of {len(view)}")
    with open(path, "rb", buffering=0) as file:
        filled = 0
        while filled < size:
            read = file.readinto(view[filled:])
            if not read:
                raise RuntimeError("the image ends before its end")
            filled += read
