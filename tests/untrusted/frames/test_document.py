"""The documents of a frame hold what a sandbox shows as data only, and the page's copy of them is the same."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path

from sandbox_kernel.untrusted.frames.document import frame, outer_document, policy, script

STATIC = Path(__file__).resolve().parents[3] / "labextension" / "static"
HOSTILE = "</script></iframe><!--<script>alert(1)</script>\"'>&quot;\u2028"


def test_the_policy_names_our_two_scripts_and_no_address() -> None:
    for name in ("relay", "loader"):
        digest = base64.b64encode(hashlib.sha256(script(name).encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy()
    assert policy().startswith("default-src 'none';")
    assert not re.search(r"https?:|\*|'self'|'unsafe-inline'(?! *;)", policy().replace("style-src 'unsafe-inline'", ""))


def test_what_a_sandbox_shows_stands_in_the_document_as_json_only() -> None:
    document = outer_document([{"type": "show", "html": HOSTILE}])
    (payload,) = re.findall(r'id="payload">(.*?)</script>', document)
    assert json.loads(payload) == [{"type": "show", "html": HOSTILE}]
    assert "<" not in payload
    assert document.count("<script") == outer_document().count("<script")


def test_the_markup_for_other_pages_is_one_element_that_quotes_cannot_leave() -> None:
    markup = frame([{"type": "show", "html": HOSTILE}])
    match = re.fullmatch(r'<iframe sandbox="allow-scripts" style="[a-z0-9:;%]+" srcdoc="([^"<>]*)"></iframe>', markup)
    assert match is not None
    assert html.unescape(match[1]) == outer_document([{"type": "show", "html": HOSTILE}])


def test_the_labextension_has_the_same_document() -> None:
    assert (STATIC / "frame-document.txt").read_text() == outer_document(), "run python docs/generate.py"
