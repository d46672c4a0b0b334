"""Fixtures of the browser tests: one server and one browser for all of them, one fresh tab for each.

Every test runs in Chromium; those marked ``firefox`` run in a stock Firefox too, after the others.

They end with the package (it is one for their sake), not with the session: while Playwright runs, its thread has a
running event loop, and no other test of that process could start one.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import need

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, BrowserType, Playwright

    from tests.browser.lab_page import LabPage
    from tests.browser.lab_server import LabServer

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
ACTION_MILLISECONDS = 60_000
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


#: What Playwright and Firefox leave out where they may: connections ahead of a request, and WebRTC to this machine.
PREFERENCES = {"network.http.speculative-parallel-limit": 6, "media.peerconnection.ice.loopback": True}
#: Where each browser may be, first found first, and how Playwright starts it. A stock Firefox speaks WebDriver BiDi.
PROGRAMS = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "firefox": ("firefox-esr", "firefox")}
LAUNCH: dict[str, dict[str, Any]] = {
    "chromium": {"args": [*FLAGS]},
    "firefox": {"channel": "moz-firefox", "firefox_user_prefs": PREFERENCES},
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "browser" in metafunc.fixturenames:
        names = ("chromium", "firefox") if metafunc.definition.get_closest_marker("firefox") else ("chromium",)
        cases = [pytest.param(name, id=pytest.HIDDEN_PARAM if name == "chromium" else name) for name in names]
        metafunc.parametrize("browser", cases, indirect=True, scope="package")


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    need(importlib.util.find_spec("playwright"), "playwright is not installed: pip install playwright")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=ACTION_MILLISECONDS)
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="package")
def browser(playwright: Playwright, request: pytest.FixtureRequest) -> Iterator[Browser]:
    from playwright.sync_api import Error

    name: str = request.param
    kind: BrowserType = getattr(playwright, name)
    started = kind.launch(**options_of(name))
    try:
        started.new_page().close()
    except Error as error:
        need(False, f"this Playwright cannot drive {name} {started.version}: {error.message}")
    yield started
    started.close()


def options_of(name: str) -> dict[str, Any]:
    """How Playwright starts this browser; without it the test is skipped."""
    found = next(filter(None, map(shutil.which, PROGRAMS[name])), None)
    need(found, f"no {name} on PATH: apt-get install {PROGRAMS[name][0]}")
    return {"executable_path": found, **LAUNCH[name]}


@pytest.fixture(scope="package")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    from tests.browser.lab_server import running_lab

    with running_lab(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="package")
def browser_profile(browser: Browser) -> Iterator[BrowserContext]:
    """One profile for all tests: JupyterLab's scripts are fetched once."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
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
