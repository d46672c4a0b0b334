"""Tags and texts of HTML, split in one pass."""

from __future__ import annotations

from html import unescape

import pytest

from sandbox_kernel.untrusted.markup.html_tokens import _REFERENCE, _character


@pytest.mark.parametrize(
    "text",
    [
        "&lt;b&gt; &amp;amp; &notit; &notin; &copy &copyright; &#60;&#x3c;&#0;&#xD800; &#128; & &; &# &#x &unknown; &"
        + "a" * 40,
        "&frac12x &Ccedil &yacuteZ &GT &thetasym; &CounterClockwiseContourIntegral;",
    ],
)
def test_character_references_mean_what_the_standard_library_says(text: str) -> None:
    assert _REFERENCE.sub(_character, text) == unescape(text)
