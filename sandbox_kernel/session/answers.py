"""Questions about code, and the answers of a worker in the form that Jupyter expects; the unusable is left out."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_kernel.errors import InvalidRequest

#: The longest code that is asked about; beyond, the analysis alone takes longer than anybody waits.
MAX_ASKED = 1 << 20


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
    """``matches``, ``cursor_start``, ``cursor_end`` and ``metadata``."""
    matches = answer.get("matches")
    if not isinstance(matches, list) or not all(isinstance(item, str) for item in matches):
        return {"matches": [], "cursor_start": pos, "cursor_end": pos, "metadata": {}}
    metadata = answer.get("metadata")
    return {
        "matches": matches,
        "cursor_start": _place(answer.get("cursor_start"), code, pos),
        "cursor_end": _place(answer.get("cursor_end"), code, pos),
        "metadata": metadata if isinstance(metadata, dict) else {},
    }


def documentation(answer: Mapping[str, object]) -> dict[str, object]:
    """A MIME bundle of texts; empty when nothing is known."""
    data = answer.get("data")
    if not isinstance(data, dict):
        return {}
    return {str(mime): text for mime, text in data.items() if isinstance(text, str)}


def completeness(answer: Mapping[str, object]) -> dict[str, object]:
    """``status`` (complete, incomplete, invalid or unknown) and the ``indent`` of the next line."""
    status, indent = answer.get("status"), answer.get("indent")
    return {
        "status": status if status in ("complete", "incomplete", "invalid") else "unknown",
        "indent": indent if isinstance(indent, str) and len(indent) < 1000 else "",
    }


def _place(value: object, code: str, otherwise: int) -> int:
    return value if isinstance(value, int) and 0 <= value <= len(code) else otherwise
