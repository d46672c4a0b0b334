"""Parts of messages on the wire."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.wrapped.relaying.wire import from_json, to_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT, TEXT | st.none() | st.integers(), max_size=5))
def test_what_is_encoded_is_what_the_library_encodes(value: dict[str, object]) -> None:
    encoded = to_json(value)
    assert encoded == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert from_json(encoded) == value


@pytest.mark.parametrize("value", [{"text": "\ud800"}, {"\udfff": "x"}, {"text": float("nan")}])
def test_what_cannot_be_sent_is_an_error(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"surrogates|JSON compliant"):
        to_json(value)
