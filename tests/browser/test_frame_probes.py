"""Attempts to get out of a frame, in real Chromium: none reaches a listener of ours, and the page stays where it is."""

from __future__ import annotations

import html
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from sandbox_kernel.untrusted.frames.document import frame

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

PROBES = Path(__file__).parent / "frame_probes"
#: How many attempts share a page, and how long they get, in milliseconds.
AT_ONCE, WAIT = 12, 4000
HELPERS = """
const U = %(url)s, TCP = %(tcp)s, UDP = %(udp)s, DNS = %(dns)s;
const log = () => {};
const add = (tag, fields, to = document.head) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) name === 'style' ? node.setAttribute(name, value) : (node[name] = value);
  to.append(node);
  return node;
};
parent.postMessage({type: 'height', height: 77}, '*');
try { %(code)s } catch (e) {}
"""


class Listeners:
    """Loopback listeners for HTTP, TCP and UDP that note what reaches them. ``page`` is served to the browser."""

    def __init__(self) -> None:
        self.hits: list[str] = []
        self.page = ""
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ours = self.path in ("/page", "/favicon.ico")
                if not ours:
                    outside.hits.append(f"{self.command} {self.path}")
                body = outside.page.encode() if ours else b"ok"
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Access-Control-Allow-Origin", "*")
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_HEAD = do_OPTIONS = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        for work in (self.http.serve_forever, self._tcp, self._udp):
            threading.Thread(target=work, daemon=True).start()

    def _tcp(self) -> None:
        while True:
            try:
                peer, _ = self.tcp.accept()
            except OSError:
                return
            self.hits.append("TCP connection")
            peer.close()

    def _udp(self) -> None:
        while True:
            try:
                data, _ = self.udp.recvfrom(2048)
            except OSError:
                return
            self.hits.append(f"UDP {len(data)} bytes")

    def script(self, name: str, code: str) -> str:
        """The script of one attempt; requests that it makes hold its name."""
        values = {
            "url": json.dumps(f"{self.url}/x/{name}"), "tcp": json.dumps(f"http://127.0.0.1:{self.tcp.getsockname()[1]}"),
            "udp": json.dumps(f"127.0.0.1:{self.udp.getsockname()[1]}"), "dns": json.dumps("probe.localhost"), "code": code,
        }  # fmt: skip
        return "<script>" + (HELPERS % values).replace("</", "<\\/") + "</script>"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.tcp.close()
        self.udp.close()


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
