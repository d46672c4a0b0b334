"""HTTP: this machine only, and only for who has the token."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("mcp")

from sandbox_kernel import InvalidRequest
from sandbox_kernel.agent.http_server import MOST_WAITING, listen, read_token
from sandbox_kernel.agent.mcp.mcp_server import MOST_SESSIONS, TOKEN_VARIABLE

from .mcp_peers import PATIENCE_S, HttpServer, http_server

PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with http_server(tmp_path_factory.mktemp("http")) as started:
        yield started


def status(server: HttpServer, method: str = "POST", path: str = "/mcp", **headers: str) -> int:
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE_S)
    try:
        sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
        connection.request(method, path, PING if method == "POST" else None, sent)
        answer = connection.getresponse()
        assert b"sandbox_exec" not in answer.read() or answer.status == 200
        return answer.status
    finally:
        connection.close()


def bearer(server: HttpServer) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}"}


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS", "PUT"])
@pytest.mark.parametrize("path", ["/mcp", "/", "/.well-known/oauth-protected-resource"])
@pytest.mark.one_case
def test_nothing_answers_without_the_token(server: HttpServer, method: str, path: str):
    assert status(server, method, path) == 401


@pytest.mark.parametrize(
    "credential", ["Bearer wrong", "Bearer ", "Bearer", "Basic {token}", "{token}", "Bearer {token}x"]
)
def test_a_wrong_token_is_refused(server: HttpServer, credential: str):
    assert status(server, Authorization=credential.format(token=server.token)) == 401


@pytest.mark.slow
def test_the_sdks_client_gets_in_with_the_token_and_not_without(server: HttpServer):
    held = server.connect()
    assert held.answer("sandbox_exec", language="python", code="print(1)")["stdout"] == "1\n"
    held.close()
    with pytest.raises(BaseException, match=r"401|Unauthorized|unhandled errors"):
        server.connect(token="wrong" * 8)


def test_a_page_that_rebinds_its_name_is_refused_even_with_the_token(server: HttpServer):
    assert status(server, Host="evil.example", **bearer(server)) == 421
    assert status(server, Origin="http://evil.example", **bearer(server)) == 403


def test_sessions_are_bounded_and_one_that_ends_makes_room(tmp_path: Path):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with http_server(tmp_path) as server:
        place = urlsplit(server.url)

        def ask(method: str, **headers: str) -> tuple[int, str, bytes]:
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE_S)
            with contextlib.closing(connection):
                body = text if method == "POST" else None
                connection.request(method, "/mcp", body, {**kinds, **bearer(server), **headers})
                answer = connection.getresponse()
                return answer.status, answer.headers.get("Mcp-Session-Id", ""), answer.read()

        opened = [ask("POST") for _ in range(MOST_SESSIONS)]
        assert {status for status, _, _ in opened} == {200}
        refused = ask("POST")
        assert (refused[0], b"Too many open sessions" in refused[2]) == (503, True)
        assert ask("DELETE", **{"Mcp-Session-Id": opened[0][1]})[0] == 200
        assert ask("POST")[0] == 200


@pytest.mark.attack("O08", "host")
@pytest.mark.slow
def test_connections_of_strangers_do_not_take_all_descriptors_of_the_server(server: HttpServer):
    place = urlsplit(server.url)
    strangers = [
        socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S) for _ in range(MOST_WAITING)
    ]
    try:
        for stranger in strangers:
            stranger.sendall(b"POST /mcp HTTP/1.1\r\nHost: ")
        with socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S):
            with contextlib.suppress(ConnectionResetError):
                assert strangers[0].recv(1) == b"", "the one that waits longest makes way"
            held = server.connect()
            assert held.answer("sandbox_exec", language="python", code="print(1)")["stdout"] == "1\n"
            held.close()
    finally:
        for stranger in strangers:
            stranger.close()


@pytest.mark.attack("O08", "host")
def test_a_request_without_the_token_loses_its_connection(server: HttpServer):
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S) as stranger:
        stranger.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nslow")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while data := stranger.recv(1000):
                answer += data
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in answer.lower()


def test_a_large_request_is_refused(server: HttpServer):
    assert status(server, **bearer(server), **{"Content-Length": str(1 << 40)}) == 413


def test_the_token_is_made_anew_and_shown_once(server: HttpServer):
    assert len(server.token) >= 40
    assert server.said.count(server.token) == 1


@pytest.mark.slow
def test_a_token_of_the_environment_is_used_and_not_shown(tmp_path: Path):
    with http_server(tmp_path, token="a-token-of-my-own") as server:
        assert "a-token-of-my-own" not in server.said
        assert status(server) == 401
        assert status(server, **bearer(server)) != 401
    assert list(tmp_path.iterdir()) == []


def test_a_token_is_read_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    assert read_token(str(file), TOKEN_VARIABLE) == ("0123456789abcdef", False)
    monkeypatch.setenv(TOKEN_VARIABLE, "fedcba9876543210")
    assert read_token(None, TOKEN_VARIABLE) == ("fedcba9876543210", False)
    monkeypatch.delenv(TOKEN_VARIABLE)
    first, made = read_token(None, TOKEN_VARIABLE)
    assert made
    assert first != read_token(None, TOKEN_VARIABLE)[0]


@pytest.mark.parametrize("token", ["", "short", "with spaces in it", "é" * 20, "line\nbreak" * 5])
def test_a_token_that_is_none_is_refused(tmp_path: Path, token: str):
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(InvalidRequest, match="visible ASCII characters"):
        read_token(str(file), TOKEN_VARIABLE)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "", "127.0.0.1/8", "127.0.0.2"])
def test_only_loopback_is_listened_on(host: str):
    with pytest.raises(InvalidRequest, match=r"loopback|not an address"):
        listen(host, 0)


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_port_that_is_none_is_refused(port: int):
    with pytest.raises(InvalidRequest, match="is not a port"):
        listen("127.0.0.1", port)
