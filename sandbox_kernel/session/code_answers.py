"""Checks questions about code (completion, documentation, completeness) and the worker's answers to them.

A worker shares its process with the user's code, so every answer may be forged. A completion is text that the page
writes into the user's cell; ``session/suggestions.py`` decides which text may be written there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.session.suggestions import suggestions

#: The longest code that a worker is asked about, in characters; the analysis of more takes too long.
MAX_ASKED = 1 << 20
_INDENT = re.compile(r" {0,200}\Z|\t{0,50}\Z")


def worth_asking(code: str, pos: int) -> bool:
    """Whether the code is short enough to be asked about; raises ``InvalidRequest`` on arguments of a wrong type."""
    if not isinstance(code, str) or isinstance(pos, bool) or not isinstance(pos, int):
        raise InvalidRequest(f"a question about code takes the code and a position, got {code!r:.60} and {pos!r}")
    try:
        code.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the code holds a lone surrogate at position {error.start}; remove it") from None
    return len(code) <= MAX_ASKED


def completions(answer: Mapping[str, object], code: str, pos: int) -> dict[str, object]:
    """Return ``matches``, ``cursor_start``, ``cursor_end`` and ``metadata`` in Jupyter's form.

    The range ends at the cursor and begins in the word before it. ``metadata`` is built here: it holds only the
    accepted matches and known kinds.
    """
    pos = min(max(0, pos), len(code))
    start = answer.get("cursor_start")
    found = suggestions(answer.get("matches"), code, start if type(start) is int else -1, pos)
    metadata: dict[str, object] = {}
    if found.matches and (kinds := _kinds(answer.get("metadata"))):
        metadata["_jupyter_types_experimental"] = [
            {"start": found.start, "end": pos, "text": text, "type": kinds.get(text, UNKNOWN)} for text in found.matches
        ]
    return {"matches": list(found.matches), "cursor_start": found.start, "cursor_end": pos, "metadata": metadata}


def documentation(answer: Mapping[str, object]) -> dict[str, object]:
    """Return the documentation as a MIME bundle of texts; empty when the worker has none."""
    data = answer.get("data")
    if not isinstance(data, dict):
        return {}
    return {str(mime): text for mime, text in data.items() if isinstance(text, str)}


def completeness(answer: Mapping[str, object]) -> dict[str, object]:
    """Return ``status`` (complete, incomplete, invalid or unknown) and ``indent`` of the next line: spaces or tabs."""
    status, indent = answer.get("status"), answer.get("indent")
    return {
        "status": status if status in ("complete", "incomplete", "invalid") else "unknown",
        "indent": indent if isinstance(indent, str) and _INDENT.match(indent) else "",
    }


UNKNOWN = "<unknown>"
#: The kinds of matches that IPython and jedi report. A page shows the kind beside its match; other texts are refused.
_KINDS = frozenset(
    [
        *("class", "dict key", "function", "instance", "keyword", "latex", "magic"),
        *("module", "param", "path", "property", "statement", "unicode", "variable"),
    ]
)


def _kinds(metadata: object) -> dict[str, str]:
    """Return the kind of each match that the worker gave one for; ``UNKNOWN`` for a kind that is not in the list."""
    entries = metadata.get("_jupyter_types_experimental") if isinstance(metadata, dict) else None
    found: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        text, kind = (entry.get("text"), entry.get("type")) if isinstance(entry, dict) else (None, None)
        if isinstance(text, str) and isinstance(kind, str):
            found.setdefault(text, kind if kind in _KINDS else UNKNOWN)
    return found
