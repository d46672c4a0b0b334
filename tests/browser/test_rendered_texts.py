"""Generated texts, cleaned as outputs are, in the renderers of JupyterLab, Notebook 7 and nbconvert: nothing in them acts.

``SANDBOX_KERNEL_PAGE_TEXTS=20000`` (and ``SANDBOX_KERNEL_PAGE_SEED``) makes the run as long as you like.
"""

import importlib.util
import os
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import BrowserContext, Page

from tests.browser.conftest import ARTIFACTS
from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.browser.lab_server import LabServer
from tests.browser.rendered_texts import audit, cleaned, prepare
from tests.conftest import need
from tests.untrusted.hostile_texts import ALARM, IMAGE, texts

pytestmark = pytest.mark.browser

COUNT = int(os.environ.get("SANDBOX_KERNEL_PAGE_TEXTS", "900"))
SEED = int(os.environ.get("SANDBOX_KERNEL_PAGE_SEED", "12"))
LONG = pytest.mark.timeout(120 + COUNT // 10)


def _watch(page: Page) -> list[str]:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


def _check(page: Page, asked: list[str]) -> None:
    made = texts(SEED, COUNT)
    bundles = cleaned(made)
    assert not any("text/markdown" in bundle for bundle in bundles)
    for (mime, text), found in zip(made, audit(page, bundles), strict=True):
        assert found == [], (mime, text)
    assert page.evaluate("() => window.alarm") is None
    assert [url for url in asked if "/alarm" in url] == []


@LONG
@pytest.mark.attack("O01", "kernel")
def test_nothing_that_a_sandbox_can_write_acts_in_jupyterlab(own_lab: LabPage) -> None:
    own_lab.server.write_notebook("texts.ipynb", notebook_of(code_cell("1")))
    own_lab.open("texts.ipynb")
    asked = _watch(own_lab.page)
    prepare(own_lab.page)
    _check(own_lab.page, asked)


#: What the holes were: quotes of a formula in an attribute, the name behind a fence, and the links of TeX.
UNCLEANED = [
    f'![$" onload="{ALARM}" x="$]({IMAGE})',
    f'```x" onfocus="{ALARM}\ncode\n```',
    "$\\href{https://example.org}{x}$",
]


def test_the_audit_finds_what_jupyterlab_makes_of_markdown_that_was_not_cleaned(own_lab: LabPage) -> None:
    """The control: the same page and the same audit, with the texts as they are."""
    own_lab.server.write_notebook("control.ipynb", notebook_of(code_cell("1")))
    own_lab.open("control.ipynb")
    prepare(own_lab.page)
    found = audit(own_lab.page, [{"text/markdown": text} for text in UNCLEANED])
    assert [text for text, each in zip(UNCLEANED, found, strict=True) if not each] == []


@LONG
@pytest.mark.attack("O01", "kernel")
def test_nothing_that_a_sandbox_can_write_acts_in_notebook_7(
    browser_profile: BrowserContext, lab_server: LabServer
) -> None:
    need(importlib.util.find_spec("notebook"), "notebook is not installed: pip install notebook")
    lab_server.write_notebook("texts7.ipynb", notebook_of(code_cell("1")))
    page = browser_profile.new_page()
    page.goto(f"{lab_server.url}/notebooks/texts7.ipynb?token={lab_server.token}")
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.content?.rendermime")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.ready")
    asked = _watch(page)
    prepare(page)
    _check(page, asked)
    LabPage(lab_server, page, ARTIFACTS).end_kernels()
    page.close()


@LONG
@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize("template", ["lab", "classic"])
def test_nothing_that_a_sandbox_can_write_acts_in_a_page_of_nbconvert(
    browser_profile: BrowserContext, tmp_path: Path, template: str
) -> None:
    from nbconvert import HTMLExporter

    outputs = [
        nbformat.v4.new_output("display_data", data=dict(bundle), metadata={}) for bundle in cleaned(texts(SEED, COUNT))
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=outputs)])
    document, _ = HTMLExporter(template_name=template).from_notebook_node(notebook)
    path = tmp_path / f"{template}.html"
    path.write_text(document)
    page = browser_profile.new_page()
    asked = _watch(page)
    # Its own scripts (require.js, MathJax) would come from elsewhere.
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    page.goto(path.as_uri())
    prepare(page)
    selector = ".jp-OutputArea-output" if template == "lab" else ".output_area > .output_subarea"
    found = page.evaluate(
        "(selector) => [...document.querySelectorAll(selector)].map((node) => window.auditOf(node))", selector
    )
    assert len(found) == COUNT
    for number, each in enumerate(found):
        assert each == [], texts(SEED, COUNT)[number]
    assert page.evaluate("() => window.alarm") is None
    assert [url for url in asked if "/alarm" in url] == []
    page.close()
