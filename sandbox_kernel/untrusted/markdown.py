"""Markdown without HTML in it, with links that only link.

Pages render Markdown with different parsers, so this does not try to be one of them: it breaks what *could* be HTML, a
remote picture or a link of another scheme in any of them. What is left looks the same in all.
"""

from __future__ import annotations

import re
from html import unescape

from sandbox_kernel.untrusted import Refused
from sandbox_kernel.untrusted.images import check_data_url
from sandbox_kernel.untrusted.tex import defused

MAX_MARKDOWN = 1 << 20

_GAP = "\u200b"
_HTML = re.compile(r"<(?=[A-Za-z/!?])")
_IMAGE = re.compile(r"!(?=\[)")
_CARRIED_IMAGE = re.compile(r"!\[([^\]\[\n]{0,500})\]\((data:image/[a-z]{3,4};base64,[A-Za-z0-9+/=]{1,24000000})\)")
_DESTINATION = re.compile(r"(\]\(\s*|^[ >\t]{0,20}\[[^\]\n]{1,500}\]:\s*)([^\s)]{1,3000})", re.MULTILINE)
_ALLOWED = re.compile(r"(?:https?://|mailto:)[^\\\x00-\x20]*\Z", re.IGNORECASE)
_DANGEROUS = re.compile(r"(?:javascript|vbscript|livescript|data|blob|file)\s*:\s*(?=\S)", re.IGNORECASE)
_FENCE = re.compile(r"^([ >\t]{0,20}(?:`{3,}|~{3,})[ \t]*)(mermaid|raw-html|html)\b", re.MULTILINE | re.IGNORECASE)


def clean_markdown(text: str) -> str:
    """Return Markdown that renders to text, tables, lists, code, checked pictures and outside links, or refuse it."""
    pictures: list[str] = []

    def keep(match: re.Match[str]) -> str:
        url = check_data_url(match[2])
        if url is None:
            return match[1]
        pictures.append(f"![{_HTML.sub('<' + _GAP, match[1])}]({url})")
        return f"\ufdd0{len(pictures) - 1}\ufdd1"

    text = text.replace("\ufdd0", "").replace("\ufdd1", "")
    text = _CARRIED_IMAGE.sub(keep, text)
    if len(text) > MAX_MARKDOWN:
        raise Refused(f"longer than {MAX_MARKDOWN >> 20} MB")
    text = _HTML.sub("<" + _GAP, text)
    text = _IMAGE.sub("!" + _GAP, text)
    text = _FENCE.sub(r"\1text", text)
    text = _DESTINATION.sub(lambda match: match[1] + (match[2] if _is_outside(match[2]) else "#"), text)
    if found := _DANGEROUS.search(_as_a_browser_reads(text)):
        raise Refused(f"it holds the address scheme {found[0].strip()[:20]!r}")
    text = defused(text)
    return re.sub("\ufdd0(\\d+)\ufdd1", lambda match: pictures[int(match[1])], text)


def _is_outside(destination: str) -> bool:
    return bool(_ALLOWED.match(_as_a_browser_reads(destination)))


def _as_a_browser_reads(text: str) -> str:
    """Entities resolved, Markdown's escapes taken off, and without the characters that browsers skip in addresses."""
    return re.sub(r"[\\\t\n\r\x00-\x1f]", "", unescape(unescape(text)))
