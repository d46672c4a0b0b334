"""What code in a frame can do beside drawing, when the user has clicked in it: nothing outside of the frame."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from sandbox_kernel.untrusted.frames.document import frame

pytestmark = pytest.mark.browser

#: A page of the own machine: browsers give most of these powers to such pages only.
ADDRESS = "http://localhost/page"
#: Each would do something outside of the frame.
POWERS = {
    "a window over all others": "(async () => { await film(); return film.node.requestPictureInPicture(); })()",
    "colours of the screen": "new EyeDropper().open()",
    "media keys": "navigator.mediaSession.setActionHandler('play', () => {})",
    "badge": "navigator.setAppBadge(3)",
    "vibration": "navigator.vibrate(1) || refuse()",
    "game pads": "navigator.getGamepads()",
    "the pointer": "document.body.requestPointerLock()",
    "the whole screen": "document.body.requestFullscreen()",
    "clipboard": "navigator.clipboard.writeText('taken')",
    "clipboard, by command": "document.execCommand('selectAll') && document.execCommand('copy') || refuse()",
    "history": "history.pushState(1, '', '#moved')",
}
MARKUP = """<p>press</p><pre></pre><script>
const refuse = () => { throw new Error('refused'); };
const film = async () => {
  const canvas = document.createElement('canvas');
  film.node = document.createElement('video');
  film.node.muted = true;
  film.node.srcObject = canvas.captureStream(20);
  document.body.append(canvas, film.node);
  setInterval(() => canvas.getContext('2d').fillRect(0, 0, 9, 9), 20);
  await film.node.play();
};
document.querySelector('p').addEventListener('click', async () => {
  let outcome = 'had';
  try {
    await Promise.race([POWER, new Promise((end) => setTimeout(end, 1000))]);
  } catch (error) {
    outcome = 'refused';
  }
  document.querySelector('pre').textContent = outcome;
});</script>"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    made = browser.new_page()
    yield made
    made.close()


def show(page: Page, markup: str) -> None:
    page.route(ADDRESS, lambda route: route.fulfill(body=f"<!doctype html>{markup}", content_type="text/html"))
    page.goto(ADDRESS)


@pytest.mark.parametrize("power", POWERS.values(), ids=POWERS)
def test_a_frame_reaches_nothing_beyond_itself_after_a_click_in_it(page: Page, power: str) -> None:
    """The same attempt in a page without a frame works: that it fails in the frame says something."""
    markup = MARKUP.replace("POWER", power)
    show(page, markup)
    page.locator("p").click()
    expect(page.locator("pre")).to_have_text("had")
    show(page, frame([{"type": "show", "html": markup}]))
    inner = page.frame_locator("iframe").frame_locator("iframe")
    inner.locator("p").click()
    expect(inner.locator("pre")).to_have_text("refused")
