"""Arguments of a call: every wrong one is quoted, none is guessed."""

from __future__ import annotations

import pytest

from sandbox_kernel import InvalidRequest
from sandbox_kernel.agent.arguments import Fields, shown


def test_optional_fields_may_be_left_out_or_null():
    for args in ({}, {"a": None}):
        fields = Fields(args, ("a",))
        assert fields.optional_text("a") is None
        assert fields.whole("a", 7, 1, 9) == 7
        assert fields.flag("a") is False
        assert fields.choice("a", "x", ("x", "y")) == "x"


@pytest.mark.parametrize("read", [lambda f: f.flag("a"), lambda f: f.choice("a", "x", ("x", "y"))])
@pytest.mark.parametrize("value", [1, 0, "", "z", [], {}])
def test_a_wrong_value_is_quoted(read: object, value: object):
    with pytest.raises(InvalidRequest, match='"a" must be'):
        read(Fields({"a": value}, ("a",)))


def test_an_unknown_field_is_quoted_with_the_known_ones():
    with pytest.raises(InvalidRequest, match='unknown field "b"; known fields: a, c'):
        Fields({"b": 1}, ("a", "c"))


def test_what_is_quoted_is_short_and_on_one_line_whatever_it_is():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 10**7, "\n\x1b[2J", "\ud800", deep, object(), {1: {2}}, [1] * 10**6, b"bytes", float("inf")):
        text = shown(value)
        assert len(text) < 100
        assert text.isprintable()
        text.encode()
