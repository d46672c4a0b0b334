"""Values of host functions as JSON, inside: the same rules as ``backends/functions/call_values.py`` of the host."""

from __future__ import annotations

import base64
import math

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: object) -> object:
    """Return an argument as JSON; raises ``TypeError`` for a type that cannot be sent."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a dict for a host function must have texts as keys")
        plain = {key: encode(item) for key, item in value.items()}
        return {"$object": plain} if any(key.startswith("$") for key in plain) else plain
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return encode(value.tolist())
    raise TypeError(f"a host function cannot be sent a {type(value).__name__}; send JSON values or bytes")


def decode(value: object) -> object:
    """Return a result of the host."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, item),) = value.items()
        if key == "$bytes":
            return base64.b64decode(item)
        if key == "$float":
            return _FLOATS[item]
        if key == "$object":
            return {name: decode(part) for name, part in item.items()}
    return {key: decode(item) for key, item in value.items()}
