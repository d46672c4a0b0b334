"""Measures what frames can do in the user's browser: opens listeners and a page, and makes lines of what was seen."""

from __future__ import annotations

import html
import json
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from types import TracebackType

from sandbox_kernel.backends.measured.canaries import Measurement
from sandbox_kernel.untrusted.frames.document import frame

AREA = "page"
MECHANISM = "frame: sandbox, policy, loader"
_NO_BROWSER = "no browser opened the page on this machine, or it did not finish"
_AGENT = re.compile(r"(Firefox|Edg|Chrome|Version)/(\d{1,4})")


def measure_page(show: Callable[[str], None], timeout_s: float = 120.0) -> tuple[Measurement, ...]:
    """Return the lines for the page.

    Args:
        show: opens an address in the user's browser, or tells the user to.
        timeout_s: how long to wait for the browser.

    """
    with BrowserListeners() as listeners:
        show(listeners.address)
        listeners.wait(timeout_s)
        return page_lines(list(listeners.hits), listeners.answer)


def page_lines(hits: Iterable[str], answer: Mapping[str, object] | None) -> tuple[Measurement, ...]:
    """Return a line for each kind of attempt, of what reached the listeners and what the page said."""
    if answer is None:
        return tuple(_line(name, None, _NO_BROWSER) for name in ATTEMPTS)
    reached = {*hits, *(_hit(said) for said in _texts(answer.get("read")))}
    begun = set(_texts(answer.get("began")))
    browser = _AGENT.search(str(answer.get("agent", "")))
    where = f" in {browser[1].replace('Edg', 'Edge').replace('Version', 'Safari')} {browser[2]}" if browser else ""
    return tuple(_judged(name, list(attempts), reached, begun, where) for name, attempts in ATTEMPTS.items())


def _judged(name: str, attempts: list[str], reached: set[str], begun: set[str], where: str) -> Measurement:
    signs = {attempt: {f"frame/{attempt.replace(' ', '-')}"} for attempt in attempts}
    control = {f"control/{attempts[0].replace(' ', '-')}"}
    if name == ASIDE:
        signs, control = {"TCP": {"frame/TCP"}, "UDP": {"frame/UDP"}}, {"control/TCP", "control/UDP"}
    through = [attempt for attempt, found in signs.items() if found & reached]
    if through:
        return _line(name, False, f"{', '.join(through)} got through{where}")
    if not control & reached:
        return _line(name, None, f"not even {attempts[0]} outside of a frame was noticed{where}")
    missing = [attempt for attempt in attempts if attempt not in begun]
    if missing:
        return _line(name, None, f"{', '.join(missing)} did not begin{where}")
    return _line(name, True, f"{len(attempts)} attempts, none got through{where}; {attempts[0]} without the frame did")


def _hit(said: str) -> str:
    where, _, name = said.partition(" ")
    return f"{where}/{name.replace(' ', '-')}"


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _line(name: str, enforced: bool | None, evidence: str) -> Measurement:
    return Measurement(AREA, name, enforced, MECHANISM, evidence)


# What the frames of the report try in the user's browser, and the page in which they try it. Pure.
#
# Only attempts that do no harm where a browser lets them through: they ask for nothing, store nothing and go to no
# other host. ``tests/browser/frames/frame_probes`` has many more.

LOAD, LEAVE = "load something", "go to another page"
ASIDE, READ = "connect without a request", "read the page around it"

#: By line of the report: the name of each attempt and its code. U, TCP and UDP are addresses of listeners; ``got`` says
#: that something was read. The first one of each line is also tried outside of a frame: it must be noticed.
ATTEMPTS = {
    LOAD: {
        "fetch": "fetch(U, {mode: 'no-cors'})",
        "XMLHttpRequest": "const x = new XMLHttpRequest(); x.open('GET', U); x.send()",
        "WebSocket": "new WebSocket(U.replace('http', 'ws'))",
        "EventSource": "new EventSource(U)",
        "beacon": "navigator.sendBeacon(U, 'x')",
        "picture": "new Image().src = U",
        "script": "add('script', {src: U})",
        "style sheet": "add('link', {rel: 'stylesheet', href: U})",
        "font": "add('style', {textContent: '@font-face{font-family:q;src:url(' + U + ')} body{font-family:q}'})",
        "video": "add('video', {src: U, autoplay: true})",
        "frame": "add('iframe', {src: U})",
        "module": "import(U)",
        "worker": "new Worker(URL.createObjectURL(new Blob(['fetch(\"' + U + '\", {mode: \"no-cors\"})'])))",
    },
    LEAVE: {
        "location": "location = U",
        "link": "add('a', {href: U}).click()",
        "refresh": "add('meta', {httpEquiv: 'refresh', content: '0;url=' + U})",
        "form": "add('form', {action: U}).submit()",
        "navigation": "navigation.navigate(U)",
    },
    ASIDE: {
        "WebRTC": (
            "const p = new RTCPeerConnection({iceServers: [{urls: 'stun:' + UDP}]}); p.createDataChannel('x');"
            "p.createOffer().then((offer) => p.setLocalDescription(offer))"
        ),
        "preconnect": "add('link', {rel: 'preconnect', href: TCP})",
        "preconnect in markup": "document.body.innerHTML = '<' + 'link rel=preconnect href=' + TCP + '>'",
    },
    READ: {
        "its title": "got(parent.document.title)",
        "its cookies": "got(document.cookie + top.document.cookie)",
        "storage": "got(String(localStorage.length))",
    },
}

_HELPERS = """
const U = %(url)s, TCP = %(tcp)s, UDP = %(udp)s;
const say = (what) => parent.postMessage({type: 'refused', what, host: %(name)s, from: %(where)s}, '*');
const got = () => say('read');
const add = (tag, fields) => document.body.appendChild(Object.assign(document.createElement(tag), fields));
say('began');
try { %(code)s } catch (error) {}
"""


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """Where one kind of frame finds its listeners."""

    url: str
    tcp: str
    udp: str


def attempt_script(name: str, code: str, where: str, to: Addresses) -> str:
    """Return the markup of one attempt."""
    values = {
        "url": f"{to.url}/{where}/{name.replace(' ', '-')}", "tcp": to.tcp, "udp": to.udp, "name": name, "where": where,
    }  # fmt: skip
    text = _HELPERS % {**{key: json.dumps(value) for key, value in values.items()}, "code": code}
    return f"<body><script>{text.replace('</', '<' + chr(92) + '/')}</script>"


def attempt_page(inside: Addresses, outside: Addresses, done: str) -> str:
    """Return the page: it shows the frames one group after the other, and sends what they said to ``done``."""
    firsts = {line: next(iter(attempts)) for line, attempts in ATTEMPTS.items()}
    control = [
        f'<iframe srcdoc="{html.escape(attempt_script(name, ATTEMPTS[line][name], "control", outside))}"></iframe>'
        for line, name in firsts.items()
    ]
    frames = [
        frame([{"type": "show", "html": attempt_script(name, code, "frame", inside)}], 40)
        for attempts in ATTEMPTS.values()
        for name, code in attempts.items()
    ]
    # As JSON inside a script: markup in it must not end the script.
    data = json.dumps({"control": control, "frames": frames, "done": done}).replace("<", "\\u003c")
    return _page_text().replace("DATA", data)


@cache
def _page_text() -> str:
    return resources.files(__package__).joinpath("attempts.html").read_text("utf-8")


# Loopback listeners that note what a browser sends: HTTP, TCP and UDP, apart for frames and for the control.

_MOST_BYTES = 1 << 16


class BrowserListeners:
    """Listeners on 127.0.0.1, open while this is entered. ``hits`` says what reached them, and from where."""

    def __init__(self) -> None:
        self.hits: list[str] = []
        #: What the page said at its end; None until then.
        self.answer: Mapping[str, object] | None = None
        self._done = threading.Event()
        self._secret = secrets.token_urlsafe(16)

    def __enter__(self) -> BrowserListeners:
        """Open the listeners."""
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._tcp = {where: socket.create_server(("127.0.0.1", 0)) for where in ("frame", "control")}
        self._udp = {where: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for where in ("frame", "control")}
        threading.Thread(target=self._http.serve_forever, name="sandbox-report-page", daemon=True).start()
        for where, listener in self._tcp.items():
            threading.Thread(target=self._accept, args=(where, listener), daemon=True).start()
        for where, receiver in self._udp.items():
            receiver.bind(("127.0.0.1", 0))
            threading.Thread(target=self._receive, args=(where, receiver), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the listeners."""
        self._http.shutdown()
        self._http.server_close()
        for opened in (*self._tcp.values(), *self._udp.values()):
            opened.close()

    @property
    def address(self) -> str:
        """The address of the page that shows the frames."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/{self._secret}/page"

    def wait(self, timeout_s: float) -> bool:
        """Wait until the page has finished; False when it has not."""
        return self._done.wait(timeout_s)

    def _addresses(self, where: str) -> Addresses:
        tcp, udp = self._tcp[where].getsockname()[1], self._udp[where].getsockname()[1]
        url = self.address.removesuffix("/page")
        return Addresses(url=url, tcp=f"http://127.0.0.1:{tcp}", udp=f"127.0.0.1:{udp}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        listeners = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Serve the page, or note an attempt."""
                secret, _, rest = self.path.lstrip("/").partition("/")
                if secret != listeners._secret:
                    self.send_error(404)
                    return
                body = b"ok"
                if rest == "page":
                    parts = (listeners._addresses("frame"), listeners._addresses("control"))
                    body = attempt_page(*parts, f"/{secret}/done").encode()
                elif rest == "done" and self.command == "POST":
                    size = min(int(self.headers.get("Content-Length") or 0), _MOST_BYTES)
                    listeners._finish(self.rfile.read(size))
                else:
                    listeners.hits.append(rest[:100])
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_HEAD = do_OPTIONS = do_GET  # noqa: N815 - names of the library

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        return Handler

    def _finish(self, body: bytes) -> None:
        try:
            answer = json.loads(body)
        except ValueError:
            return
        if isinstance(answer, dict):
            self.answer = answer
            self._done.set()

    def _accept(self, where: str, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            self.hits.append(f"{where}/TCP")
            peer.close()

    def _receive(self, where: str, receiver: socket.socket) -> None:
        while True:
            try:
                receiver.recvfrom(2048)
            except OSError:
                return
            self.hits.append(f"{where}/UDP")
