"""Loopback listeners of the tests of frames: they note what a frame gets out."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HELPERS = """
const U = %(url)s, TCP = %(tcp)s, UDP = %(udp)s, DNS = %(dns)s;
const log = () => {};
const add = (tag, fields, to = document.head) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) name === 'style' ? node.setAttribute(name, value) : (node[name] = value);
  to.append(node);
  return node;
};
parent.postMessage({type: 'height', height: 77, name: %(name)s}, '*');
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
            "udp": json.dumps(f"127.0.0.1:{self.udp.getsockname()[1]}"), "dns": json.dumps("probe.localhost"), "code": code, "name": json.dumps(name),
        }  # fmt: skip
        return "<script>" + (HELPERS % values).replace("</", "<\\/") + "</script>"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.tcp.close()
        self.udp.close()
