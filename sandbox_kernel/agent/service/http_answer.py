"""An answer of the service before it is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HttpAnswer:
    """What is sent back."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = field(default=())


def json_answer(status: int, value: object, *headers: tuple[str, str]) -> HttpAnswer:
    """Return an answer with a JSON value."""
    return HttpAnswer(status, json.dumps(value).encode(), headers=headers)
