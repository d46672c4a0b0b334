"""Code that markup wants from a content network, taken from packages that are installed: XStatic's, and pyvis' own.

XStatic packages hold the files of one JavaScript library each. What is found here becomes a library of the notebook;
what is not found stays in the markup, is not loaded, and the receipt says so.
"""

from __future__ import annotations

import base64
import os
import re
import sys

from .frame import LIBRARIES, as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Match

_VIS = re.compile(r"/vis-network/(9\.[0-9.]+)/[^?]*\.js\Z")
_LEAFLET = re.compile(r"/leaflet(?:@|/)1\.[0-9.]+/(?:dist/)?leaflet(?:\.min)?\.(?:js|css)\Z")
_JQUERY = re.compile(r"/jquery(?:@3|/3|-3)[0-9./a-z]*\.js\Z")
_ICONS = re.compile(r"/(?:@fortawesome/fontawesome-free|font-?awesome)[@/][^?]*\.css\Z", re.IGNORECASE)
_PLACE_OF_FILE = re.compile(r"url\(['\"]?(?!data:|#)([^'\")?#]+)[^)]*\)(?:\s*format\(['\"]\w+['\"]\))?")
_KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".woff2": "font/woff2"}


def packaged(address: str) -> str:
    """Return the SHA-256 of the library that holds what stands at this address; empty when no package has it."""
    vis = _VIS.search(address)
    if vis is not None:
        return _vis(vis[1])
    if _LEAFLET.search(address) and folder("leaflet"):
        return LIBRARIES.from_source("leaflet", _leaflet)
    if _JQUERY.search(address) and folder("jquery"):
        return LIBRARIES.from_file("jquery", os.path.join(folder("jquery"), "jquery.min.js"))
    if _ICONS.search(address):
        return icons()
    return ""


def icons() -> str:
    """Return the SHA-256 of Font Awesome, whose signs stand on buttons; empty when it is not installed."""
    return LIBRARIES.from_source("font-awesome", _icons) if folder("font_awesome") else ""


def folder(name: str) -> str:
    """Return the folder with the files of an XStatic package; empty when it is not installed."""
    for place in sys.path:
        found = os.path.join(place or ".", "xstatic", "pkg", name, "data")
        if os.path.isdir(found):
            return found
    return ""


def _vis(version: str) -> str:
    package = sys.modules.get("pyvis")
    if package is None:
        return ""
    path = os.path.join(os.path.dirname(package.__file__ or ""), "lib", f"vis-{version}", "vis-network.min.js")
    return LIBRARIES.from_file("vis-network", path) if os.path.isfile(path) else ""


def _leaflet() -> str:
    place = folder("leaflet")
    names = {"iconUrl": "marker-icon", "iconRetinaUrl": "marker-icon-2x", "shadowUrl": "marker-shadow"}
    signs = {key: as_data(os.path.join(place, "images", f"{name}.png")) for key, name in names.items()}
    return (
        f"{_text(os.path.join(place, 'leaflet.js'))}\n;L.Icon.Default.imagePath = '';\n"
        f"Object.assign(L.Icon.Default.prototype.options, {as_json(signs)});\n"
        f"{_added(style_sheet(os.path.join(place, 'leaflet.css')))}"
    )


def _icons() -> str:
    place = os.path.join(folder("font_awesome"), "css")
    return _added(
        "".join(style_sheet(os.path.join(place, f"{name}.min.css")) for name in ("fontawesome", "solid", "v4-shims"))
    )


def style_sheet(path: str) -> str:
    """Return a style sheet with its pictures and fonts put in, each font in one form."""

    def put_in(match: Match[str]) -> str:
        file = os.path.join(os.path.dirname(path), match[1])
        known = os.path.splitext(file)[1] in _KINDS and os.path.isfile(file)
        return match[0].replace(match[0].partition(")")[0], f"url({as_data(file)}") if known else "url(data:,)"

    return _PLACE_OF_FILE.sub(put_in, _text(path))


def as_data(path: str) -> str:
    """Return a picture or font as a data URL."""
    with open(path, "rb") as file:
        packed = base64.b64encode(file.read()).decode("ascii")
    return f"data:{_KINDS[os.path.splitext(path)[1]]};base64,{packed}"


def _added(style: str) -> str:
    """Return code that adds a style to the document of a frame."""
    return f"document.head.append(Object.assign(document.createElement('style'), {{textContent: {as_json(style)}}}));\n"


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
