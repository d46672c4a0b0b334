"""What an ``Output`` widget gets of a MIME bundle: frames draw pictures, HTML and text, so Markdown becomes HTML."""

from __future__ import annotations

import importlib

from .bundles import bundle
from .convert import converted
from .widgets import VIEW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

_DRAWN = ("text/html", "image/png", "image/jpeg", "image/svg+xml")


def in_output(data: Dict[str, Any]) -> Dict[str, Any]:
    """Return an output of a cell in the form that an ``Output`` widget shows."""
    shown = data if VIEW in data else converted(data)
    if not any(name in shown for name in (VIEW, *_DRAWN)):
        if isinstance(shown.get("text/markdown"), str):
            shown = {**shown, **_markdown(shown["text/markdown"])}
        elif isinstance(shown.get("text/latex"), str):
            shown = {**shown, "text/plain": shown["text/latex"]}
    return {"output_type": "display_data", "data": bundle(shown), "metadata": {}}


def _markdown(text: str) -> Dict[str, Any]:
    """HTML where the environment has a parser (rich brings one), else the text itself; both say more than a name."""
    try:
        parser = importlib.import_module("markdown_it").MarkdownIt("commonmark").enable("table")
        return {"text/html": parser.render(text)}
    except Exception:
        return {"text/plain": text}
