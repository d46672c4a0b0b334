"""Turns MIME bundles that need scripts into frames: one function for each type that a library shows.

A function gets the value of its type and returns the data of a frame. If it fails, the bundle is sent as it was; the
host then says what cannot be shown.
"""

from __future__ import annotations

import os
import re
import sys

from .frame import FRAME, LIBRARIES, as_json, frame, script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

_VEGA = re.compile(r"application/vnd\.vega(?P<lite>lite)?\.v\d+(?:\.\d+)*\+json\Z")


def plotly(value: Any) -> Dict[str, Any]:
    """A Plotly figure, drawn by the package's own plotly.min.js."""
    package = os.path.dirname(sys.modules["plotly"].__file__ or "")
    library = LIBRARIES.from_file("plotly", os.path.join(package, "package_data", "plotly.min.js"))
    layout, config = value.get("layout") or {}, {"responsive": True, **(value.get("config") or {})}
    config.pop("plotlyServerURL", None)
    code = (
        f'Plotly.newPlot("plot", {as_json(value.get("data") or [])}, {as_json(layout)}, {as_json(config)})'
        f'.then(() => Plotly.addFrames("plot", {as_json(value.get("frames") or [])}));'
    )
    height = layout.get("height") or 450
    markup = f'<div id="plot" style="width:100%;height:{int(height)}px"></div>{script(code)}'
    return frame(markup, [library], height)


#: What makes a frame of a value, by MIME type.
CONVERTERS: Dict[str, Callable[[Any], Dict[str, Any]]] = {"application/vnd.plotly.v1+json": plotly}


def converted(data: Dict[str, Any]) -> Dict[str, Any]:
    """Return the bundle with a frame in place of the types that only scripts can draw."""
    if FRAME in data:
        return data
    for mime, value in data.items():
        convert = CONVERTERS.get(mime)
        if convert is None:
            continue
        try:
            made = convert(value)
        except Exception:
            return data
        kept = {name: other for name, other in data.items() if name not in (mime, "text/html")}
        return {**kept, FRAME: made}
    return data
