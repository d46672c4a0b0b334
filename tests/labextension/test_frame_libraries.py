"""How the page reads a library out of an output, and what it does not spend on one."""

import base64
import gzip
import hashlib

import pytest

from sandbox_kernel.untrusted.frames.document import frame
from sandbox_kernel.untrusted.frames.frame_output import library_output
from tests.labextension.conftest import Evaluate

NAME = hashlib.sha256(b"1").hexdigest()
PACKED = base64.b64encode(gzip.compress(b"1", mtime=0)).decode()
LIBRARY = library_output({"title": "x", "sha256": NAME, "gzip": PACKED})
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


#: Counts what is unpacked. values: the name that is wanted, outputs with libraries, and whether the server has it.
WANTED = """(async () => {
  const [name, outputs, isServed] = values;
  const asked = [], real = globalThis.DecompressionStream;
  let unpacked = 0;
  globalThis.DecompressionStream = class extends real { constructor(kind) { super(kind); unpacked += 1; } };
  setFetch(async (wanted) => { asked.push(wanted); return isServed ? Uint8Array.from(atob(outputs[0].packed), (one) => one.charCodeAt(0)).buffer : null; });
  for (const { sha256, packed } of outputs) hearLibrary({ sha256, gzip: packed });
  const before = unpacked;
  const source = await new Promise((use) => withLibrary(name, use, () => use(null)));
  globalThis.DecompressionStream = real;
  return [source, before, unpacked, asked.length];
})()"""


def packed(source: bytes, name: str = "") -> dict[str, str]:
    made = base64.b64encode(gzip.compress(source, mtime=0)).decode()
    return {"sha256": name or hashlib.sha256(source).hexdigest(), "packed": made}


def test_a_library_is_unpacked_when_a_frame_waits_for_it(evaluate: Evaluate) -> None:
    outputs = [packed(b"%d" % number) for number in range(50)]
    assert evaluate("frame-comms.js", WANTED, NAME, outputs) == ["1", 0, 1, 0]


def test_a_false_library_does_not_stand_in_the_way_of_the_true_one(evaluate: Evaluate) -> None:
    false = [packed(b"false", NAME), {"sha256": NAME, "packed": "AAAA"}]
    assert evaluate("frame-comms.js", WANTED, NAME, [*false, packed(b"1")]) == ["1", 0, 3, 0]
    assert evaluate("frame-comms.js", WANTED, NAME, [packed(b"1"), *false, *false[:1]], True) == ["1", 0, 1, 0]
    own = [{**packed(b"1"), "sha256": "0" * 64}, *false]
    assert evaluate("frame-comms.js", WANTED, NAME, own, True) == ["1", 0, 3, 1]


#: The name that the server is asked for, or the length of what was unpacked. values: a name, and a packed source.
ASKED = """new Promise((use) => {
  setFetch(async (wanted) => use(wanted));
  hearLibrary({ sha256: values[0], gzip: values[1] });
  withLibrary(values[0], ({ length }) => use(length), use);
})"""


def test_a_library_that_unpacks_to_more_than_a_session_may_send_is_none(evaluate: Evaluate) -> None:
    largest, larger = (packed(b"x" * ((32 << 20) + more)) for more in (0, 1))
    assert evaluate("frame-comms.js", ASKED, *largest.values()) == 32 << 20
    assert evaluate("frame-comms.js", ASKED, *larger.values()) == larger["sha256"]
