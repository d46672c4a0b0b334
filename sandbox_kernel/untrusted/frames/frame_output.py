"""Checks frames and libraries that a session sends, and makes the MIME bundles that show them.

A *frame* is markup of a sandbox with scripts; a *library* is JavaScript of several frames, known by the SHA-256 of its
source: a notebook holds it once. Both are data for the documents of ``document.py``, and never part of a page.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.css import TABLE_STYLE, names
from sandbox_kernel.untrusted.frames.comm_message import CommMessage
from sandbox_kernel.untrusted.frames.document import LEAST_HEIGHT, MOST_HEIGHT, USUAL_HEIGHT, frame
from sandbox_kernel.untrusted.sanitize import SanitizedBundle, joined, sanitize_bundle
from sandbox_kernel.util.own_folder import LockedFolder, OwnFiles
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import encodable

FRAME = "application/vnd.sandbox-kernel.frame+json"
LIBRARY = "application/vnd.sandbox-kernel.library+json"

MAX_MARKUP = 12 << 20
MAX_LIBRARIES = 16
MAX_PACKED = 8 << 20
MAX_SOURCE = 32 << 20
#: The most characters of a widget that is saved with its state.
MAX_SAVED = 2 << 20
#: The most characters that the markup of a frame takes in HTML, where quotes and brackets are seven each.
MAX_ESCAPED = 32 << 20
_ONE_EACH = bytes(set(range(0x20, 0x7F)) - set(b"\"&'<>\\"))

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_ID_LENGTH = 32
_MODEL = re.compile(r"[0-9a-f-]{1,64}\Z")
_TITLE = re.compile(r"[\w.@/ -]{1,60}\Z", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class FrameOutput:
    """Markup to be shown in a frame, the libraries that it needs, and its height where nothing adapts it."""

    html: str
    libraries: tuple[str, ...] = ()
    height: int = USUAL_HEIGHT
    #: The model that is drawn, and the gate to its session; empty for frames without widgets.
    model: str = ""
    gate: str = ""

    def bundle(self) -> dict[str, object]:
        """Return what the page gets: data for our renderer, and the same frame as HTML for all others."""
        payload = [
            *({"type": "needs", "sha256": name} for name in self.libraries),
            {"type": "show", "html": self.html},
        ]
        data: dict[str, object] = {"html": self.html, "libraries": list(self.libraries), "height": self.height}
        if self.model:
            data["widget"] = {"model_id": self.model, "gate": self.gate}
            payload = [{"type": "show", "html": _NEEDS_KERNEL}]
        elif escaped_length(self.html) > MAX_ESCAPED:
            payload = [{"type": "show", "html": _NEEDS_EXTENSION}]
        # Without markup it only brings libraries, for figures inside of a widget: nothing is seen of it.
        height = LEAST_HEIGHT if self.model else self.height if self.html else 0
        return {FRAME: data, "text/html": frame(payload, height)}


_ELSEWHERE = (
    "<p>[an interactive output: it is drawn in JupyterLab and Notebook 7, and by nbconvert where sandbox-kernel is "
    "installed; %sandbox --self-contained puts its code into the notebook]</p>"
)


def without_document(data: Mapping[str, object]) -> dict[str, object]:
    """Return the bundle of a frame without its HTML, where that would lack its libraries; others as they are."""
    entry = data.get(FRAME)
    if not isinstance(entry, Mapping) or not entry.get("libraries") or "widget" in entry:
        return dict(data)
    return {**data, "text/html": _ELSEWHERE if entry.get("html") else ""}


def escaped_length(markup: str) -> int:
    """Return the most characters that markup takes in the HTML of a frame, without making that."""
    raw = markup.encode("utf-8", "replace")
    return len(raw) + 6 * len(raw.translate(None, _ONE_EACH))


def saved_widget(data: Mapping[str, object], messages: Sequence[CommMessage]) -> str | None:
    """Return HTML that draws a widget as it is now, for pages without kernel or extension; None: it is too large."""
    widget, libraries = data.get("widget"), data.get("libraries")
    if not isinstance(widget, Mapping) or not isinstance(libraries, list) or not messages:
        return None
    if len(str(data["html"])) + sum(len(part) for message in messages for part in message.buffers) > MAX_SAVED:
        return None
    payload: list[Mapping[str, object]] = [{"type": "needs", "sha256": name} for name in libraries]
    payload.append({"type": "show", "html": data["html"]})
    for message in messages:
        parts = [base64.b64encode(part).decode() for part in message.buffers]
        payload.append({"type": "comm", "msg": message.for_page(), "buffers": parts})
    payload.append({"type": "view", "model_id": widget["model_id"]})
    text = json.dumps(payload)
    for number, message in enumerate(messages):  # the same in each run, for those who compare notebooks
        if len(message.comm_id) == _ID_LENGTH:
            text = text.replace(message.comm_id, f"{number:0{_ID_LENGTH}x}")
    made = frame(json.loads(text), int(str(data.get("height", USUAL_HEIGHT))))
    return made if len(made) <= MAX_SAVED else None


def ids_apart(data: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Return the bundle of a widget's frame, and metadata with the ids that differ in each run."""
    entry = data.get(FRAME)
    if not isinstance(entry, Mapping) or "widget" not in entry:
        return dict(data), {}
    return {**data, FRAME: {**entry, "widget": True}}, {FRAME: entry["widget"]}


_NEEDS_KERNEL = "<p>[a widget: it works in JupyterLab and Notebook 7 while its kernel runs]</p>"
_NEEDS_EXTENSION = "<p>[a large interactive output: it is shown in JupyterLab and Notebook 7]</p>"


def check_frame(value: object, gate: str = "") -> FrameOutput:
    """Return a frame that a session sent; raises ``ContentRefused`` if it is not one."""
    if not isinstance(value, Mapping) or not isinstance(markup := value.get("html"), str):
        raise ContentRefused("it is no frame")
    if len(markup) > MAX_MARKUP:
        raise ContentRefused(f"it is larger than {MAX_MARKUP >> 20} MB")
    libraries = value.get("libraries", [])
    if not isinstance(libraries, list) or len(libraries) > MAX_LIBRARIES or not all(map(_is_digest, libraries)):
        raise ContentRefused("its list of libraries is malformed")
    height = value.get("height")
    if isinstance(height, bool) or not isinstance(height, int | float) or not height > 0:
        height = USUAL_HEIGHT
    fitting = round(min(max(height, LEAST_HEIGHT), MOST_HEIGHT))
    widget = value.get("widget")
    model = widget.get("model_id") if isinstance(widget, Mapping) and gate else ""
    if not isinstance(model, str) or (model and not _MODEL.match(model)):
        raise ContentRefused("its widget has no usable id")
    return FrameOutput(
        html=encodable(markup), libraries=tuple(libraries), height=fitting, model=model, gate=gate if model else ""
    )


def library_bundle(value: object) -> dict[str, object]:
    """Return a library that a session sent; raises ``ContentRefused`` if its content is not what its name says."""
    if not isinstance(value, Mapping) or not isinstance(packed := value.get("gzip"), str):
        raise ContentRefused("it is no library")
    name, title = value.get("sha256"), value.get("title")
    if not _is_digest(name) or not isinstance(title, str) or not _TITLE.match(title):
        raise ContentRefused("its name is malformed")
    if len(packed) > MAX_PACKED * 4 // 3:
        raise ContentRefused(f"it is larger than {MAX_PACKED >> 20} MB")
    unpacker = zlib.decompressobj(wbits=31)
    try:
        source = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_SOURCE + 1)
    except (binascii.Error, zlib.error):
        raise ContentRefused("it is not gzip in base64") from None
    if len(source) > MAX_SOURCE or not unpacker.eof:
        raise ContentRefused(f"it is cut off, or larger than {MAX_SOURCE >> 20} MB")
    if hashlib.sha256(source).hexdigest() != name:
        raise ContentRefused("its content is not what its SHA-256 says")
    return {LIBRARY: {"sha256": name, "title": title, "gzip": packed}}


def library_output(entry: Mapping[str, object]) -> dict[str, object]:
    """Return the output that brings a library into a notebook. The source is in it once, in the HTML."""
    name, title = entry["sha256"], entry["title"]
    return {
        LIBRARY: {"sha256": name, "title": title},
        "text/html": frame([{"type": "keep", "sha256": name, "gzip": entry["gzip"]}], 0),
        "text/plain": f"[code of {title} for the interactive outputs of this notebook]",
    }


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and bool(_SHA256.match(value))


# Whether markup needs a frame is no question of safety: a frame is isolated, and without one the markup is cleaned. It
# is the question what the user gets to see, so a textual search answers it.

#: Elements that the page does not show, and handlers of events in any element.
_TAGS = names("script style link iframe object embed svg canvas math audio video form input button select textarea")
_TAG = re.compile(r"<([A-Za-z]+)[\s/>]")
#: How much is searched at once: other threads of the host have their turn in between.
_WINDOW, _LONGEST_TAG = 1 << 19, 20
_HANDLER = re.compile(r"<[A-Za-z][^<>]{0,2000}\son[A-Za-z]{3,30}\s*=")
#: Is in every handler and in little else: looked for first, because it is found in a tenth of the time.
_LIKE_HANDLER = re.compile(r"\son[A-Za-z]{3,30}\s*=")


def sanitize_display(data: object, metadata: object, gate: str = "") -> SanitizedBundle:
    """Clean one display. Never raises, whatever the input is. ``gate`` is the name of the gate for widgets."""
    if not isinstance(data, Mapping):
        return sanitize_bundle(data, metadata)
    frame, markup = None, joined(data.get("text/html"))
    try:
        if LIBRARY in data:
            return SanitizedBundle(library_bundle(data[LIBRARY]), {})
        if FRAME in data:
            frame = check_frame(data[FRAME], gate)
    except ContentRefused as reason:
        rest = {mime: value for mime, value in data.items() if mime not in (FRAME, LIBRARY)}
        clean = sanitize_bundle(rest or {"text/plain": ""}, metadata)
        removed = (f"an interactive output was not shown: {reason}", *clean.removed)
        return SanitizedBundle(clean.data, clean.metadata, removed)
    if frame is None and isinstance(markup, str) and len(markup) <= MAX_MARKUP and needs_frame(markup):
        frame = FrameOutput(html=encodable(markup))
    frame = frame or _drawing(data)
    if frame is None:
        return sanitize_bundle(data, metadata)
    rest = {mime: value for mime, value in data.items() if mime in _BESIDE}
    clean = sanitize_bundle(rest or {"text/plain": "[an interactive output]"}, metadata)
    return SanitizedBundle({**clean.data, **frame.bundle()}, clean.metadata, clean.removed)


#: Forms of an output that are kept beside its frame, for viewers that show no frame.
_BESIDE = frozenset(("text/plain", "image/png", "image/jpeg"))
_HEIGHT = re.compile(r"<svg\s[^>]{0,1000}?\sheight=[\"']([0-9]{1,5})[0-9.]*(pt)?")


def _drawing(data: Mapping[object, object]) -> FrameOutput | None:
    """Return the frame of a drawing that is not plain enough for the page; None where something else is shown."""
    drawing = joined(data.get("image/svg+xml"))
    if not isinstance(drawing, str) or "<svg" not in drawing or len(drawing) > MAX_MARKUP:
        return None
    if not {"text/html", "text/markdown"}.isdisjoint(data):  # which a page shows instead
        return None
    from sandbox_kernel.untrusted.svg import clean_svg

    try:
        clean_svg(encodable(drawing))
    except ContentRefused:
        found = _HEIGHT.search(drawing, 0, 1 << 16)
        height = int(found[1]) * (4 if found[2] else 3) // 3 if found else USUAL_HEIGHT
        return check_frame({"html": drawing, "height": height})
    return None


def needs_frame(markup: str) -> bool:
    """Whether markup loses something when it is cleaned for the page: scripts, styles, drawings, controls."""
    markup = TABLE_STYLE.sub("", markup)
    for at in range(0, len(markup), _WINDOW):
        found = set(_TAG.findall(markup, at, at + _WINDOW + _LONGEST_TAG))
        if not _TAGS.isdisjoint(map(str.lower, found)):
            return True
    return _LIKE_HANDLER.search(markup) is not None and _HANDLER.search(markup) is not None


# Code of libraries on this machine, by the SHA-256 of its source: what saved notebooks name and do not hold. The host
# writes it, with what a sandbox has made in which no program ran; Jupyter's server and nbconvert read it.

#: Set by the server's extension for the kernels that it starts: their pages find libraries here.
SERVED_VARIABLE = "SANDBOX_KERNEL_SERVED"
_MOST_STORED_FILES, _MOST_STORED = 200, 512 << 20


def library_files() -> OwnFiles:
    """Return the private folder of libraries; a file is a packed source, and its name the SHA-256 of the source."""
    return OwnFiles(LockedFolder.root("libraries"), most_bytes=_MOST_STORED, most_files=_MOST_STORED_FILES)


def packed_library(name: object) -> bytes | None:
    """Return a packed source; None where there is none with this name."""
    return library_files().read(str(name), MAX_PACKED) if _is_digest(name) else None
