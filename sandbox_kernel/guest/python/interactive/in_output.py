"""What an ``Output`` widget gets of a MIME bundle: frames draw figures, pictures, HTML and text; Markdown is HTML."""

from __future__ import annotations

import importlib

from IPython.core.getipython import get_ipython

from .bundles import bundle
from .convert import converted
from .frame import FRAME, LIBRARIES, frame
from .widgets import VIEW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set, Tuple

_DRAWN = ("text/html", "image/png", "image/jpeg", "image/svg+xml")
#: Cells that have shown a library, by their numbers.
_BROUGHT: Set[Tuple[int, str]] = set()


def in_output(data: Dict[str, Any]) -> Dict[str, Any]:
    """Return an output of a cell in the form that an ``Output`` widget shows."""
    shown = data if VIEW in data else converted(data)
    if FRAME in shown:
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
