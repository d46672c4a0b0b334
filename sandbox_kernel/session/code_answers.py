"""Questions about code, and what is taken of a worker's answers.

A worker shares its process with the user's code, so every answer may be forged. A completion is text that the page
writes into the user's cell; ``session/suggestions.py`` says which text may be written there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.session.suggestions import suggestions

#: The longest code that is asked about; beyond, the analysis alone takes longer than anybody waits.
MAX_ASKED = 1 << 20
_INDENT = re.compile(r" {0,200}\Z|\t{0,50}\Z")


def worth_asking(code: str, pos: int) -> bool:
    """Whether an answer about this code can come in time; ``InvalidRequest`` when it is no question."""
    if not isinstance(code, str) or isinstance(pos, bool) or not isinstance(pos, int):
        raise InvalidRequest(f"a question about code takes the code and a position, got {code!r:.60} and {pos!r}")
    try:
        code.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the code holds a lone surrogate at position {error.start}; remove it") from None
    return len(code) <= MAX_ASKED


def completions(answer: Mapping[str, object], code: str, pos: int) -> dict[str, object]:
    """``matches``, ``cursor_start``, ``cursor_end`` and ``metadata`` in Jupyter's form.

    The range ends at the cursor and begins in the word before it. ``metadata`` is made here, of matches that were
    taken and of known kinds.
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
    """A MIME bundle of texts; empty when nothing is known."""
    data = answer.get("data")
    if not isinstance(data, dict):
        return {}
    return {str(mime): text for mime, text in data.items() if isinstance(text, str)}


def completeness(answer: Mapping[str, object]) -> dict[str, object]:
    """``status`` (complete, incomplete, invalid or unknown) and the ``indent`` of the next line: spaces, or tabs."""
    status, indent = answer.get("status"), answer.get("indent")
    return {
        "status": status if status in ("complete", "incomplete", "invalid") else "unknown",
        "indent": indent if isinstance(indent, str) and _INDENT.match(indent) else "",
    }


UNKNOWN = "<unknown>"
#: The kinds that IPython and jedi give; a page shows the kind beside its match, so it is no place for other words.
_KINDS = frozenset(
    [
        *("class", "dict key", "function", "instance", "keyword", "latex", "magic"),
        *("module", "param", "path", "property", "statement", "unicode", "variable"),
    ]
)


def _kinds(metadata: object) -> dict[str, str]:
    """The kind of each match, as far as the worker gave one that is known."""
    entries = metadata.get("_jupyter_types_experimental") if isinstance(metadata, dict) else None
    found: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        text, kind = (entry.get("text"), entry.get("type")) if isinstance(entry, dict) else (None, None)
        if isinstance(text, str) and isinstance(kind, str):
            found.setdefault(text, kind if kind in _KINDS else UNKNOWN)
    return found
