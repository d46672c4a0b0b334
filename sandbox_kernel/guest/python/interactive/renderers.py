"""Sets up libraries so that their figures reach ``convert.py``: called when a library has been imported."""

from __future__ import annotations

from .after_import import AfterImport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def plotly_renderers(module: Any) -> None:
    """Show Plotly figures as data. A page would otherwise get markup that loads plotly.js from the network."""
    module.renderers.default = "plotly_mimetype"


def install() -> None:
    """Watch for imports of the libraries that are set up here."""
    AfterImport({"plotly.io._renderers": plotly_renderers}).install()
