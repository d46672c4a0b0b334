"""Printed text that needs no cleaning is found in its bytes, and is what the cleaner would have given."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox_kernel.wrapped.cleaning.clean_outputs import OutputCleaner
from sandbox_kernel.wrapped.cleaning.plain_print import is_plain, printed_text
from sandbox_kernel.wrapped.relaying.wire import to_json

#: Everything that the cleaner changes, and what is near to it.
ODD = [
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\x00",
    "\x7f",
    "\x85",
    "\u25a3",
    "\u25a2",
    "\\",
    '"',
    "\n",
    "\t",
    "\r",
    "\b",
    "é",
    "°",
    "字",
    "😀",
]
TEXT = st.lists(st.sampled_from(ODD) | st.text(max_size=5), max_size=12).map("".join)


def written(text: str, *, ascii_only: bool) -> bytes:
    return json.dumps({"name": "stdout", "text": text}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


@given(TEXT, st.booleans(), st.integers(1, 7))
@example("a\\nb", False, 3)
@example('"\\"', False, 2)
@example("ab\ncd\n", False, 3)
@example("字字字", False, 4)
@example("\ud800", False, 4)
def test_plain_pieces_are_what_the_cleaner_gives_and_the_rest_is_the_rest_of_the_text(text, ascii_only, size):
    content = written(text, ascii_only=ascii_only)
    found = printed_text(content)
    assert found is not None
    at, shown = found.begin, ""
    for at, piece in found.pieces(size):  # noqa: B007
        told = json.loads(piece)
        assert OutputCleaner().clean("stream", told) == told
        assert to_json(told) == piece
        shown += told["text"]
    rest = json.loads(found.rest(at))
    assert rest["name"] == "stdout"
    assert shown + rest["text"] == text


@given(st.binary(max_size=40) | st.text('\\"n\x1b\u25a3x', max_size=20).map(str.encode))
@example(b"\\")
@example(b'\\\\"')
@example(b"\\u001b[2J")
@example(b'","name":"stderr')
def test_bytes_that_are_plain_are_one_json_text_that_the_cleaner_leaves_as_it_is(raw):
    if is_plain(raw):
        content = b'{"name":"stdout","text":"' + raw + b'"}'
        told = json.loads(content)
        assert told.keys() == {"name", "text"}
        assert OutputCleaner().clean("stream", told) == (told if raw else None)
        assert to_json(told) == content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"name":"stdout","text":"}',
        b'{"name":"other","text":"x"}',
        b'{"text":"x","name":"stdout"}',
        b'{"name":"stdout","text":7}',
        b'{"name":"stdout","text":"x"} ',
    ],
)
def test_content_that_is_not_written_as_usual_is_left_to_the_cleaner(content):
    assert printed_text(content) is None


def test_usual_text_is_plain_in_one_piece():
    found = printed_text(written('line 1\n\t"quoted"\r\nzwölf 字\n', ascii_only=False))
    assert [at for at, _ in found.pieces(1000)] == [found.end]
