from typing import Any

import pytest

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.net import fetch_messages
from sandbox_kernel.net.fetch_messages import FetchRequest, FetchResponse, forwardable


@pytest.mark.parametrize(
    "part",
    [
        {"headers": {"X": "a\r\nHost: evil"}},
        {"headers": {"X": "a\nb"}},
        {"headers": {"X": "a\0b"}},
        {"headers": {"X\r\nY": "a"}},
        {"headers": {"X Y": "a"}},
        {"headers": {"X:": "a"}},
        {"headers": {"": "a"}},
        {"headers": {"X": "snow ☃"}},
        {"headers": {"X": 7}},
        {"headers": "X: y"},
        {"headers": [("X",)]},
        {"headers": {f"X{n}": "a" for n in range(201)}},
        {"headers": {"X": "a" * 70_000}},
        *({"method": method} for method in ("", "GET /", "GE\r\nT", "GÉT", "a" * 300)),
    ],
)
def test_a_header_that_could_break_out_of_its_line_and_a_method_that_is_no_word_are_refused(part: dict[str, Any]):
    with pytest.raises(InvalidRequest):
        FetchRequest(url="https://example.org/", **part)


def test_text_becomes_utf8_and_a_lone_surrogate_is_refused():
    assert FetchRequest(url="https://example.org/", body="ü").payload == "ü".encode()
    with pytest.raises(InvalidRequest, match="surrogate"):
        FetchRequest(url="https://example.org/", body="\udcff")


def test_host_hop_by_hop_and_proxy_headers_of_a_guest_are_dropped():
    headers = FetchRequest(
        url="https://example.org/",
        headers={
            "Host": "evil.org",
            "Connection": "close, X-Private",
            "X-Private": "1",
            "Keep-Alive": "1",
            "Proxy-Authorization": "Basic x",
            "Proxy-Connection": "keep-alive",
            "TE": "trailers",
            "Transfer-Encoding": "chunked",
            "Upgrade": "h2c",
            "HTTP2-Settings": "x",
            "Content-Length": "3",
            "Expect": "100-continue",
            "Accept": "text/html",
            "Authorization": "Bearer mine",
        },
    ).header_list
    assert forwardable(headers) == (("Accept", "text/html"), ("Authorization", "Bearer mine"))


def test_repeated_headers_of_a_response_are_kept_apart():
    response = FetchResponse(status=200, headers=(("Set-Cookie", "a"), ("set-cookie", "b")), body=b"", url="")
    assert response.headers == (("Set-Cookie", "a"), ("set-cookie", "b"))
    assert response.header("SET-COOKIE") == "a, b"
    assert response.header("absent") is None


def test_headers_that_connection_names_are_joined_once(monkeypatch: pytest.MonkeyPatch):
    class Counted(frozenset[str]):
        joined = 0

        def __or__(self, other):  # type: ignore[no-untyped-def]
            Counted.joined += 1
            return frozenset(self) | other

    monkeypatch.setattr(fetch_messages, "CONNECTION_HEADERS", Counted(fetch_messages.CONNECTION_HEADERS))
    headers = (("Connection", ",".join(f"x{number}" for number in range(1000))), *(("a", "b"),) * 100)
    assert forwardable(headers) == (("a", "b"),) * 100
    assert Counted.joined == 1
