"""Measures what frames can do in the user's browser: serves a page whose frames try things; notes what gets through.

Only attempts that do no harm where a browser lets them through: they ask for nothing, store nothing and go to no other
host. ``tests/browser/frames/frame_probes`` has many more.
"""

from __future__ import annotations

import html
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources

from sandbox_kernel.backends.probes.canaries import Measurement
from sandbox_kernel.untrusted.frames.document import frame

AREA = "page"
LOAD, LEAVE, READ = "load something", "go to another page", "read the page around it"
#: By line of the report: the name of each attempt and its code. U is an address that notes it; ``got`` says that
#: something was read. The first one of each line is also tried outside of a frame: it must be noticed.
ATTEMPTS = {
    LOAD: {
        "fetch": "fetch(U, {mode: 'no-cors'})",
        "XMLHttpRequest": "const x = new XMLHttpRequest(); x.open('GET', U); x.send()",
        "WebSocket": "new WebSocket(U.replace('http', 'ws'))",
        "EventSource": "new EventSource(U)",
        "beacon": "navigator.sendBeacon(U, 'x')",
        "picture": "new Image().src = U",
        "script": "add('script', {src: U})",
        "stylesheet": "add('link', {rel: 'stylesheet', href: U})",
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
    READ: {
        "title": "got(parent.document.title)",
        "cookies": "got(document.cookie + top.document.cookie)",
        "storage": "got(String(localStorage.length))",
    },
}
_SCRIPT = """<body><script>
const U = %(url)s;
const say = (what) => parent.postMessage({type: 'refused', what, host: %(sign)s}, '*');
const got = () => say('read');
const add = (tag, fields) => document.body.appendChild(Object.assign(document.createElement(tag), fields));
say('began');
try { %(code)s } catch (error) {}
</script>"""
_NO_BROWSER = "no browser opened the page on this machine, or it did not finish"
_AGENT = re.compile(r"(Firefox|Edg|Chrome|Version)/(\d{1,4})")
_MOST_BYTES = 1 << 16


def measure_page(show: Callable[[str], None], timeout_s: float = 120.0) -> tuple[Measurement, ...]:
    """Return the lines for the page; ``show`` opens an address in the user's browser, or tells the user to."""
    with BrowserListener() as listener:
        show(listener.address)
        listener.done.wait(timeout_s)
        return page_lines(list(listener.hits), listener.answer)


def page_lines(hits: Iterable[str], answer: Mapping[str, object] | None) -> tuple[Measurement, ...]:
    """Return a line for each kind of attempt, of what reached the listener and what the page said."""
    if answer is None:
        return tuple(_line(name, None, _NO_BROWSER) for name in ATTEMPTS)
    reached = {*hits, *_texts(answer.get("read"))}
    begun = _texts(answer.get("began"))
    browser = _AGENT.search(str(answer.get("agent", "")))
    where = f" in {browser[1].replace('Edg', 'Edge').replace('Version', 'Safari')} {browser[2]}" if browser else ""
    lines = []
    for name, attempts in ATTEMPTS.items():
        first = next(iter(attempts))
        through = [attempt for attempt in attempts if f"frame/{attempt}" in reached]
        missing = [attempt for attempt in attempts if f"frame/{attempt}" not in begun]
        if through:
            line = _line(name, False, f"{', '.join(through)} got through{where}")
        elif f"control/{first}" not in reached:
            line = _line(name, None, f"not even {first} outside of a frame was noticed{where}")
        elif missing:
            line = _line(name, None, f"{', '.join(missing)} did not begin{where}")
        else:
            evidence = f"{len(attempts)} attempts, none got through{where}; {first} without the frame did"
            line = _line(name, True, evidence)
        lines.append(line)
    return tuple(lines)


def _texts(value: object) -> set[str]:
    return {text for text in value if isinstance(text, str)} if isinstance(value, list) else set()


def _line(name: str, enforced: bool | None, evidence: str) -> Measurement:
    return Measurement(AREA, name, enforced, "frame: sandbox, policy, loader", evidence)


class BrowserListener(ThreadingHTTPServer):
    """Serves the page on 127.0.0.1, and notes what reaches it: ``hits``, with ``frame/`` or ``control/`` before."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.place = f"http://127.0.0.1:{self.server_address[1]}/{secrets.token_urlsafe(16)}"
        self.address = f"{self.place}/page"
        self.hits: list[str] = []
        #: What the page said at its end; None until then.
        self.answer: Mapping[str, object] | None = None
        self.done = threading.Event()
        threading.Thread(target=self.serve_forever, name="sandbox-report-page", daemon=True).start()

    def server_close(self) -> None:
        """See ``ThreadingHTTPServer``; ends the thread too."""
        self.shutdown()
        super().server_close()

    def page(self) -> str:
        """Return the page: it shows the frames one group after the other, and sends what they said to ``done``."""

        def attempt(sign: str, code: str) -> str:
            return _SCRIPT % {"url": json.dumps(f"{self.place}/{sign}"), "sign": json.dumps(sign), "code": code}

        firsts = [next(iter(attempts.items())) for attempts in ATTEMPTS.values()]
        control = [
            f'<iframe srcdoc="{html.escape(attempt(f"control/{name}", code))}"></iframe>' for name, code in firsts
        ]
        frames = [
            frame([{"type": "show", "html": attempt(f"frame/{name}", code)}], 40)
            for attempts in ATTEMPTS.values()
            for name, code in attempts.items()
        ]
        # As JSON inside a script: markup in it must not end the script.
        data = {"control": control, "frames": frames, "done": f"{self.place}/done"}
        text = resources.files(__package__).joinpath("attempts.html").read_text("utf-8")
        return text.replace("DATA", json.dumps(data).replace("<", "\\u003c"))


class _Handler(BaseHTTPRequestHandler):
    server: BrowserListener

    def do_GET(self) -> None:
        """Serve the page, or note an attempt."""
        _, secret, rest = [*self.path.split("/", 2), "", ""][:3]
        if not self.server.place.endswith(f"/{secret}"):
            self.send_error(404)
            return
        if rest == "done" and self.command == "POST":
            size = min(int(self.headers.get("Content-Length") or 0), _MOST_BYTES)
            answer = json.loads(self.rfile.read(size))
            if isinstance(answer, dict):
                self.server.answer = answer
                self.server.done.set()
        elif rest != "page":
            self.server.hits.append(rest[:100])
        body = self.server.page().encode() if rest == "page" else b"ok"
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_HEAD = do_OPTIONS = do_GET  # noqa: N815 - names of the library

    def log_message(self, *_: object) -> None:
        """Write nothing."""
