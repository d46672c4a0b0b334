"""The JSON of a guest's request: read as ``json`` reads it, and at no cost that the guest chooses."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.net.guest_fetch.fetch_json import MAX_REQUEST_JSON_BYTES, decode_request
from sandbox_kernel.net.guest_fetch.request_json import read_request_json

TEXTS = ("url", "method", "body")
words = st.text(max_size=20)
documents = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(TEXTS, st.none() | words), "headers": st.none() | st.dictionaries(words, words)}
)


@given(documents, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_a_request_is_read_as_json_reads_it(document: dict[str, object], ascii_only: bool, indent: int | str | None):
    data = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    texts, table = read_request_json(data, TEXTS, "headers", 1000)
    assert table == (document.pop("headers", None) or {})
    assert texts == document


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\ntrue0u1', max_size=40).map(str.encode))
def test_whatever_else_is_refused_with_a_typed_error(data: bytes):
    try:
        texts, table = read_request_json(data, TEXTS, "headers", 10)
    except InvalidRequest:
        return
    document = json.loads(data)
    assert table == (document.pop("headers", None) or {})
    assert texts == document


@pytest.mark.parametrize("name", ["lists", "headers", "objects", "numbers"])
@pytest.mark.one_case
def test_sixteen_megabytes_of_brackets_take_no_gigabytes_of_the_hosts_memory(name: str):
    room = MAX_REQUEST_JSON_BYTES - 100
    bombs = {
        "lists": b'{"url": [' + b"[]," * (room // 3) + b"[]]}",
        "headers": b'{"headers": {' + b",".join(b'"%x":""' % number for number in range(room // 11)) + b"}}",
        "objects": b'{"headers": ' + b'{"a":' * (room // 5),
        "numbers": b'{"url": ' + b"1" * room + b"}",
    }
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            decode_request(bombs[name])
        assert tracemalloc.get_traced_memory()[1] < 2 * MAX_REQUEST_JSON_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("said", [b'{"url": "a", "url": "b"}', b'{"headers": {"a": "1", "a": "2"}}'])
def test_a_key_that_stands_there_twice_is_refused(said: bytes):
    with pytest.raises(InvalidRequest, match="twice"):
        read_request_json(said, TEXTS, "headers", 10)
