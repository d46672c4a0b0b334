"""How the page reads a library out of an output, and what it does not spend on one."""

from __future__ import annotations

import base64
import gzip
import hashlib

import pytest

from sandbox_kernel.untrusted.frames.document import frame
from sandbox_kernel.untrusted.frames.frame_output import library_bundle
from tests.labextension.conftest import Evaluate

PACKED = base64.b64encode(gzip.compress(b"1", mtime=0)).decode()
LIBRARY = library_bundle({"title": "x", "sha256": hashlib.sha256(b"1").hexdigest(), "gzip": PACKED})
CLEANED = "(() => { const real = { sanitize: () => 'cleaned' }; skipFrames(real); return real.sanitize(values[0]); })()"


@pytest.mark.parametrize("lines", [False, True], ids=["text", "lines"])
def test_the_packed_source_is_found_in_the_html_of_an_output(evaluate: Evaluate, lines: bool) -> None:
    html = str(LIBRARY["text/html"])
    data = {**LIBRARY, "text/html": html.splitlines(keepends=True) if lines else html}
    assert evaluate("frame-comms.js", "packedLibrary(values[0])", data) == PACKED


@pytest.mark.parametrize(
    "html", [None, 1, "", "x", "x&quot;gzip&quot;: &quot;", "x&quot;gzip&quot;: &quot;<b>&quot;", "x&quot;gzip&quot;: &quot;&quot;"]
)  # fmt: skip
def test_what_is_no_packed_source_is_not_unpacked(evaluate: Evaluate, html: object) -> None:
    assert evaluate("frame-comms.js", "packedLibrary(values[0])", {"text/html": html}) is None


def test_jupyterlab_is_given_no_library_to_search_for_headings(evaluate: Evaluate) -> None:
    assert evaluate("frame-comms.js", CLEANED, LIBRARY["text/html"]) == ""


@pytest.mark.parametrize(
    "html",
    ["", "<h1>x</h1>", frame([]) + "<h1>x</h1>", frame([]) + frame([]), "<h1>x</h1>" + frame([]), frame([])[:-1]],
    ids=["nothing", "heading", "before a heading", "two frames", "after a heading", "cut off"],
)
def test_all_other_html_is_cleaned_as_before(evaluate: Evaluate, html: str) -> None:
    assert evaluate("frame-comms.js", CLEANED, html) == "cleaned"
