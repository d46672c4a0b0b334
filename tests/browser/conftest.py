"""Fixtures of the browser tests: one server and one Chromium for all of them, one fresh tab for each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from tests.browser.lab_page import LabPage
    from tests.browser.lab_server import LabServer

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
ACTION_MILLISECONDS = 30_000
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


def _missing(what: str) -> None:
    """Skip with the reason; where everything must run, an absent tool is a failure."""
    if os.environ.get("SANDBOX_KERNEL_REQUIRE_ALL") == "1":
        pytest.fail(f"{what}, and SANDBOX_KERNEL_REQUIRE_ALL=1 asks for every test", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        _missing("playwright is not installed: pip install playwright")
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        _missing("no chromium on PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=[*_FLAGS])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab_server(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    from tests.browser.lab_server import running_lab

    with running_lab(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="session")
def browser_profile(chromium: Browser) -> Iterator[BrowserContext]:
    """One profile for all tests: JupyterLab's scripts are fetched once."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(ACTION_MILLISECONDS)
    yield context
    context.close()


@pytest.fixture
def lab(browser_profile: BrowserContext, lab_server: LabServer) -> Iterator[LabPage]:
    from tests.browser.lab_page import LabPage

    ARTIFACTS.mkdir(exist_ok=True)
    page = LabPage(lab_server, browser_profile.new_page(), ARTIFACTS)
    yield page
    page.close()
