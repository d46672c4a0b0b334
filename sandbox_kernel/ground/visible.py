"""Shortens text from a sandbox to one visible line: for a receipt, a prompt, the name of an error.

Control characters, changes of writing direction and invisible letters are replaced, because they could hide the text
beside them or make it look like something else.
"""

from __future__ import annotations

import re

#: Control and format characters (directions, joiners, tags), line separators, and letters that are invisible.
INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_SPACES = re.compile(r"\s+")


def one_line(text: str, limit: int) -> str:
    """Return the text on one line of at most ``limit`` characters; invisible characters become U+FFFD."""
    # Cut first, so that the work below depends on the limit and not on the length of the text.
    cut = text[: 4 * limit]
    shown = INVISIBLE.sub("\ufffd", _SPACES.sub(" ", cut)).strip()
    return shown if len(shown) <= limit and len(cut) == len(text) else f"{shown[: limit - 1]}…"
