"""Attempts to get out of a frame, in real Chromium: none reaches a listener of ours, and the page stays where it is."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from sandbox_kernel.untrusted.frames.document import frame
from tests.browser.frames.listeners import Listeners

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

PROBES = Path(__file__).parent / "frame_probes"
#: How many attempts share a page, and how long they get, in milliseconds.
AT_ONCE, WAIT = 12, 4000


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    made = Listeners()
    yield made
    made.close()


def attempts(chromium: Browser) -> dict[str, str]:
    page = chromium.new_page()
    found: dict[str, str] = {}
    for name in ("probes.js", "bypass.js"):
        found |= page.evaluate((PROBES / name).read_text())
    page.close()
    return found


def test_the_listeners_notice_a_frame_without_our_walls(chromium: Browser, listeners: Listeners) -> None:
    """The control."""
    inner = html.escape(
        listeners.script("control", "fetch(U, {mode: 'no-cors'}); add('link', {rel: 'preconnect', href: TCP})")
    )
    listeners.page = f'<iframe srcdoc="{inner}"></iframe>'
    page = chromium.new_page()
    with page.expect_request(lambda request: "/x/control" in request.url):
        page.goto(f"{listeners.url}/page")
    page.wait_for_timeout(500)
    page.close()
    assert any("/x/control" in hit for hit in listeners.hits)


@pytest.mark.attack("O01", "kernel")
def test_no_attempt_gets_out_of_a_frame(chromium: Browser, listeners: Listeners) -> None:
    found = list(attempts(chromium).items())
    assert len(found) >= 123
    silent = []
    for start in range(0, len(found), AT_ONCE):
        some = found[start : start + AT_ONCE]
        shown = [frame([{"type": "show", "html": listeners.script(name, code)}], 60) for name, code in some]
        listen = "<script>began = 0; onmessage = (e) => { if (e.data.type === 'height' && e.data.height === 77) began++ }</script>"
        listeners.page = f"<!doctype html>{listen}{''.join(shown)}"
        page = chromium.new_page()
        page.on("dialog", lambda dialog: (listeners.hits.append("dialog"), dialog.dismiss()))
        page.on("popup", lambda _: listeners.hits.append("popup"))
        page.on("download", lambda _: listeners.hits.append("download"))
        page.goto(f"{listeners.url}/page")
        page.wait_for_timeout(WAIT)
        assert page.url == f"{listeners.url}/page", [name for name, _ in some]
        if page.evaluate("began") < len(some):
            silent.append((page.evaluate("began"), [name for name, _ in some]))
        assert listeners.hits == [], [name for name, _ in some]
        page.close()
    assert silent == [], "attempts that did not begin prove nothing"
