"""The report's frames in a real browser: the walls hold, and the listeners notice what has no walls."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from sandbox_kernel.report.browser_attempts import ATTEMPTS, measure_page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def test_every_line_of_the_page_is_enforced_in_chromium(chromium: Browser) -> None:
    page: Page = chromium.new_page()

    def show(address: str) -> None:
        page.goto(address)
        page.get_by_text("Done.").wait_for(timeout=200_000)

    lines = measure_page(show)
    page.close()
    assert {line.name: line.enforced for line in lines} == dict.fromkeys(ATTEMPTS, True), lines
