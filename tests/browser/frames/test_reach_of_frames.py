"""What code in a frame can do beside drawing, when the user has clicked in it: nothing outside of the frame."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser, expect

from sandbox_kernel.untrusted.frames.document import frame

pytestmark = pytest.mark.browser

#: Each would do something outside of the frame.
POWERS = """{
  window_over_all: async () => { await film(); return film.node.requestPictureInPicture(); },
  pointer: () => document.body.requestPointerLock(),
  screen: () => document.body.requestFullscreen(),
  colours_of_the_screen: () => new EyeDropper().open(),
  media_keys: () => navigator.mediaSession.setActionHandler('play', () => {}),
  badge: () => navigator.setAppBadge(3),
  vibration: () => navigator.vibrate(1) || refuse(),
  clipboard: () => navigator.clipboard.writeText('taken'),
  clipboard_by_command: () => document.execCommand('copy') || refuse(),
  files: () => showOpenFilePicker(),
  microphone: () => navigator.mediaDevices.getUserMedia({ audio: true }),
  history: () => history.pushState(1, '', '#moved'),
  pads: () => navigator.getGamepads(),
  auction: () => navigator.runAdAuction({}),
}"""
MARKUP = """<p>press</p><pre></pre><script>
const refuse = () => { throw new Error('refused'); };
const film = async () => {
  const canvas = document.createElement('canvas');
  canvas.getContext('2d').fillRect(0, 0, 9, 9);
  film.node = document.createElement('video');
  film.node.muted = true;
  film.node.srcObject = canvas.captureStream(20);
  document.body.append(canvas, film.node);
  setInterval(() => canvas.getContext('2d').fillRect(0, 0, 9, 9), 20);
  await film.node.play();
};
const powers = POWERS;
document.querySelector('p').addEventListener('click', async () => {
  const tried = {};
  for (const [name, use] of Object.entries(powers)) {
    try {
      tried[name] = `had: ${await Promise.race([use(), new Promise((end) => setTimeout(end, 2000, 'it waits'))])}`;
    } catch (error) {
      tried[name] = 'refused';
    }
  }
  document.querySelector('pre').textContent = JSON.stringify(tried);
});</script>""".replace("POWERS", POWERS)


def test_a_frame_opened_a_window_over_all_others(chromium: Browser) -> None:
    page = chromium.new_page()
    try:
        page.set_content(frame([{"type": "show", "html": MARKUP}]))
        inner = page.frame_locator("iframe").frame_locator("iframe")
        inner.locator("p").click()
        shown = inner.locator("pre")
        expect(shown).to_contain_text("auction")
        tried = json.loads(shown.inner_text())
        assert len(tried) == 14
        assert {name: outcome for name, outcome in tried.items() if outcome != "refused"} == {}
    finally:
        page.close()
