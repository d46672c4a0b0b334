from __future__ import annotations

import base64
import json

import pytest

from sandbox_kernel.errors import FetchError, InvalidRequest
from sandbox_kernel.net.client.fetch_messages import FetchRequest, FetchResponse
from sandbox_kernel.net.client.safe_client import SafeClient
from sandbox_kernel.net.guest_fetch import fetch_json
from sandbox_kernel.net.rules.fetch_policy import FetchPolicy

KEYS = {"status", "headers", "body", "body_b64", "ok", "error"}


def ask(client: SafeClient | None, **request: object) -> dict[str, object]:
    document = json.loads(fetch_json.answer(json.dumps(request).encode(), client))
    assert set(document) == KEYS
    return document


def test_a_guest_fetches_through_the_client(site, names):
    site.routes["/echo"] = lambda seen: site.reply(200, seen.line.encode() + b"|" + seen.body, "X-A: 1", "X-A: 2")
    client = SafeClient(site.policy(), names)
    got = ask(client, url=site.url("/echo"), method="POST", headers={"X-Mine": "1"}, body="text")
    assert (got["status"], got["ok"], got["error"]) == (200, True, None)
    assert got["body"] == "POST /echo HTTP/1.1|text"
    assert got["headers"]["x-a"] == "1, 2"
    assert site.seen[0].all("x-mine") == ["1"]


def test_binary_bodies_cross_intact_in_both_directions(site, names):
    blob = bytes(range(256))
    site.routes["/echo"] = lambda seen: site.reply(200, seen.body)
    client = SafeClient(site.policy(), names)
    got = ask(client, url=site.url("/echo"), method="PUT", body_b64=base64.b64encode(blob).decode())
    assert base64.b64decode(got["body_b64"]) == blob
    assert "\ufffd" in got["body"]


def test_the_method_is_get_and_only_the_url_is_needed(site, names):
    assert ask(SafeClient(site.policy(), names), url=site.url())["body"] == "hello"
    assert site.seen[0].line == "GET / HTTP/1.1"


def test_without_a_client_networking_is_disabled():
    got = ask(None, url="https://example.org/")
    assert (got["status"], got["ok"]) == (0, False)
    assert "networking disabled" in got["error"]
    assert "--allow-net" in got["error"]


def test_a_refusal_names_its_rule():
    got = ask(SafeClient(FetchPolicy(allow_all_public=True)), url="http://169.254.169.254/")
    assert "(private_ip_blocked)" in got["error"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b'{"url": 7}',
        b'{"url": "https://a.test", "method": 7}',
        b'{"url": "https://a.test", "method": "G T"}',
        b'{"url": "https://a.test", "headers": []}',
        b'{"url": "https://a.test", "headers": {"a": 1}}',
        b'{"url": "https://a.test", "headers": {"a": "b\\r\\nc: d"}}',
        b'{"url": "https://a.test", "body": 7}',
        b'{"url": "https://a.test", "body": "\\ud800"}',
        b'{"url": "https://a.test", "body_b64": "%%%"}',
        b'{"url": "https://a.test", "body_b64": 7}',
        b'{"url": "https://a.test", "body_b64": "\xc3\xbc"}',
        b'{"url": "https://a.test", "body": "a", "body_b64": "YQ=="}',
        b'{"url": "https://a.test", "follow": true}',
        b'{"url": "https://a.test", "x": ' + b"1" * 5000 + b"}",
    ],
)
def test_a_hostile_request_gets_an_answer_and_not_a_crash(raw: bytes, site, names):
    document = json.loads(fetch_json.answer(raw, SafeClient(site.policy(), names)))
    assert set(document) == KEYS
    assert document["error"]
    assert not document["ok"]
    assert len(json.dumps(document)) < 4000


def test_a_request_beyond_the_bound_is_not_even_parsed():
    with pytest.raises(InvalidRequest, match="at most"):
        fetch_json.decode_request(b" " * (fetch_json.MAX_REQUEST_JSON_BYTES + 1))


def test_what_is_encoded_is_decoded_again():
    request = FetchRequest(url="https://a.test/", method="POST", headers={"X": "y"}, body=b"\x00\xff")
    assert fetch_json.decode_request(fetch_json.encode_request(request)) == request
    response = FetchResponse(status=404, headers=(("x", "y"),), body=b"\xff", url="")
    assert fetch_json.decode_response(fetch_json.encode_response(response)) == response
    with pytest.raises(FetchError, match="no way"):
        fetch_json.decode_response(fetch_json.encode_error("no way"))
