"""Says what is different in a value that is stored and made again, where it cannot be the same."""

from __future__ import annotations

import functools
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def altered(value: Any) -> str:
    """Return what will be different in a value; empty when nothing is known."""
    if type(value) is functools._lru_cache_wrapper and value.cache_info().currsize:
        return f"the cache of {value.__name__} is empty"
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(type(value), numpy.memmap) and getattr(value, "_mmap", None) is not None:
        return "it is in memory and no longer mapped to its file"
    return ""
