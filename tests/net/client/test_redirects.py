import pytest

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.fetch_messages import FetchRequest
from sandbox_kernel.net.safe_client import next_request
from sandbox_kernel.net.targets import parse_url

POST = FetchRequest(
    url="https://a.test/x",
    method="POST",
    headers={"Content-Type": "text/plain", "Authorization": "Bearer t", "Cookie": "c=1", "X-Mine": "1"},
    body=b"data",
)
HERE = parse_url(POST.url)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_307_and_308_keep_method_and_body_and_the_other_redirects_become_get_without_a_body(status: int):
    new = next_request(POST, HERE, status, "https://a.test/y?z=1#frag")
    assert new is not None
    kept = status > 303
    assert (new.url, new.method, new.payload) == (
        "https://a.test/y?z=1", "POST" if kept else "GET", b"data" if kept else b"",
    )  # fmt: skip
    assert (("Content-Type", "text/plain") in new.header_list) is kept
    assert ("Authorization", "Bearer t") in new.header_list


@pytest.mark.parametrize("status", [200, 300, 304, 305, 306, 400])
def test_300_and_304_are_answers_and_not_redirects(status: int):
    assert next_request(POST, HERE, status, "/y") is None
    assert next_request(POST, HERE, status, None) is None


def test_head_stays_head():
    new = next_request(FetchRequest(url="https://a.test/", method="HEAD"), HERE, 302, "/y")
    assert new is not None
    assert new.method == "HEAD"


@pytest.mark.attack("N11", "network")
@pytest.mark.parametrize("location", ["https://b.test/", "http://a.test/x", "https://a.test:8443/", "//b.test/"])
def test_headers_that_are_not_listed_stay_with_their_origin(location: str):
    new = next_request(POST, HERE, 307, location)
    assert new is not None
    assert [name for name, _ in new.header_list] == ["Content-Type"]


@pytest.mark.parametrize(
    ("location", "rule"),
    [
        ("file:///etc/passwd", "scheme_not_allowed"),
        ("javascript:alert(1)", "scheme_not_allowed"),
        ("gopher://a.test/", "scheme_not_allowed"),
        ("https://u:p@a.test/", "invalid_url"),
        ("https://a.test\r\nX: y", "invalid_url"),
        ("/\tx", "invalid_url"),
        ("http://[::1", "invalid_url"),
    ],
)
def test_a_location_that_is_no_web_address_is_refused(location: str, rule: str):
    with pytest.raises(FetchError) as caught:
        next_request(POST, HERE, 302, location)
    assert caught.value.rule == rule


def test_a_location_with_spaces_and_raw_utf8_is_understood():
    new = next_request(POST, HERE, 302, " /a b/" + "ü".encode().decode("latin-1"))
    assert new is not None
    assert new.url == "https://a.test/a%20b/%C3%BC"
