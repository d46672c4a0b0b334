"""Cleans the displays of a session, like ``sanitize_bundle``, and puts those that need scripts into a frame.

Whether markup needs a frame is no question of safety: a frame is isolated, and without one the markup is cleaned. It is
the question what the user gets to see, so a textual search answers it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.frames.frame_output import (
    FRAME,
    LIBRARY,
    MAX_MARKUP,
    FrameOutput,
    check_frame,
    check_library,
)
from sandbox_kernel.untrusted.json_value import encodable
from sandbox_kernel.untrusted.markup.css import TABLE_STYLE
from sandbox_kernel.untrusted.sanitize import SanitizedBundle, in_page, sanitize_bundle, windows

#: Elements that the page does not show, and handlers of events in any element.
_TAGS = frozenset((
    "script", "style", "link", "iframe", "object", "embed", "svg", "canvas", "math", "audio", "video", "form", "input",
    "button", "select", "textarea",
))  # fmt: skip
_TAG = re.compile(r"<([A-Za-z]+)[\s/>]")
_HANDLER = re.compile(r"<[A-Za-z][^<>]{0,2000}\son[A-Za-z]{3,30}\s*=")
#: Is in every handler and in little else: looked for first, because it is found in a tenth of the time.
_LIKE_HANDLER = re.compile(r"\son[A-Za-z]{3,30}\s*=")
_LOADED = re.compile(
    r"<(script|link|img|iframe|audio|video|source)\s[^<>]{0,2000}?\b(?:src|href)\s*=\s*[\"']?(?:https?:)?//([A-Za-z0-9.-]{1,100})",
    re.IGNORECASE,
)
_WHAT = {
    "script": "a script",
    "link": "a style sheet",
    "img": "a picture",
    "iframe": "a page",
    "audio": "a sound",
    "video": "a video",
    "source": "a sound or video",
}
_MOST_HOSTS = 3


def sanitize_display(data: object, metadata: object, gate: str = "") -> SanitizedBundle:
    """Clean one display. Never raises, whatever the input is.

    Args:
        data: the MIME bundle.
        metadata: its metadata.
        gate: the name of the session's gate for widgets; empty where there are none.

    """
    if not isinstance(data, Mapping):
        return sanitize_bundle(data, metadata)
    try:
        if LIBRARY in data:
            return SanitizedBundle(check_library(data[LIBRARY]).bundle(), {})
        frame = _frame_of(data, gate)
    except ContentRefused as reason:
        rest = {mime: value for mime, value in data.items() if mime not in (FRAME, LIBRARY)}
        clean = sanitize_bundle(rest or {"text/plain": ""}, metadata)
        removed = (f"an interactive output was not shown: {reason}", *clean.removed)
        return SanitizedBundle(clean.data, clean.metadata, removed)
    if frame is None:
        return sanitize_bundle(data, metadata)
    shown = in_page(frame.html) if FRAME not in data else None
    if shown is not None:
        return _with_html(data, metadata, *shown)
    rest = {mime: value for mime, value in data.items() if mime in _BESIDE}
    clean = sanitize_bundle(rest or {"text/plain": "[an interactive output]"}, metadata)
    removed = (*clean.removed, *refused_hosts(frame.html))
    return SanitizedBundle({**clean.data, **frame.bundle()}, clean.metadata, removed)


def _with_html(data: Mapping[object, object], metadata: object, markup: str, taken: tuple[str, ...]) -> SanitizedBundle:
    """Clean a bundle whose HTML is clean already."""
    clean = sanitize_bundle({**data, "text/html": ""}, metadata)
    words = (f"HTML was shown without {', '.join(taken)}",) if taken else ()
    return SanitizedBundle({**clean.data, "text/html": markup}, clean.metadata, (*clean.removed, *words))


#: Forms of an output that are kept beside its frame, for viewers that show no frame.
_BESIDE = frozenset(("text/plain", "image/png", "image/jpeg", "image/svg+xml"))


def _frame_of(data: Mapping[object, object], gate: str) -> FrameOutput | None:
    if FRAME in data:
        return check_frame(data[FRAME], gate)
    markup = data.get("text/html")
    if isinstance(markup, list) and len(markup) <= 1_000_000 and all(isinstance(line, str) for line in markup):
        markup = "".join(markup)
    if isinstance(markup, str) and len(markup) <= MAX_MARKUP and needs_frame(markup):
        return FrameOutput(html=encodable(markup))
    return None


def needs_frame(markup: str) -> bool:
    """Whether markup loses something when it is cleaned for the page: scripts, styles, drawings, controls."""
    return any(map(_loses, windows(markup)))


def _loses(markup: str) -> bool:
    markup = TABLE_STYLE.sub("", markup)
    if not _TAGS.isdisjoint(name.lower() for name in set(_TAG.findall(markup))):
        return True
    return _LIKE_HANDLER.search(markup) is not None and _HANDLER.search(markup) is not None


def refused_hosts(markup: str) -> tuple[str, ...]:
    """Return one sentence on what the beginning of markup wants to load, and from where; a frame loads nothing."""
    found: dict[str, list[str]] = {}
    for tag, host in dict.fromkeys((tag.lower(), host.lower()) for tag, host in _LOADED.findall(next(windows(markup)))):
        found.setdefault(_WHAT[tag], []).append(host)
    parts = [f"{what} from {_few(hosts)}" for what, hosts in found.items()]
    return (f"this output wanted to load {' and '.join(parts)}: blocked",) if parts else ()


def _few(hosts: list[str]) -> str:
    more = len(hosts) - _MOST_HOSTS
    return ", ".join(hosts[:_MOST_HOSTS]) + (f" and {more} more" if more > 0 else "")
