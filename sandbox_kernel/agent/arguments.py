"""The arguments of a tool call, read by name.

They come from a model: any field may be missing, of another type or made up. Every complaint is an ``InvalidRequest``
whose text the model can act on; nothing is guessed, and nothing falls back to a default in silence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sandbox_kernel.errors import InvalidRequest

#: What is quoted of a wrong value.
_SHOWN = 80


class Fields:
    """The arguments of one call. An optional field may be left out or be null."""

    def __init__(self, args: object, known: Sequence[str]) -> None:
        if not isinstance(args, Mapping):
            raise InvalidRequest(f"arguments must be an object, got {shown(args)}; known fields: {', '.join(known)}")
        unknown = [name for name in args if name not in known]
        if unknown:
            raise InvalidRequest(f"unknown field {shown(unknown[0])}; known fields: {', '.join(known)}")
        self._args = args

    def text(self, name: str) -> str:
        """A string that must be there."""
        if name not in self._args:
            raise InvalidRequest(f'missing required field "{name}"')
        value = self._args[name]
        if not isinstance(value, str):
            raise InvalidRequest(f'"{name}" must be a string, got {shown(value)}')
        return value

    def optional_text(self, name: str) -> str | None:
        """A string, or None."""
        return None if self._args.get(name) is None else self.text(name)

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds. 2.0 is no whole number here: who writes it may as well mean 2.5."""
        value = self._args.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidRequest(f'"{name}" must be a whole number between {least} and {most}, got {shown(value)}')
        return value

    def flag(self, name: str) -> bool:
        """True or false; false when left out."""
        value = self._args.get(name)
        if value is not None and not isinstance(value, bool):
            raise InvalidRequest(f'"{name}" must be true or false, got {shown(value)}')
        return bool(value)

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        """One of a few words."""
        value = self.optional_text(name)
        if value is not None and value not in known:
            raise InvalidRequest(f'"{name}" must be one of {", ".join(known)}, got {shown(value)}')
        return value if value is not None else default


def shown(value: object) -> str:
    """A value as JSON on one line, cut: what a complaint may quote, whatever the value holds."""
    try:
        text = json.dumps(value[:_SHOWN] if isinstance(value, str) else value)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    cut = len(text) > _SHOWN or (isinstance(value, str) and len(value) > _SHOWN)
    return f"{text[:_SHOWN]}…" if cut else text
