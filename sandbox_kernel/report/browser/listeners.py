"""Loopback listeners that note what a browser sends: HTTP, TCP and UDP, apart for frames and for the control."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from sandbox_kernel.report.browser.attempts import Addresses, attempt_page

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
