"""Frames and libraries of a session are checked before a page gets them."""

import base64
import gzip
import hashlib

import pytest

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.frames import frame_output
from sandbox_kernel.untrusted.frames.comm_message import CommMessage
from sandbox_kernel.untrusted.frames.frame_output import (
    FRAME,
    LIBRARY,
    FrameOutput,
    check_frame,
    ids_apart,
    library_bundle,
    library_output,
    needs_frame,
    sanitize_display,
    saved_widget,
)

DIGEST = "ab" * 32


def library(source: bytes = b"var x = 1", **changes: object) -> dict[str, object]:
    packed = base64.b64encode(gzip.compress(source)).decode()
    return {"title": "x", "sha256": hashlib.sha256(source).hexdigest(), "gzip": packed, **changes}


def test_a_frame_is_data_for_our_page_and_a_frame_for_others() -> None:
    bundle = check_frame({"html": "<script>1</script>", "libraries": [DIGEST], "height": 300}).bundle()
    assert bundle[FRAME] == {"html": "<script>1</script>", "libraries": [DIGEST], "height": 300}
    assert "height:300px" in str(bundle["text/html"])


@pytest.mark.parametrize(
    "value",
    [
        None, [], "x", {}, {"html": 1}, {"html": "x", "libraries": "ab"}, {"html": "x", "libraries": ["ab"]},
        {"html": "x", "libraries": [1]}, {"html": "x", "libraries": [DIGEST] * 17}, {"html": "x" * ((12 << 20) + 1)},
        {"html": "x", "libraries": [DIGEST.upper()]}, {"html": "x", "libraries": [DIGEST + "\n"]},
        {"html": "x", "widget": {"model_id": 1}}, {"html": "x", "widget": {"model_id": "A"}},
    ],
)  # fmt: skip
def test_what_is_no_frame_is_refused(value: object) -> None:
    with pytest.raises(ContentRefused):
        check_frame(value, "gate")


def test_a_frame_has_the_gate_of_its_session_only_for_a_widget() -> None:
    drawn = check_frame({"html": "x", "widget": {"model_id": "ab-1"}}, "gate")
    assert (drawn.model, drawn.gate) == ("ab-1", "gate")
    assert check_frame({"html": "x"}, "gate").gate == check_frame({"html": "x", "widget": {"model_id": "a"}}).gate == ""


def test_an_output_that_only_brings_libraries_takes_no_space_in_a_page() -> None:
    page = str(check_frame({"html": "", "libraries": [DIGEST], "height": 300}).bundle()["text/html"])
    assert "position:absolute;width:0;height:0" in page and "height:300px" not in page


@pytest.mark.parametrize(
    ("asked", "height"),
    [(None, 450), ("9", 450), (True, 450), (-5, 450), (float("nan"), 450), (1, 24), (10**9, 2000), (99.6, 100)],
)
def test_the_height_of_a_frame_is_one_that_fits_a_page(asked: object, height: int) -> None:
    assert check_frame({"html": "", "height": asked}).height == height


def test_a_library_is_in_its_output_once() -> None:
    known = library_bundle(library())[LIBRARY]
    assert known == library()
    bundle = library_output(library())
    assert str(bundle).count(str(library()["gzip"])) == 1
    assert bundle[LIBRARY] == {"sha256": library()["sha256"], "title": "x"}


def test_the_saved_state_of_a_widget_is_the_same_in_each_run() -> None:
    saved = []
    for name in ("ab" * 16, "cd" * 16):
        opened = CommMessage(
            kind="comm_open", comm_id=name, data={"state": {"layout": f"IPY_MODEL_{name}"}}, metadata={}
        )
        data = {FRAME: {"html": "x", "libraries": [], "widget": {"model_id": name, "gate": "g"}}}
        saved.append((saved_widget(data, [opened]), ids_apart(data)[0]))
    assert saved[0] == saved[1]
    assert ids_apart(data)[1] == {FRAME: {"model_id": "cd" * 16, "gate": "g"}}


@pytest.mark.parametrize(
    "value",
    [
        None, {}, library(gzip="!"), library(gzip=base64.b64encode(b"x").decode()), library(sha256=DIGEST), library(title=""),
        library(title="<b>"), library(gzip=str(library()["gzip"])[:-12]), library(gzip="A" * (12 << 20)),
    ],
)  # fmt: skip
def test_what_is_no_library_is_refused(value: object) -> None:
    with pytest.raises(ContentRefused):
        library_bundle(value)


def test_a_library_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_output, "MAX_SOURCE", 1000)
    with pytest.raises(ContentRefused, match="larger"):
        library_bundle(library(b"x" * 1001))


@pytest.mark.parametrize("sign", ['"', "<", "&", "'", ">", "\\", "\n", "\x01", "é", "\U0001f600", "a"])
def test_the_length_of_escaped_markup_is_never_more_than_was_measured(sign: str) -> None:
    made = len(FrameOutput(html=sign * 1000).bundle()["text/html"]) - len(FrameOutput(html=" ").bundle()["text/html"])  # type: ignore[arg-type]
    assert made <= frame_output.escaped_length(sign * 1000)


@pytest.mark.parametrize(("more", "whole"), [(0, True), (1, False)])
def test_the_html_of_a_frame_is_measured_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch, more: int, whole: bool
) -> None:
    monkeypatch.setattr(frame_output, "MAX_ESCAPED", 7 * 1000)
    bundle = FrameOutput(html='"' * 1000 + "a" * more).bundle()
    assert ("\\&quot;" * 1000 in str(bundle["text/html"])) is whole
    assert bundle[FRAME]["html"].startswith('"' * 1000)  # type: ignore[index]


TABLE = """<div>
<style scoped>
    .dataframe tbody tr th { vertical-align: top; }
</style>
<table border="1" class="dataframe"><tr><td>1</td></tr></table></div>"""


@pytest.mark.parametrize("markup", ["plain", "<b>bold</b>", "a < script > b", "<p title='onclick=1'>x</p>", TABLE])
def test_markup_without_scripts_or_styles_is_cleaned_for_the_page(markup: str) -> None:
    clean = sanitize_display({"text/html": markup, "text/plain": "x"}, {})
    assert FRAME not in clean.data
    assert "iframe" not in str(clean.data["text/html"])


@pytest.mark.parametrize(
    "markup",
    [
        "<script>1</script>",
        "<SCRIPT src=x>",
        "<b onclick=x()>b</b>",
        "<style>b { color: red }</style><b>x</b>",
        "<audio controls src='data:audio/wav;base64,AAAA'></audio>",
        "<video src=x></video>",
        "<svg></svg>",
        "<button>b",
    ],
)
def test_markup_that_cleaning_would_impair_is_shown_in_a_frame(markup: str) -> None:
    clean = sanitize_display({"text/html": markup, "text/plain": "x"}, {})
    assert clean.data[FRAME]["html"] == markup  # type: ignore[index]
    assert clean.data["text/plain"] == "x"
    assert clean.removed == ()


def test_other_forms_of_a_framed_output_are_cleaned_too() -> None:
    clean = sanitize_display(
        {FRAME: {"html": "x"}, "application/javascript": "1", "text/plain": "\x1b]0;title\x07x"}, {}
    )
    assert set(clean.data) == {FRAME, "text/html", "text/plain"}
    assert clean.data["text/plain"] == "x"


def test_a_frame_that_is_none_leaves_the_rest_and_says_so() -> None:
    clean = sanitize_display({FRAME: {"html": 1}, "text/plain": "x"}, {})
    assert clean.data == {"text/plain": "x"}
    assert clean.removed == ("an interactive output was not shown: it is no frame",)


def test_the_search_is_linear_in_hostile_markup() -> None:
    for text in ("<a " * 300_000, "<a" + " on" * 300_000, "<script " * 200_000, "<style>.dataframe " * 50_000):
        needs_frame(text)
