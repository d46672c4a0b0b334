"""Code that figures load from content networks is taken from installed packages."""

import importlib.util

from sandbox_kernel import Sandbox
from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY
from tests.conftest import need

MAP = "import folium\nfolium.Map([0, 0]).add_child(folium.Marker([0, 0], popup='here'))"


def test_a_map_brings_leaflet_jquery_and_icons_along() -> None:
    for package in ("folium", "xstatic.pkg.leaflet", "xstatic.pkg.jquery", "xstatic.pkg.font_awesome"):
        need(importlib.util.find_spec(package), f"{package} is not installed")
    with Sandbox() as box, box.session(memory_mb=1024) as session:
        result = session.run(MAP, timeout=100)
    assert result.ok, result.stderr
    titles = [display.data[LIBRARY]["title"] for display in result.displays if LIBRARY in display.data]  # type: ignore[index]
    assert sorted(titles) == ["font-awesome", "jquery", "leaflet"]
    (shown,) = [display.data[FRAME] for display in result.displays if FRAME in display.data]
    assert len(shown["libraries"]) == 3  # type: ignore[index, call-overload]
    assert "dist/leaflet.js" not in str(shown)
    assert "bootstrap.min.css" in str(shown)  # no package holds it: the page names it when it is not loaded


def test_rich_prints_text_where_no_notebook_shows_it() -> None:
    need(importlib.util.find_spec("rich"), "rich is not installed")
    with Sandbox() as box, box.session() as session:
        result = session.run("from rich.console import Console\nConsole().print('[bold]told[/]')", timeout=60)
    assert result.stdout.strip() == "told"
    assert result.displays == ()
