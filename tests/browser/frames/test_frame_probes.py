"""Attempts to get out of a frame, in real browsers: none reaches a listener of ours, and the page stays where it is."""

import html
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from sandbox_kernel.untrusted.frames.document import frame
from tests.browser.conftest import options_of
from tests.browser.frames.listeners import Listeners

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

PROBES = Path(__file__).parent / "frame_probes"
#: How many attempts share a page, and how long they get when all have begun, in milliseconds.
AT_ONCE, WAIT = 24, 3000
#: Notes which attempts have begun.
NOTE = "<script>began = new Set(); onmessage = ({ data }) => { if (data.name) began.add(data.name) }</script>"


@pytest.fixture(scope="module")
def ordinary(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """A profile on disk: in a private one Chromium follows no hints (preconnect), so that nothing is noticed."""
    kind = browser.browser_type
    context = kind.launch_persistent_context(tmp_path_factory.mktemp("profile"), **options_of(kind.name))
    yield context
    context.close()


def attempts(ordinary: BrowserContext, *names: str) -> dict[str, str]:
    page = ordinary.new_page()
    found: dict[str, str] = {}
    for name in names:
        found |= page.evaluate((PROBES / name).read_text())
    page.close()
    return found


def begun(ordinary: BrowserContext, listeners: Listeners, some: dict[str, str]) -> Page:
    """A page with a frame for each of some attempts, which have begun: others would prove nothing."""
    shown = [frame([{"type": "show", "html": listeners.script(name, code)}], 60) for name, code in some.items()]
    listeners.page = f"<!doctype html>{NOTE}{''.join(shown)}"
    page = ordinary.new_page()
    for event in ("dialog", "popup", "download", "filechooser"):
        page.on(event, lambda what, event=event: (listeners.hits.append(event), event == "dialog" and what.dismiss()))
    page.goto("about:blank#before")  # in Firefox a frame can close a tab that has shown nothing else
    page.goto(f"{listeners.url}/page")
    page.wait_for_function(f"began.size === {len(some)}", timeout=180_000)
    return page


@pytest.mark.firefox
def test_the_listeners_notice_a_frame_without_our_walls(ordinary: BrowserContext, listeners: Listeners) -> None:
    """The control. Hints and WebRTC are what no policy governs, so they must be noticed here."""
    code = (
        "fetch(U, {mode: 'no-cors'}); add('link', {rel: 'preconnect', href: TCP});"
        "const p = new RTCPeerConnection({iceServers: [{urls: 'stun:' + UDP}]}); p.createDataChannel('x');"
        "p.createOffer().then((offer) => p.setLocalDescription(offer))"
    )
    listeners.page = (
        f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(listeners.script("control", code))}"></iframe>'
    )
    page = ordinary.new_page()
    page.goto(f"{listeners.url}/page")
    wanted = ("GET /x/control", "TCP connection", "UDP 20 bytes")
    for _ in range(200):
        if all(each in listeners.hits for each in wanted):
            break
        page.wait_for_timeout(100)
    page.close()
    assert {*wanted} <= {*listeners.hits}


@pytest.mark.firefox
@pytest.mark.attack("O01", "kernel")
def test_no_attempt_gets_out_of_a_frame(ordinary: BrowserContext, listeners: Listeners) -> None:
    found = list(attempts(ordinary, "probes.js", "bypass.js", "further.js").items())
    assert len(found) >= 188
    for start in range(0, len(found), AT_ONCE):
        some = dict(found[start : start + AT_ONCE])
        page = begun(ordinary, listeners, some)
        page.wait_for_timeout(WAIT)
        assert page.url == f"{listeners.url}/page", [*some]
        assert listeners.hits == [], [*some]
        page.close()


@pytest.mark.firefox
def test_no_held_or_middle_press_gets_out(browser: Browser, ordinary: BrowserContext, listeners: Listeners) -> None:
    address = "TCP" if browser.browser_type.name == "firefox" else "U"  # see there
    for name, code in attempts(ordinary, "links.js").items():
        page = begun(ordinary, listeners, {name: code.replace("ADDRESS", address)})
        for key, button in (("Shift", "left"), ("Control", "left"), ("Alt", "left"), ("F9", "middle")):
            page.keyboard.down(key)
            page.mouse.click(40, 40, button=button)
            page.keyboard.press("Enter")
            page.keyboard.up(key)
        page.wait_for_timeout(WAIT / 6)
        assert listeners.hits == [], name
        page.close()
