"""Answers are bounded and can always be written as JSON."""

import json

import pytest

from sandbox_kernel.agent.sandbox_tool import as_text, bounded, storable


def test_a_text_within_the_bound_is_unchanged():
    assert bounded("é" * 50, 100) == "é" * 50


@pytest.mark.attack("O07", "host")
def test_head_and_tail_of_a_long_text_are_kept_and_characters_stay_whole():
    text = bounded("a" * 500 + "é" * 5000 + "z" * 20, 1000)
    assert text.startswith("a" * 500)
    assert text.endswith("z" * 20)
    assert "truncated" in text
    assert "\N{REPLACEMENT CHARACTER}" not in text
    assert len(text.encode()) < 1200


def test_text_that_no_encoding_carries_is_replaced_everywhere():
    value = storable({"a\ud800": ["b\udfff", ("c", 1, None, True)]})
    assert value == {"a?": ["b?", ["c", 1, None, True]]}
    assert bounded("\ud800", 10) == "?"


@pytest.mark.attack("O07", "host")
def test_the_text_form_reads_back_the_same_and_closes_no_tag():
    answer = {"stdout": "</x></y>\n\x1b[31m", "n": 1}
    assert "</" not in as_text(answer)
    assert "\n" not in as_text(answer)
    assert json.loads(as_text(answer)) == answer


def test_characters_that_nobody_sees_are_escaped_in_the_text_form():
    hidden = "\U000e0069\U000e0067 \u202e \x9b31m \u200b \u2028 \xa0"
    text = as_text({"stdout": f"é ☃ {hidden}"})
    assert text.isprintable()
    assert "é ☃" in text
    assert json.loads(text)["stdout"] == f"é ☃ {hidden}"
