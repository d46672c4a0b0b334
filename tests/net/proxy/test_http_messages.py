import h11
import pytest

from sandbox_kernel.errors import FetchError
from sandbox_kernel.model import Violation
from sandbox_kernel.net.fetch_policy import FetchRefused
from sandbox_kernel.net.proxy.http_messages import failure_reply, head_for_client, read_request, refusal_reply
from sandbox_kernel.net.targets import parse_endpoint


def head(method: str, target: str, *headers: tuple[str, str], version: str = "1.1") -> h11.Request:
    return h11.Request(method=method, target=target, headers=[("Host", "h"), *headers], http_version=version)


def test_a_plain_request_is_made_anew_with_the_host_of_its_url():
    request = read_request(
        head("GET", "http://Site.Test:8080/a?b", ("Accept", "x"), ("Proxy-Authorization", "y"), ("Upgrade", "h2c"))
    )
    assert request.target.endpoint == "site.test:8080"
    onward = request.head_for_upstream()
    assert onward.target == b"/a?b"
    assert list(onward.headers) == [(b"host", b"site.test:8080"), (b"accept", b"x"), (b"connection", b"close")]


def test_framing_is_kept_in_one_form():
    by_length = read_request(head("POST", "http://a.test/", ("Content-Length", "3")))
    assert ("Content-Length", "3") in by_length.headers
    chunked = read_request(head("POST", "http://a.test/", ("Transfer-Encoding", "chunked"), ("Trailer", "x")))
    assert chunked.headers == (("Transfer-Encoding", "chunked"),)


@pytest.mark.parametrize(
    "request_head",
    [
        head("POST", "http://a.test/", ("Content-Length", "3"), ("Transfer-Encoding", "chunked")),
        head("PRI", "*", version="2.0"),
        head("GET", "http://a.test/", version="2.0"),
        head("GET", "/"),
        head("OPTIONS", "*"),
        head("CONNECT", "a.test:443", ("Content-Length", "3")),
        head("CONNECT", "a.test:443", ("Transfer-Encoding", "chunked")),
    ],
)
def test_what_no_honest_client_sends_is_malformed(request_head: h11.Request):
    with pytest.raises(FetchRefused) as caught:
        read_request(request_head)
    assert caught.value.rule == "malformed_request"


@pytest.mark.parametrize(
    "target", ["a.test", "a.test:0", "http://a.test:443", "u@a.test:443", "a.test:443:443", "[::1]"]
)
def test_a_connect_target_is_host_and_port(target: str):
    with pytest.raises(FetchRefused) as caught:
        read_request(head("CONNECT", target))
    assert caught.value.rule == "invalid_url"


def test_inside_a_tunnel_the_host_is_the_tunnels():
    inside = parse_endpoint("site.test:80")
    request = read_request(head("GET", "/x", ("Accept", "y")), inside)
    assert request.target.url == "http://site.test/x"
    for other in (head("GET", "http://evil.test/"), head("CONNECT", "evil.test:80")):
        with pytest.raises(FetchRefused):
            read_request(other, inside)


def test_a_path_cannot_move_the_host():
    inside = parse_endpoint("site.test:80")
    for path in ("//evil.test/", "/@evil.test/", "/..//evil.test", "/http://evil.test/"):
        assert read_request(head("GET", path), inside).target.host == "site.test"


def test_the_head_for_the_program_ends_the_connection_and_does_not_look_like_a_refusal_of_ours():
    answer = h11.Response(
        status_code=200,
        headers=[
            ("Connection", "keep-alive"),
            ("Keep-Alive", "5"),
            ("Content-Length", "3"),
            ("Set-Cookie", "a"),
            ("X-Sandbox-Rule", "forged"),
        ],
    )
    names = [name for name, _ in head_for_client(answer).headers]
    assert names == [b"content-length", b"set-cookie", b"connection"]
    assert (b"connection", b"close") in list(head_for_client(answer).headers)


def test_a_refusal_says_why_where_every_client_shows_it_and_cannot_be_split():
    violation = Violation(
        rule="domain_not_allowed", subject="a.test:443", reason="no\r\nX: y ☃", remedy="--allow-net a.test:443"
    )
    reply = refusal_reply(violation)
    first, *rest = reply.split(b"\r\n\r\n", 1)[0].split(b"\r\n")
    assert first.startswith(
        b"HTTP/1.1 403 refused by the sandbox (domain_not_allowed) no X: y ?; --allow-net a.test:443"
    )
    assert {line.split(b":")[0] for line in rest} == {
        b"Content-Type",
        b"Content-Length",
        b"X-Sandbox-Rule",
        b"Connection",
    }


def test_a_failure_is_a_gateway_error_and_not_a_refusal():
    assert failure_reply(FetchError("x", rule="connection_failed")).startswith(b"HTTP/1.1 502 ")
    assert failure_reply(FetchError("x", rule="connection_timeout")).startswith(b"HTTP/1.1 504 ")
