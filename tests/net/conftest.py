"""Loopback servers, a resolver that answers what it was told, and a client that can misbehave."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme

from sandbox_kernel.net.fetch_policy import FetchPolicy
from sandbox_kernel.net.proxy.egress_proxy import EgressProxy, ProxyLimits

LOOPBACK = "127.0.0.1"


@dataclass
class Names:
    """An injected resolver: each name has a list of answers, used up one lookup at a time; the last one stays."""

    answers: dict[str, list[list[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        plan = self.answers.get(host, [[LOOPBACK]])
        return plan.pop(0) if len(plan) > 1 else plan[0]


class RawServer:
    """Accepts on loopback and runs ``serve(connection)`` for each connection in a thread."""

    def __init__(self, serve: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._serve, self._tls = serve, tls
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        connection.settimeout(20)
        with connection:
            try:
                if self._tls is not None:
                    with self._tls.wrap_socket(connection, server_side=True) as wrapped:
                        self._serve(wrapped)
                else:
                    self._serve(connection)
            except (OSError, ssl.SSLError):
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@dataclass
class Seen:
    """One request as it arrived at a server."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    rest: bytes = b""

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


def read_request(connection: socket.socket) -> Seen:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            raise OSError("closed")
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    line, *rows = head.decode("latin-1").split("\r\n")
    seen = Seen(line, [(row.partition(":")[0], row.partition(":")[2].strip()) for row in rows], b"")
    length = int((seen.all("content-length") or ["0"])[0])
    chunked = bool(seen.all("transfer-encoding"))
    while (chunked and not body.endswith(b"0\r\n\r\n")) or (not chunked and len(body) < length):
        chunk = connection.recv(65536)
        if not chunk:
            break
        body += chunk
    seen.body = body if chunked else body[:length]
    seen.rest = b"" if chunked else body[length:]
    return seen


def reply(status: int = 200, body: bytes = b"", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status} Whatever", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


@dataclass
class Site:
    """A web server that keeps what it saw and answers each path from a table."""

    routes: dict[str, bytes | Callable[[Seen], bytes]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    server: RawServer | None = None

    def serve(self, connection: socket.socket) -> None:
        request = read_request(connection)
        self.seen.append(request)
        path = request.line.split(" ")[1].partition("?")[0]
        answer = self.routes.get(path, reply(404, b"no such page"))
        connection.sendall(answer(request) if callable(answer) else answer)

    @property
    def port(self) -> int:
        assert self.server is not None
        return self.server.port

    def url(self, path: str = "/", host: str = "site.test", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def limits_as(self, port: int, **more: float) -> ProxyLimits:
        """Let the proxy treat this server's port as it treats 443 (TLS only) or 80 (HTTP too)."""
        own = frozenset((self.port,))
        tls, plain = (own, frozenset[int]()) if port == 443 else (frozenset[int](), own)
        return ProxyLimits(tls_ports=tls, http_ports=plain, **more)  # type: ignore[arg-type]

    @staticmethod
    def reply(status: int = 200, body: bytes = b"", *headers: str) -> bytes:
        return reply(status, body, *headers)

    def policy(self, **more: object) -> FetchPolicy:
        """Allows site.test at this server's port, and for it the one loopback address."""
        values: dict[str, object] = {"allowed_domains": (f"site.test:{self.port}",), "allow_private_for": (LOOPBACK,)}
        return FetchPolicy(**{**values, **more})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Authority:
    """A certificate authority of this test run, and a certificate for site.test."""

    server: ssl.SSLContext
    ca_file: str


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("site.test").configure_cert(context)
    ca_file: Path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(ca_file))
    return Authority(context, str(ca_file))


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def start_server(cleanup: ExitStack) -> Callable[..., RawServer]:
    def start(serve: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> RawServer:
        server = RawServer(serve, tls)
        cleanup.callback(server.close)
        return server

    return start


@pytest.fixture
def site(start_server: Callable[..., RawServer]) -> Site:
    made = Site({"/": reply(200, b"hello", "Content-Type: text/plain")})
    made.server = start_server(made.serve)
    return made


@pytest.fixture
def tls_site(start_server: Callable[..., RawServer], authority: Authority) -> Site:
    made = Site({"/": reply(200, b"secret hello")})
    made.server = start_server(made.serve, authority.server)
    return made


@dataclass
class Door:
    """A running proxy and the port that a program inside would find it on."""

    proxy: EgressProxy
    port: int

    def connect(self) -> socket.socket:
        return socket.create_connection((LOOPBACK, self.port), timeout=20)

    def talk(self, data: bytes) -> bytes:
        """Send everything, then read to the end."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)

    def open_tunnel(self, endpoint: str) -> socket.socket:
        """CONNECT, and expect to be let through."""
        connection = self.connect()
        connection.sendall(f"CONNECT {endpoint} HTTP/1.1\r\nHost: {endpoint}\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            chunk = connection.recv(1)
            assert chunk, answer
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return connection

    @staticmethod
    def get(url: str, *headers: str, host: str = "ignored") -> bytes:
        """The bytes of a plain GET request to a proxy."""
        return "\r\n".join([f"GET {url} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode()

    @staticmethod
    def post(url: str, *headers: str, body: bytes = b"") -> bytes:
        """The bytes of a plain POST request to a proxy; its framing is up to the headers."""
        return "\r\n".join([f"POST {url} HTTP/1.1", "Host: ignored", *headers, "", ""]).encode() + body

    @staticmethod
    def read_all(connection: socket.socket) -> bytes:
        return read_all(connection)

    @property
    def rules(self) -> list[str]:
        return [violation.rule for violation in self.proxy.violations]


def read_all(connection: socket.socket) -> bytes:
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionResetError:
        return data
    return data


@pytest.fixture
def open_door(cleanup: ExitStack, names: Names) -> Callable[..., Door]:
    def start(policy: FetchPolicy, **more: object) -> Door:
        listener = socket.create_server((LOOPBACK, 0))
        port = listener.getsockname()[1]
        proxy = cleanup.enter_context(EgressProxy(policy, **{"resolver": names, **more}))  # type: ignore[arg-type]
        proxy.start(listener)
        return Door(proxy, port)

    return start
