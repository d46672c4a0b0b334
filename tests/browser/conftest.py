"""Fixtures of the browser tests: one server and one Chromium for all of them, one fresh tab for each.

They end with the package (it is one for their sake), not with the session: while Playwright runs, its thread has a
running event loop, and no other test of that process could start one.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import need

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from tests.browser.lab_page import LabPage
    from tests.browser.lab_server import LabServer

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
ACTION_MILLISECONDS = 60_000
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    need(importlib.util.find_spec("playwright"), "playwright is not installed: pip install playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    need(found, "no chromium on PATH: apt-get install chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=ACTION_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=[*FLAGS])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def lab_server(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    from tests.browser.lab_server import running_lab

    with running_lab(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="package")
def browser_profile(chromium: Browser) -> Iterator[BrowserContext]:
    """One profile for all tests: JupyterLab's scripts are fetched once."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(ACTION_MILLISECONDS)
    yield context
    context.close()


@pytest.fixture(scope="package")
def shared_page(browser_profile: BrowserContext, lab_server: LabServer) -> LabPage:
    from tests.browser.lab_page import LabPage

    ARTIFACTS.mkdir(exist_ok=True)
    page = LabPage(lab_server, browser_profile.new_page(), ARTIFACTS)
    page.start()
    return page


@pytest.fixture
def lab(shared_page: LabPage) -> Iterator[LabPage]:
    """JupyterLab with no notebook open."""
    yield shared_page
    shared_page.leave()


@pytest.fixture
def own_lab(browser_profile: BrowserContext, lab_server: LabServer) -> Iterator[LabPage]:
    """JupyterLab in a page of its own, for tests that may spoil it."""
    from tests.browser.lab_page import LabPage

    ARTIFACTS.mkdir(exist_ok=True)
    page = LabPage(lab_server, browser_profile.new_page(), ARTIFACTS)
    page.start()
    yield page
    page.page.close()
    page.end_kernels()
