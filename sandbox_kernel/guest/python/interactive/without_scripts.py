"""Makes HTML that can do without scripts do without: it is then shown in the page and not in a frame.

Two kinds: sound and video from files, which a page could not load, are put in; estimators of scikit-learn lose their
script, which copies names and picks colours for a dark page.
"""

from __future__ import annotations

import base64
import html
import mimetypes
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Match

_MOST_BYTES = 8 << 20
_PLAYER = re.compile(r"<(?:audio|video)\b", re.IGNORECASE)
_FILE = re.compile(r"(<(?:audio|video|source)\b[^<>]*?\ssrc=)\"([^\":?]+)\"", re.IGNORECASE)
_ESTIMATOR = '<div id="sk-container-id-'
_SCRIPT = re.compile(r"<script>.*?</script>", re.DOTALL)
_COPY_BUTTON = re.compile(r"<button\b[^<>]*?\bclass=\"copy-paste-icon\"[^<>]*>\s*</button>", re.DOTALL)
_COPY_SIGN = re.compile(r"background-image:\s*url\([^()]*\);")
_LIGHT = re.compile(r"\.sk-global\.light\s*\{[^{}]*\}")
#: The colours of the page, whether it is light or dark; those of a light page where it has none.
_COLOURS = (
    ".sk-global { --sklearn-color-text-on-default-background: var(--jp-content-font-color0, black); "
    "--sklearn-color-background: var(--jp-layout-color0, white); "
    "--sklearn-color-border-box: var(--jp-content-font-color0, black); --sklearn-color-icon: #787878; }"
)


def without_scripts(markup: str) -> str:
    """Return the markup, changed where it is of one of the two kinds."""
    if _PLAYER.search(markup):
        return _FILE.sub(_put_in, markup)
    if _ESTIMATOR in markup:
        return _LIGHT.sub(_COLOURS, _COPY_SIGN.sub("", _COPY_BUTTON.sub("", _SCRIPT.sub(_unless_own, markup))))
    return markup


def _unless_own(script: Match[str]) -> str:
    return "" if "forceTheme(" in script[0] else script[0]


def _put_in(match: Match[str]) -> str:
    path = html.unescape(match[2])
    kind = mimetypes.guess_type(path)[0] or ""
    if not kind.startswith(("audio/", "video/")) or not os.path.isfile(path) or os.path.getsize(path) > _MOST_BYTES:
        return match[0]
    with open(path, "rb") as file:
        data = base64.b64encode(file.read(_MOST_BYTES)).decode()
    return f'{match[1]}"data:{kind};base64,{data}"'
