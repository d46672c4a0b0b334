"""Makes markup work without a network: what it would load from files, or from a package that is installed, is put in.

The markup is the user's own, and the files are read with the user's rights inside the jail.
"""

from __future__ import annotations

import html
import os
import re
import sys

from .frame import LIBRARIES
from .packaged import folder as package_folder
from .packaged import packaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Match, Tuple

_MOST_BYTES = 8 << 20
_WRAPPED = re.compile(r"<iframe\b[^<>]*?\ssrcdoc=(?:\"([^\"]*)\"|'([^']*)')", re.DOTALL)
_FILE_FRAME = re.compile(r"\s*<iframe\b[^<>]*?\ssrc=\"([^\":?]+\.html?)\"[^<>]*>\s*</iframe>\s*\Z", re.DOTALL)
_FRAME_HEIGHT = re.compile(r"\sheight=\"(\d{1,4})(?:px)?\"")
_SCRIPT = re.compile(r"<script\b[^<>]*?\ssrc=[\"']([^\"']+)[\"'][^<>]*>\s*</script>", re.IGNORECASE)
_STYLE_SHEET = re.compile(r"<link\b[^<>]*?\shref=[\"']([^\"']+\.css)[\"'][^<>]*>", re.IGNORECASE)
_ITABLES = re.compile(r"window\.(_itables_[0-9_a-z]+)\b")
_ICON_FONT = re.compile(r"<link\b[^<>]*?\shref=[\"'][^\"'<>]*font-awesome[^<>]*>", re.IGNORECASE)
_NO_LEAFLET = (
    "<p>This map is drawn by Leaflet, which a frame cannot load from the network. "
    "Install it beside the map's own package: pip install XStatic-Leaflet XStatic-jQuery</p>"
)
#: The signs that matplotlib's animation player takes from a font of the network.
_PLAYER_STYLE = "<style>{}</style>".format(
    "".join(
        f'.fa-{name}::before{{content:"{sign}";font-style:normal}}'
        for name, sign in {
            "minus": "\u2212", "plus": "+", "pause": "\u23f8", "play": "\u25b6", "step-backward": "\u23ee",
            "step-forward": "\u23ed", "fast-backward": "\u23ea", "fast-forward": "\u23e9",
        }.items()
    )
    + ".fa-flip-horizontal::before{display:inline-block;transform:scaleX(-1)}"
)  # fmt: skip


def offline(markup: str) -> Tuple[str, List[str], int | None]:
    """Return the markup of a frame, the libraries that it needs, and its height where that is known."""
    height = None
    folder = os.getcwd()
    file = _FILE_FRAME.match(markup)
    if file is not None and _is_small(os.path.join(folder, html.unescape(file[1]))):
        path = os.path.join(folder, html.unescape(file[1]))
        size = _FRAME_HEIGHT.search(markup)
        height, folder, markup = int(size[1]) if size else None, os.path.dirname(path), _text(path)
    wrapped = _WRAPPED.search(markup)
    if wrapped is not None and markup.count("<iframe") == 1:
        markup = html.unescape(wrapped[1] or wrapped[2] or "")
    libraries: List[str] = []

    def script(match: Match[str]) -> str:
        known = packaged(match[1])
        if known:
            libraries.append(known)
            return ""
        path = os.path.join(folder, html.unescape(match[1]))
        return "<script>" + _text(path).replace("</", "<\\/") + "</script>" if _is_small(path) else match[0]

    def style(match: Match[str]) -> str:
        known = packaged(match[1])
        if known:
            libraries.append(known)
            return ""
        path = os.path.join(folder, html.unescape(match[1]))
        return "<style>" + _text(path).replace("</", "<\\/") + "</style>" if _is_small(path) else match[0]

    if len(markup) <= _MOST_BYTES:
        markup = _STYLE_SHEET.sub(style, _SCRIPT.sub(script, markup))
    if _ITABLES.search(markup) and "itables.javascript" in sys.modules:
        libraries.append(LIBRARIES.from_source("itables", _itables))
    if "animation" in markup and "fa fa-" in markup and _ICON_FONT.search(markup):
        markup = _PLAYER_STYLE + _ICON_FONT.sub("", markup)
    if "L.map(" in markup and not package_folder("leaflet"):
        markup = _NO_LEAFLET + markup
    return markup, list(dict.fromkeys(libraries)), height


def _is_small(path: str) -> bool:
    return "://" not in path and os.path.isfile(path) and os.path.getsize(path) <= _MOST_BYTES


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES)


def _itables() -> str:
    module = sys.modules["itables.javascript"]
    made = module.generate_init_offline_itables_html(module.opt.dt_bundle)
    source = str(made[made.index("<script>") + len("<script>") : made.index("</script>")])
    # Without it tables have light colours on a dark page too: white text on white.
    follow = "".join(
        f"window.{name}.then((made) => made.set_or_remove_dark_class?.());" for name in _ITABLES.findall(source)[:1]
    )
    return source + follow
