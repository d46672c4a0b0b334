from __future__ import annotations

import pytest

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.rules.targets import MAX_URL_CHARS, normalise_host, parse_endpoint, parse_url


def rule_of(url: str) -> str:
    with pytest.raises(FetchError) as caught:
        parse_url(url)
    return caught.value.rule


def test_a_plain_https_url_is_taken():
    target = parse_url("https://example.org/a/b?c=d#e")
    assert (target.scheme, target.host, target.port, target.path) == ("https", "example.org", 443, "/a/b?c=d")
    assert target.authority == "example.org"


def test_rejects_credentials():
    with pytest.raises(FetchError, match="user name"):
        parse_url("https://example.org:443@evil.org/")
    assert rule_of("https://user:pass@example.org/") == "invalid_url"
    assert rule_of("https://user@example.org/") == "invalid_url"
    assert rule_of("https://@example.org/") == "invalid_url"


def test_rejects_data():
    assert rule_of("data:text/plain,hello") == "scheme_not_allowed"


def test_rejects_file():
    assert rule_of("file:///etc/passwd") == "scheme_not_allowed"


def test_normalizes_host_case():
    assert parse_url("https://EXAMPLE.Org/").host == "example.org"


def test_strips_trailing_dot():
    assert parse_url("https://example.org./").host == "example.org"
    assert rule_of("https://example.org../") == "invalid_url"
    assert rule_of("https://./") == "invalid_url"


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0x7f.1", "127.0.0.1."])
def test_url_parser_normalizes_encoded_ips(host: str):
    target = parse_url(f"http://{host}/")
    assert target.host == "127.0.0.1"
    assert target.address is not None


def test_allows_normal_dotted_ip():
    assert parse_url("http://93.184.216.34/").host == "93.184.216.34"


def test_a_url_without_a_host_is_refused():
    for url in ("http:///path", "http://", "http://:80/", "http:example.org", "http:/example.org", "//example.org", ""):
        assert rule_of(url) == "invalid_url", url


@pytest.mark.parametrize(
    "url",
    [
        "http://exa mple.org/",
        "http://example.org\r\nX: y/",
        "http://example.org/\r\nHost: evil",
        "http://example.org/a b",
        "http://example.org/\x00",
        "http://127%2e0.0.1/",
        "http://example.org%00.evil.org/",
        "http://evil.org\\@example.org/",
        "http://example.org\\.evil.org/",
        "http://example.org:80:80/",
        "http://example.org:0/",
        "http://example.org:65536/",
        "http://example.org:+80/",
        "http://example.org:٨٠/",
        "http://exa..mple.org/",
        "http://-example.org/",
        "http://[::1/",
        "http://[::1]evil.org/",
        "http://[fe80::1%25eth0]/",
        "http://::1/",
        "http://" + "a" * 64 + ".org/",
        "http://" + "a." * 130 + "org/",
        "http://ex\udcffample.org/",
        "http://example.org/\udcff",
        "http://example.org/" + "a" * MAX_URL_CHARS,
    ],
)
def test_a_url_that_two_parsers_could_read_differently_is_refused(url: str):
    assert rule_of(url) == "invalid_url"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("ⓔxample.org", "example.org"),
        ("example。org", "example.org"),
        ("①②⑦.⓪.⓪.①", "127.0.0.1"),
        ("１６９.２５４.１６９.２５４", "169.254.169.254"),
        ("faß.de", "xn--fa-hia.de"),
    ],
)
def test_an_international_name_has_one_spelling(written: str, meant: str):
    assert normalise_host(written)[0] == meant


def test_a_look_alike_name_stays_another_name():
    assert normalise_host("аpple.com")[0].startswith("xn--")


def test_ipv6_literals_work_in_urls_and_in_the_host_header():
    target = parse_url("http://[2606:4700:4700:0:0:0:0:1111]:8080/x")
    assert (target.host, target.port) == ("2606:4700:4700::1111", 8080)
    assert target.authority == "[2606:4700:4700::1111]:8080"
    assert parse_url(target.url) == target


def test_text_beyond_ascii_in_the_path_is_percent_encoded_once():
    assert parse_url("http://example.org/ü?q=%C3%BC").path == "/%C3%BC?q=%C3%BC"


def test_an_endpoint_needs_a_port():
    assert parse_endpoint("example.org:443").endpoint == "example.org:443"
    assert parse_endpoint("[2606:4700::1]:443").host == "2606:4700::1"
    for text in (
        "example.org",
        "example.org:",
        "example.org:99999",
        "[::1]",
        "a@b:443",
        "http://example.org:443",
        ":443",
    ):
        with pytest.raises(FetchError):
            parse_endpoint(text)
