"""Turns MIME bundles that need scripts into frames: one function for each type that a library shows.

A function gets the value of its type and returns the data of a frame. If it fails, the bundle is sent as it was; the
host then says what cannot be shown.
"""

from __future__ import annotations

import importlib
import os
import re

from IPython.core.getipython import get_ipython

from .frame import FRAME, LIBRARIES, MAKERS, as_json, bundle, frame, script
from .offline import offline
from .widgets import VIEW, modules, widget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Set, Tuple


_VEGA = re.compile(r"application/vnd\.vega(?:lite)?\.v\d+(?:\.\d+)*[+.]json\Z")
_JAVASCRIPT = ("application/javascript", "text/javascript")
#: What Altair gives pages that do not draw its charts; it would stand in text exports of the notebook.
_NOT_ENABLED = "the renderer has not been properly enabled"
#: A figure finds its place beside its script: an ``Output`` widget may show several.
_PLACE = "const place = document.currentScript.previousElementSibling;"
#: Markup that has something put in, or a script that needs something.
_FRAMED = re.compile(r"<(?:script|iframe|audio|video)\b", re.IGNORECASE)


def plotly(value: Any) -> Dict[str, Any]:
    """A Plotly figure, drawn by the package's own plotly.min.js."""
    library = LIBRARIES.named("plotly")
    layout, config = value.get("layout") or {}, {"responsive": True, **(value.get("config") or {})}
    config.pop("plotlyServerURL", None)
    code = (
        f"{{ {_PLACE} Plotly.newPlot(place, {as_json(value.get('data') or [])}, {as_json(layout)}, {as_json(config)})"
        f".then(() => Plotly.addFrames(place, {as_json(value.get('frames') or [])})); }}"
    )
    height = layout.get("height") or 360  # what JupyterLab gives a figure without one
    markup = f'<div style="width:100%;height:{int(height)}px"></div>{script(code)}'
    return frame(markup, [library], height)


#: A figure that nobody sees, drawn by a frame that waits for the next output: the first one takes four times as long.
_PLOTLY_WARM_UP = """;window.sandboxWarmUp = () => {
  const place = document.body.appendChild(document.createElement('div'));
  const kinds = ['bar', 'scatter'].map((type) => ({ type, x: ['a', 'b'], y: [1, 2] }));
  const end = () => { Plotly.purge(place); place.remove(); };
  Plotly.newPlot(place, kinds, {}, { responsive: true }).then(end, end);
};"""


def _plotly_source(_: str) -> str:
    package = os.path.dirname(importlib.import_module("plotly").__file__ or "")
    with open(os.path.join(package, "package_data", "plotly.min.js"), encoding="utf-8") as file:
        return file.read() + _PLOTLY_WARM_UP


def vega(value: Any) -> Dict[str, Any]:
    """A Vega or Vega-Lite chart, as Altair shows it, drawn by the JavaScript that vl-convert-python has with it."""
    library = LIBRARIES.named("vega")
    code = (
        f"{{ {_PLACE} vegaEmbed(place, {as_json(value)}, {{actions: false}}).catch((e) => place.append(e.message)); }}"
    )
    return frame(f'<div id="vis" style="width:100%"></div>{script(code)}', [library], _height(value.get("height"), 350))


def _vega_source(_: str) -> str:
    bundle = importlib.import_module("vl_convert").javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return re.sub(r"export\s*\{[^}]*\};?\s*$", "", bundle)


def _height(value: Any, usual: int | None) -> int | None:
    return int(value) + 60 if isinstance(value, (int, float)) and 0 < value < 5000 else usual


def bokeh(model: Any) -> Dict[str, Any]:
    """A Bokeh model, drawn by the package's own BokehJS, in a document of its own: figures may share a data source."""
    library = LIBRARIES.named("bokeh")
    util = importlib.import_module("bokeh.embed.util")
    with util.OutputDocumentFor([model], apply_theme=util.FromCurdoc, always_new=True):
        code, place = importlib.import_module("bokeh.embed").components(model)
    return frame(place + code, [library], _height(getattr(model, "height", None), None))


MAKERS.update(plotly=_plotly_source, vega=_vega_source)
MAKERS["bokeh"] = lambda _: ";\n".join(importlib.import_module("bokeh.resources").INLINE.js_raw)


def javascript(code: Any) -> Dict[str, Any]:
    """Code of ``Javascript`` and ``%%javascript``; ``element`` in it is the place of the output, as in JupyterLab."""
    text = "".join(map(str, code)) if isinstance(code, list) else str(code)
    run = (
        '{ const element = document.getElementById("element"); '
        f'try {{ new Function("element", {as_json(text)})(element); }} '
        "catch (error) { element.textContent = `Javascript Error: ${error.message}`; } }"
    )
    return frame(f'<div id="element"></div>{script(run)}', [], 1)  # the least that the host gives; the page adapts it


#: What makes a frame of a value, by MIME type.
CONVERTERS: Dict[str, Callable[[Any], Dict[str, Any]]] = {"application/vnd.plotly.v1+json": plotly, VIEW: widget}


def converted(data: Dict[str, Any]) -> Dict[str, Any]:
    """Return the bundle with a frame in place of the types that only scripts can draw."""
    if FRAME in data:
        return data
    for mime, value in sorted(data.items(), key=lambda item: item[0] == "text/html"):
        convert = vega if _VEGA.match(mime) else CONVERTERS.get(mime)
        # Libraries send code beside HTML, which is drawn without it.
        if mime in _JAVASCRIPT and "text/html" not in data:
            convert = javascript
        elif mime == "text/html" and isinstance(value, str) and _FRAMED.search(value):
            convert = offline
        if convert is None:
            continue
        try:
            made = convert(value)
        except Exception:
            return data
        kept = {name: other for name, other in data.items() if name not in (mime, "text/html")}
        if convert is vega and _NOT_ENABLED in str(kept.get("text/plain")):
            kept["text/plain"] = "alt.Chart(...)"
        return {**kept, FRAME: made}
    return data


# What an ``Output`` widget gets of a MIME bundle: frames draw figures, pictures, HTML and text; Markdown is HTML.

_DRAWN = ("text/html", "image/png", "image/jpeg", "image/svg+xml")
#: Cells that have shown a library, by their numbers.
_BROUGHT: Set[Tuple[int, str]] = set()


def in_output(data: Dict[str, Any]) -> Dict[str, Any]:
    """Return an output of a cell in the form that an ``Output`` widget shows."""
    shown = data if VIEW in data else converted(data)
    if VIEW in data and isinstance(data[VIEW], dict):
        shown = {**data, VIEW: {**data[VIEW], "modules": modules()}}  # its frame may be older than they are
        _bring(list(modules().values()))
    elif FRAME in shown:
        # Until the code of its library is there, and where no kernel gives it.
        shown = {"text/plain": "[an interactive figure]", **shown}
        _bring(shown[FRAME]["libraries"])
    elif not any(name in shown for name in (VIEW, *_DRAWN)):
        if isinstance(shown.get("text/markdown"), str):
            shown = {**shown, **_markdown(shown["text/markdown"])}
        elif isinstance(shown.get("text/latex"), str):
            shown = {**shown, "text/plain": shown["text/latex"]}
    return {"output_type": "display_data", "data": bundle(shown), "metadata": {}}


def _bring(libraries: List[str]) -> None:
    """Let the page have libraries: a display with nothing in it needs them, once in each cell."""
    number = getattr(get_ipython(), "execution_count", 0)
    missing = [name for name in libraries if (number, name) not in _BROUGHT]
    if missing and LIBRARIES.send is not None:
        _BROUGHT.update((number, name) for name in missing)
        LIBRARIES.send({FRAME: frame("", missing)})


def _markdown(text: str) -> Dict[str, Any]:
    """HTML where the environment has a parser (rich brings one), else the text itself; both say more than a name."""
    try:
        parser = importlib.import_module("markdown_it").MarkdownIt("commonmark").enable("table")
        return {"text/html": parser.render(text)}
    except Exception:
        return {"text/plain": text}
