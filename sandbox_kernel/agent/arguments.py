"""Reads the arguments of a tool call by name.

A model writes them: any field may be missing, unknown or of a wrong type. Every error is an ``InvalidRequest`` with a
message that the model can act on; nothing is guessed, and no wrong value becomes a default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sandbox_kernel.errors import InvalidRequest

#: Most characters of a wrong value in an error.
_SHOWN = 80


class Fields:
    """The arguments of one call. An optional field may be missing or null."""

    def __init__(self, args: object, known: Sequence[str]) -> None:
        if not isinstance(args, Mapping):
            raise InvalidRequest(f"arguments must be an object, got {shown(args)}; known fields: {', '.join(known)}")
        unknown = [name for name in args if name not in known]
        if unknown:
            raise InvalidRequest(f"unknown field {shown(unknown[0])}; known fields: {', '.join(known)}")
        self._args = args

    def text(self, name: str) -> str:
        """Return a required string."""
        if name not in self._args:
            raise InvalidRequest(f'missing required field "{name}"')
        value = self._args[name]
        if not isinstance(value, str):
            raise InvalidRequest(f'"{name}" must be a string, got {shown(value)}')
        return value

    def texts(self, name: str, most: int) -> list[str]:
        """Return a required list of strings, of which there is at least one."""
        value = self._args.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InvalidRequest(f'"{name}" must be a list of strings, got {shown(value)}')
        if not 1 <= len(value) <= most:
            raise InvalidRequest(f'"{name}" takes 1 to {most} strings, got {len(value)}')
        return list(value)

    def optional_text(self, name: str) -> str | None:
        """Return an optional string; None without it."""
        return None if self._args.get(name) is None else self.text(name)

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """Return an optional integer within bounds. A float such as 2.0 is refused."""
        value = self._args.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidRequest(f'"{name}" must be a whole number between {least} and {most}, got {shown(value)}')
        return value

    def flag(self, name: str) -> bool:
        """Return an optional boolean; False without it."""
        value = self._args.get(name)
        if value is not None and not isinstance(value, bool):
            raise InvalidRequest(f'"{name}" must be true or false, got {shown(value)}')
        return bool(value)

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        """Return one of the given words."""
        value = self.optional_text(name)
        if value is not None and value not in known:
            raise InvalidRequest(f'"{name}" must be one of {", ".join(known)}, got {shown(value)}')
        return value if value is not None else default


def shown(value: object) -> str:
    """Return any value as one short line of JSON, for an error."""
    try:
        text = json.dumps(value[:_SHOWN] if isinstance(value, str) else value)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    cut = len(text) > _SHOWN or (isinstance(value, str) and len(value) > _SHOWN)
    return f"{text[:_SHOWN]}…" if cut else text
