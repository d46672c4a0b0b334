"""Whatever bytes a hostile program sends, the parsers answer or raise the error they promise, and nothing else."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.fetch_messages import FetchRequest
from sandbox_kernel.net.fetch_policy import FetchPolicy
from sandbox_kernel.net.proxy.tls_hello import HelloReader
from sandbox_kernel.net.safe_client import next_request
from sandbox_kernel.net.targets import parse_endpoint, parse_url, why_not_public

hosts = st.text(st.sampled_from("aA0127.x-_:[]@%\\/ü①。\t\n?#*"), max_size=20)
urls = st.one_of(st.text(max_size=40), st.builds("http://{}/{}".format, hosts, st.text(max_size=10)))
PUBLIC = FetchPolicy(allow_all_public=True)


@given(urls)
@settings(max_examples=300, deadline=None)
@pytest.mark.slow
def test_a_url_parses_to_one_target_or_is_a_fetch_error(url: str):
    with contextlib.suppress(FetchError):
        target = parse_url(url)
        assert parse_url(target.url) == target
        assert target.host == target.host.lower()
        assert target.path.startswith("/")
        assert target.path.isascii()


@given(urls)
@settings(max_examples=300, deadline=None)
def test_what_is_allowed_by_address_is_public(url: str):
    decision = PUBLIC.check_url(url)
    if decision.allowed:
        assert decision.target is not None
        assert decision.target.address is None or why_not_public(decision.target.address) is None
        assert decision.target.port in (80, 443)


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_an_endpoint_parses_or_is_a_fetch_error(text: str):
    with contextlib.suppress(FetchError):
        parse_endpoint(text)


@given(urls)
@settings(max_examples=200, deadline=None)
def test_a_location_leads_somewhere_or_is_a_fetch_error(location: str):
    start = FetchRequest(url="https://a.test/x")
    with contextlib.suppress(FetchError):
        new = next_request(start, parse_url(start.url), 302, location)
        assert new is None or parse_url(new.url).url == new.url


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_tls_hello_parses_or_is_a_value_error(data: bytes, framed: bool):
    if framed:
        message = b"\x01" + len(data).to_bytes(3, "big") + data
        data = b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message
    with contextlib.suppress(ValueError):
        HelloReader().feed(data)
