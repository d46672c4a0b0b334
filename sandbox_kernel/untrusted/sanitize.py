"""The only door for rich outputs: a MIME bundle from inside a sandbox goes in, one that a page may show comes out.

Called by ``render`` for every display and by the session for what its worker sends. The input is hostile: any object
may stand anywhere. What is not on the list below is dropped and named in ``removed``; a bundle that loses everything
keeps one line of text that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox_kernel.untrusted import Refused
from sandbox_kernel.untrusted.ansi import only_colours
from sandbox_kernel.untrusted.images import IMAGE_TYPES, check_image
from sandbox_kernel.untrusted.json_value import check_json, encodable
from sandbox_kernel.untrusted.markdown import clean_markdown
from sandbox_kernel.untrusted.tex import check_latex

MAX_TEXT = 1 << 20
MAX_TYPES = 32

_NEVER = {
    "application/javascript": "scripts are never shown",
    "text/javascript": "scripts are never shown",
    "application/x-javascript": "scripts are never shown",
    "application/vnd.jupyter.widget-view+json": "widgets of a sandbox are never shown",
    "application/vnd.jupyter.widget-state+json": "widgets of a sandbox are never shown",
}


@dataclass(frozen=True)
class SanitizedBundle:
    """A bundle that is safe to publish; ``removed`` says in words what the sandbox sent besides."""

    data: Mapping[str, object]
    metadata: Mapping[str, object]
    removed: tuple[str, ...] = ()


def sanitize_bundle(data: object, metadata: object) -> SanitizedBundle:
    """Check each representation by its own rules; never raises, whatever it is given."""
    removed: list[str] = []
    kept: dict[str, object] = {}
    if not isinstance(data, Mapping):
        return SanitizedBundle(
            {"text/plain": "[output removed: not a display]"}, {}, ("a display that is no MIME bundle",)
        )
    for number, (mime, value) in enumerate(data.items()):
        if number >= MAX_TYPES:
            removed.append(f"{len(data) - MAX_TYPES} more MIME types")
            break
        name = _name(mime)
        try:
            clean, taken = _clean(name, value)
        except Refused as reason:
            removed.append(f"{name}: {reason}")
            continue
        kept[name] = clean
        removed += [f"{name}: {item}" for item in taken]
    if not kept and data:
        kept = {"text/plain": f"[output removed: {'; '.join(removed)}]"}
    return SanitizedBundle(kept, _metadata(metadata, kept), tuple(removed))


def safe_text(text: object, limit: int = MAX_TEXT) -> str:
    """Text from a sandbox for an output area: colours stay, other escapes go, and its length is bounded."""
    if not isinstance(text, str):
        raise Refused(f"it is {type(text).__name__}, not text")
    if len(text) > limit:
        text = f"{text[:limit]}\n[… {len(text) - limit} more characters are not shown]"
    return only_colours(encodable(text))


def _name(mime: object) -> str:
    """A MIME type as it may be printed; unknown shapes become one that is on no list."""
    if not isinstance(mime, str) or len(mime) > 100 or not mime.isascii() or not mime.isprintable():
        return "an unreadable MIME type"
    return mime.lower()


def _clean(mime: str, value: object) -> tuple[object, tuple[str, ...]]:
    if mime in _NEVER:
        raise Refused(_NEVER[mime])
    if mime == "application/json":
        return check_json(value), ()
    cleaner = _TEXTUAL.get(mime)
    if cleaner is None and mime not in IMAGE_TYPES:
        raise Refused("not a type that is shown")
    # nbformat allows text as a list of lines.
    if isinstance(value, list) and len(value) <= 1_000_000 and all(isinstance(line, str) for line in value):
        value = "".join(value)
    if not isinstance(value, str):
        raise Refused(f"it is {type(value).__name__}, not text")
    if cleaner is None:
        return check_image(mime, value), ()
    return cleaner(encodable(value))


def _html(text: str) -> tuple[str, tuple[str, ...]]:
    from sandbox_kernel.untrusted.html import clean_html  # nh3 is loaded by the first cell that needs it

    return clean_html(text)


def _svg(text: str) -> tuple[str, tuple[str, ...]]:
    from sandbox_kernel.untrusted.svg import clean_svg

    return clean_svg(text), ()


_TEXTUAL: dict[str, Callable[[str], tuple[str, tuple[str, ...]]]] = {
    "text/plain": lambda text: (safe_text(text), ()),
    "text/html": _html,
    "text/markdown": lambda text: (clean_markdown(text), ()),
    "text/latex": lambda text: (check_latex(text), ()),
    "image/svg+xml": _svg,
}


def _metadata(metadata: object, kept: Mapping[str, object]) -> dict[str, object]:
    """Sizes and backgrounds of pictures; nothing else of a sandbox's metadata means anything to a page we trust."""
    if not isinstance(metadata, Mapping):
        return {}
    result: dict[str, object] = {}
    for mime in kept:
        entry = metadata.get(mime)
        if not mime.startswith("image/") or not isinstance(entry, Mapping):
            continue
        fields: dict[str, object] = {}
        for side in ("width", "height"):
            number = entry.get(side)
            if isinstance(number, int | float) and not isinstance(number, bool) and 0 < number <= 16384:
                fields[side] = number
        if entry.get("needs_background") in ("light", "dark"):
            fields["needs_background"] = entry["needs_background"]
        if fields:
            result[mime] = fields
    return result
