"""The gallery of interactive output in real pages: drawn, hovered, clicked, moved, and nothing is loaded from elsewhere."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, Request, expect

from sandbox_kernel.untrusted.frames.server_extension import PREPROCESSOR
from tests.browser.frames.gallery import FIGURES, WIDGETS, Gallery, cell_index, opened_in_lab
from tests.browser.lab_page import LabPage
from tests.conftest import need

pytestmark = [pytest.mark.browser, pytest.mark.timeout(500)]

PACKAGES = "plotly altair vl_convert bokeh pyvis folium great_tables itables ipydatagrid ipympl anywidget rich tqdm"
LOCAL = ("data:", "blob:", "about:", "file:")


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """What the page got an answer for."""
    return []


@pytest.fixture(scope="module")
def gallery(shared_page: LabPage, loaded: list[str]) -> Iterator[Gallery]:
    for package in PACKAGES.split():
        need(importlib.util.find_spec(package), f"{package} is not installed")

    def note(request: Request) -> None:
        loaded.append(request.url)

    shared_page.page.on("requestfinished", note)
    yield opened_in_lab(shared_page)
    shared_page.page.remove_listener("requestfinished", note)
    shared_page.leave()


@pytest.mark.parametrize("name", [*FIGURES, *WIDGETS])
def test_an_output_is_drawn_in_its_frame(gallery: Gallery, name: str) -> None:
    gallery.drawn(*{**FIGURES, **WIDGETS}[name])


#: Waits until an output fits its frame.
FITS = """(root) => new Promise((done) => {
    const look = () => (root.scrollHeight <= root.clientHeight ? done() : requestAnimationFrame(look));
    look();
})"""


@pytest.mark.parametrize(("theme", "colour"), [("Dark", "rgb(255, 255, 255)"), ("Light", "rgb(0, 0, 0)")])
def test_what_brings_its_own_style_sheet_fits_its_frame_and_can_be_read(
    gallery: Gallery, theme: str, colour: str
) -> None:
    gallery.lab.set_theme(f"JupyterLab {theme}")
    gallery.run("make_pipeline(")  # its script looks for the theme when it is drawn
    for name in ("styler", "great_tables", "estimator", "sound"):
        gallery.drawn(*FIGURES[name])
        gallery.inner(FIGURES[name][0]).locator("html").evaluate(FITS)
        gallery.lab.screenshot(f"styled-{name}-{theme}")
    expect(gallery.inner("make_pipeline(").locator("label", has_text="Pipeline")).to_have_css("color", colour)
    if theme == "Dark":
        gallery.run("show_table(table)")
        shown = gallery.drawn("show_table(table)", ".dt-container")
        expect(shown).not_to_have_css("background-color", "rgb(255, 255, 255)")


def test_sounds_play_and_estimators_unfold_in_their_frames(gallery: Gallery) -> None:
    expect(gallery.output("rich_table")).to_contain_text("Bern")
    player = gallery.drawn(*FIGURES["sound"])
    player.evaluate("async (node) => { await node.play(); await new Promise((done) => { node.onended = done; }); }")
    estimator = gallery.inner("make_pipeline(")
    expect(estimator.locator("table").first).to_be_hidden()
    estimator.locator("label").first.click()
    expect(estimator.get_by_text("Parameters").first).to_be_visible()


def test_widgets_have_the_colours_and_places_that_they_have_in_the_page(gallery: Gallery) -> None:
    colour = "() => getComputedStyle(document.documentElement).getPropertyValue('--jp-success-color1')"
    bar = gallery.drawn("tqdm.auto", "text=adding")
    of_page = gallery.lab.page.evaluate(colour.replace("documentElement", "body"))
    assert bar.evaluate(colour) == of_page != ""
    # The buttons of a figure lie over it, so that its frame is as high as the figure.
    gallery.drawn("%matplotlib widget", "canvas")
    buttons = gallery.inner("%matplotlib widget").locator(".jupyter-matplotlib-toolbar")
    assert buttons.evaluate("(node) => getComputedStyle(node).position") == "absolute"


def test_figures_answer_the_pointer_and_say_what_was_not_loaded(gallery: Gallery) -> None:
    gallery.point_at(gallery.drawn("import plotly", ".bars path"))
    expect(gallery.inner("import plotly").locator(".hoverlayer .hovertext").first).to_be_attached()
    gallery.point_at(gallery.drawn("import altair", "#vis canvas, #vis svg"))
    expect(gallery.inner("import altair").locator("#vg-tooltip-element")).to_be_attached()
    marker = gallery.drawn("import folium", ".leaflet-marker-icon[src^='data:']")
    gallery.point_at(marker, click=True)
    expect(gallery.inner("import folium").locator(".leaflet-popup-content")).to_have_text("Bern")
    # Its pictures were not loaded, and it says so.
    expect(gallery.output("import folium")).to_contain_text(
        "wanted to load a picture from tile.openstreetmap.org: blocked"
    )


def test_what_a_user_does_with_widgets_comes_back_in_python(gallery: Gallery) -> None:
    values = [pressed(gallery, piece) for piece in ("slider = ", "jslink((first")]
    linked = gallery.inner("jslink((first")
    expect(linked.locator(".widget-readout").nth(1)).to_have_text(str(values[1]))  # within the frame
    expect(linked.locator("input[type=number]")).to_have_value(str(values[1]))  # through Python

    gallery.point_at(gallery.drawn("Play(", "button"), click=True)
    expect(gallery.inner("Play(").locator(".progress-bar")).to_have_attribute("style", re.compile("width: 100%"))

    with gallery.lab.page.expect_file_chooser() as asked:
        gallery.point_at(gallery.drawn("FileUpload()", "button"), click=True)
    asked.value.set_files({"name": "numbers.csv", "mimeType": "text/csv", "buffer": b"1,2\n"})
    expect(gallery.inner("FileUpload()").locator("button")).to_contain_text("(1)")

    button = gallery.drawn("class Counter", "button")
    count = int(button.inner_text().split()[-1]) + 1
    gallery.point_at(button, click=True)
    expect(button).to_have_text(f"count {count}")

    canvas = gallery.drawn("%matplotlib widget", "canvas >> nth=-1")
    gallery.point_at(canvas, click=True)
    wanted = re.compile(rf"\({values[0]}, {values[1]}, {count}, \['numbers.csv'\], [1-9]\)")
    shown = ""
    for _ in range(10):  # a click travels as a message of its own
        shown = gallery.run("[file.name for file").locator(".jp-OutputArea-output").first.inner_text()
        if wanted.search(shown):
            break
    assert wanted.search(shown), shown


def pressed(gallery: Gallery, piece: str) -> int:
    """Move the first slider of a cell with the keyboard; return its new value."""
    handle = gallery.drawn(piece, ".noUi-handle")
    readout = gallery.inner(piece).locator(".widget-readout").first
    before = readout.inner_text()
    gallery.point_at(handle, click=True)
    expect(handle).to_be_focused()
    gallery.lab.page.keyboard.press("ArrowRight")
    expect(readout).not_to_have_text(before)
    return int(readout.inner_text())


def test_nothing_is_loaded_from_elsewhere(gallery: Gallery, loaded: list[str]) -> None:
    assert [url for url in loaded if not url.startswith((gallery.lab.server.url, *LOCAL))] == []
    assert loaded


def test_the_saved_gallery_is_drawn_without_kernel_and_extension(
    gallery: Gallery, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nbconvert makes it a page, from a notebook that names its libraries and holds none."""
    notebook = nbformat.read(gallery.path, as_version=4)
    assert not [o for cell in notebook.cells for o in cell.get("outputs", []) if is_library(o)]
    monkeypatch.setenv("XDG_STATE_HOME", str(gallery.lab.server.folder.parent / "state"))
    text, _ = HTMLExporter(preprocessors=[PREPROCESSOR]).from_notebook_node(notebook)
    (tmp_path / "page.html").write_text(text)
    page = browser.new_page()
    asked: list[str] = []
    page.on("requestfinished", lambda request: asked.append(request.url))
    page.goto((tmp_path / "page.html").as_uri(), wait_until="domcontentloaded")
    cells = page.locator(".jp-Cell")
    for piece, sign in (*FIGURES.values(), WIDGETS["slider"], WIDGETS["ipydatagrid"]):  # widgets as they were
        cell = cells.nth(cell_index(piece))
        frames = cell.locator("iframe")
        last = frames.nth(frames.count() - 1)  # the ones before it hold libraries
        found = last.content_frame.frame_locator("iframe").locator(sign).first
        while not found.is_visible():  # frames above it grow, and it is drawn only in view
            last.scroll_into_view_if_needed()
            page.wait_for_timeout(100)
    page.close()
    assert [url for url in asked if not url.startswith((*LOCAL, "https://cdnjs."))] == []


def is_library(output: nbformat.NotebookNode) -> bool:
    return "application/vnd.sandbox-kernel.library+json" in output.get("data", {})


def test_notebook_7_draws_the_gallery_too(gallery: Gallery, browser: Browser) -> None:
    """Drawn, hovered, clicked, moved, back in Python, and nothing loaded, as in JupyterLab."""
    need(importlib.util.find_spec("notebook"), "notebook is not installed")
    server = gallery.lab.server
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(60_000)
    asked: list[str] = []
    page.on("requestfinished", lambda request: asked.append(request.url))
    other = Gallery(LabPage(server, page, Path()), gallery.path)
    page.goto(f"{server.url}/notebooks/{gallery.path.name}?token={server.token}")
    page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.context?.isReady")
    other.drawn(*FIGURES["styler"])
    other.point_at(other.drawn("import plotly", ".bars path"))
    expect(other.inner("import plotly").locator(".hoverlayer .hovertext").first).to_be_attached()
    other.point_at(other.drawn("import folium", ".leaflet-marker-icon[src^='data:']"), click=True)
    expect(other.inner("import folium").locator(".leaflet-popup-content")).to_have_text("Bern")
    value = pressed(other, "slider = ")  # in the same session as JupyterLab's
    expect(gallery.inner("slider = ").locator(".widget-readout")).to_have_text(str(value))  # the other view follows
    in_python = other.run("[file.name for file").locator(".jp-OutputArea-output").first
    expect(in_python).to_contain_text(f"({value}, ")
    context.close()
    assert asked
    assert [url for url in asked if not url.startswith((server.url, *LOCAL))] == []
