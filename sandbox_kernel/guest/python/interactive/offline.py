"""Makes markup work without a network: what it would load from files, or from a package that is installed, is put in.

The markup is the user's own, and the files are read with the user's rights inside the jail.
"""

from __future__ import annotations

import base64
import html
import importlib.util
import mimetypes
import os
import re
import sys

from .frame import LIBRARIES, MAKERS, as_json, frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Match


_MOST_BYTES = 8 << 20
_WRAPPED = re.compile(r"<iframe\b[^<>]*?\ssrcdoc=(?:\"([^\"]*)\"|'([^']*)')", re.DOTALL)
_FILE_FRAME = re.compile(r"\s*<iframe\b[^<>]*?\ssrc=\"([^\":?]+\.html?)\"[^<>]*>\s*</iframe>\s*\Z", re.DOTALL)
_FRAME_HEIGHT = re.compile(r"\sheight=\"(\d{1,4})(?:px)?\"")
_SCRIPT = re.compile(r"<script\b[^<>]*?\ssrc=[\"']([^\"']+)[\"'][^<>]*>\s*</script>", re.IGNORECASE)
_STYLE_SHEET = re.compile(r"<link\b[^<>]*?\shref=[\"']([^\"']+\.css)[\"'][^<>]*>", re.IGNORECASE)
_PLAYED = re.compile(r"(<(?:audio|video|source)\b[^<>]*?\ssrc=)\"([^\":?]+)\"", re.IGNORECASE)
_ITABLES = re.compile(r"window\.(_itables_[0-9_a-z]+)\b")
_ICON_FONT = re.compile(r"<link\b[^<>]*?\shref=[\"'][^\"'<>]*font-awesome[^<>]*>", re.IGNORECASE)
#: What a frame with a sound is high where no extension of ours adapts it.
_AUDIO_HEIGHT = 80
_NO_LEAFLET = (
    "<p>This map is drawn by Leaflet, which a frame cannot load from the network. "
    "Install it beside the map's own package: pip install 'sandbox-kernel[interactive]'</p>"
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


def offline(markup: str) -> Dict[str, Any]:
    """Return the frame of markup, with the libraries that it needs, and its height where that is known."""
    height = None
    folder = os.getcwd()
    file = _FILE_FRAME.match(markup)
    if file is not None and _is_small(os.path.join(folder, html.unescape(file[1]))):
        path = os.path.join(folder, html.unescape(file[1]))
        size = _FRAME_HEIGHT.search(markup)
        height, folder, markup = int(size[1]) if size else None, os.path.dirname(path), read(path)
    wrapped = _WRAPPED.search(markup)
    if wrapped is not None and markup.count("<iframe") == 1:
        markup = html.unescape(wrapped[1] or wrapped[2] or "")
    libraries: List[str] = []

    def loaded(match: Match[str]) -> str:
        known = packaged(match[1])
        if known:
            libraries.append(known)
            return ""
        path = os.path.join(folder, html.unescape(match[1]))
        tag = "script" if match[0][1:7].lower() == "script" else "style"
        return f"<{tag}>" + read(path).replace("</", "<\\/") + f"</{tag}>" if _is_small(path) else match[0]

    def played(match: Match[str]) -> str:
        path = os.path.join(folder, html.unescape(match[2]))
        kind = mimetypes.guess_type(path)[0] or ""
        is_player = kind.startswith(("audio/", "video/")) and _is_small(path)
        return f'{match[1]}"{as_data(path, kind)}"' if is_player else match[0]

    if len(markup) <= _MOST_BYTES:
        markup = _PLAYED.sub(played, markup)
        markup = _STYLE_SHEET.sub(loaded, _SCRIPT.sub(loaded, markup))
    if _ITABLES.search(markup) and "itables.javascript" in sys.modules:
        libraries.append(LIBRARIES.named("itables"))
    if "animation" in markup and "fa fa-" in markup and _ICON_FONT.search(markup):
        markup = _PLAYER_STYLE + _ICON_FONT.sub("", markup)
    if "L.map(" in markup and not package_folder("leaflet"):
        markup = _NO_LEAFLET + markup
    if height is None and "<audio" in markup and "<video" not in markup:
        height = _AUDIO_HEIGHT
    return frame(markup, list(dict.fromkeys(libraries)), height)


def _is_small(path: str) -> bool:
    return "://" not in path and os.path.isfile(path) and os.path.getsize(path) <= _MOST_BYTES


def _itables(_: str) -> str:
    module = importlib.import_module("itables.javascript")
    made = module.generate_init_offline_itables_html(module.opt.dt_bundle)
    source = str(made[made.index("<script>") + len("<script>") : made.index("</script>")])
    # Without it tables have light colours on a dark page too: white text on white.
    follow = "".join(
        f"window.{name}.then((made) => made.set_or_remove_dark_class?.());" for name in _ITABLES.findall(source)[:1]
    )
    return source + follow


# Code that markup wants from a content network, taken from packages that are installed: XStatic's, and pyvis' own.
#
# XStatic packages hold the files of one JavaScript library each. What is found here becomes a library of the notebook;
# what is not found stays in the markup, is not loaded, and the receipt says so.

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
        return LIBRARIES.named(f"vis-network {vis[1]}") if _vis_file(vis[1]) else ""
    if _LEAFLET.search(address) and package_folder("leaflet"):
        return LIBRARIES.named("leaflet")
    if _JQUERY.search(address) and package_folder("jquery"):
        return LIBRARIES.named("jquery")
    return icons() if _ICONS.search(address) else ""


def icons() -> str:
    """Return the SHA-256 of Font Awesome, whose signs stand on buttons; empty when it is not installed."""
    return LIBRARIES.named("font-awesome") if package_folder("font_awesome") else ""


def package_folder(name: str) -> str:
    """Return the folder with the files of an XStatic package; empty when it is not installed."""
    for place in sys.path:
        found = os.path.join(place or ".", "xstatic", "pkg", name, "data")
        if os.path.isdir(found):
            return found
    return ""


def _vis_file(version: str) -> str:
    package = importlib.util.find_spec("pyvis")
    folder = os.path.dirname(package.origin or "") if package is not None else ""
    path = os.path.join(folder, "lib", f"vis-{version}", "vis-network.min.js")
    return path if os.path.isfile(path) else ""


def _leaflet(_: str) -> str:
    place = package_folder("leaflet")
    names = {"iconUrl": "marker-icon", "iconRetinaUrl": "marker-icon-2x", "shadowUrl": "marker-shadow"}
    signs = {key: as_data(os.path.join(place, "images", f"{name}.png")) for key, name in names.items()}
    return (
        f"{read(os.path.join(place, 'leaflet.js'))}\n;L.Icon.Default.imagePath = '';\n"
        f"Object.assign(L.Icon.Default.prototype.options, {as_json(signs)});\n"
        f"{_added(style_sheet(os.path.join(place, 'leaflet.css')))}"
    )


def _icons(_: str) -> str:
    place = os.path.join(package_folder("font_awesome"), "css")
    return _added(
        "".join(style_sheet(os.path.join(place, f"{name}.min.css")) for name in ("fontawesome", "solid", "v4-shims"))
    )


def style_sheet(path: str) -> str:
    """Return a style sheet with its pictures and fonts put in, each font in one form."""

    def put_in(match: Match[str]) -> str:
        file = os.path.join(os.path.dirname(path), match[1])
        known = os.path.splitext(file)[1] in _KINDS and os.path.isfile(file)
        return match[0].replace(match[0].partition(")")[0], f"url({as_data(file)}") if known else "url(data:,)"

    return _PLACE_OF_FILE.sub(put_in, read(path))


def as_data(path: str, kind: str = "") -> str:
    """Return a file as a data URL: a picture or font, or of this type."""
    with open(path, "rb") as file:
        packed = base64.b64encode(file.read()).decode("ascii")
    return f"data:{kind or _KINDS[os.path.splitext(path)[1]]};base64,{packed}"


def _added(style: str) -> str:
    return f"document.head.append(Object.assign(document.createElement('style'), {{textContent: {as_json(style)}}}));\n"


def read(path: str) -> str:
    """Return the text of a file."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES)


MAKERS.update(
    {
        "itables": _itables, "leaflet": _leaflet, "font-awesome": _icons,
        "jquery": lambda _: read(os.path.join(package_folder("jquery"), "jquery.min.js")),
        "vis-network": lambda version: read(_vis_file(version)),
    }
)  # fmt: skip
