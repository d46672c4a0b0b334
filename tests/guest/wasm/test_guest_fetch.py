"""Requests of guests: hostile JSON, and redirects that keep most headers with their origin."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.guest.wasm.guest_fetch import FOLLOWING, Request, read_request
from sandbox_kernel.net import safe_client

json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=10), st.lists, max_leaves=5)
documents = st.dictionaries(st.sampled_from(("url", "method", "headers", "body", "body_b64", "x")), json_values)


@given(st.one_of(st.binary(max_size=100), documents.map(json.dumps).map(str.encode)))
@settings(max_examples=200, deadline=None)
@pytest.mark.slow
def test_a_guests_json_is_a_request_or_a_value_error(raw: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_request(raw)


@pytest.mark.parametrize(
    ("status", "location", "method", "headers"),
    [
        (307, "/there", "POST", {"Authorization", "Content-Type", "X-A"}),
        (302, "/there", "GET", {"Authorization", "X-A"}),
        (308, "https://other.test/there", "POST", {"Content-Type"}),
        (303, "http://a.test/there", "GET", set()),
    ],
)
def test_a_redirect_takes_only_listed_headers_to_another_origin(
    status: int, location: str, method: str, headers: set[str]
) -> None:
    given_headers = {"Authorization": "Bearer x", "Content-Type": "text/plain", "X-A": "1"}
    new = Request("https://a.test/x", "POST", given_headers, b"body").redirected(status, location)
    assert (new.method, set(new.headers), new.body) == (method, headers, b"body" if method == "POST" else None)
    assert new.url.endswith("/there") and FOLLOWING == safe_client.FOLLOWING
