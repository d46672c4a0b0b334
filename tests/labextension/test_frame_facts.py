"""What the page believes of a frame, and what it does not."""

import pytest

from tests.labextension.conftest import Evaluate

GOOD = {"html": "x", "libraries": ["ab" * 32], "height": 300}


def test_a_frame_is_read(evaluate: Evaluate) -> None:
    found = evaluate("frame-view.js", "readFrame(values[0], values[1])", GOOD, {"model_id": "a1", "gate": "b2"})
    assert found == {**GOOD, "widget": {"model": "a1", "gate": "b2"}}


@pytest.mark.parametrize(
    "data", [None, 1, {}, {**GOOD, "html": 1}, {**GOOD, "libraries": "x"}, {**GOOD, "libraries": ["x"]}, {**GOOD, "libraries": ["ab" * 32] * 17}]
)  # fmt: skip
def test_what_is_no_frame_is_not_drawn(evaluate: Evaluate, data: object) -> None:
    assert evaluate("frame-view.js", "readFrame(values[0])", data) is None


@pytest.mark.parametrize(
    "widget", [1, {"model_id": "a1"}, {"model_id": "<b>", "gate": "b2"}, {"model_id": ["a"], "gate": "b2"}]
)
def test_a_widget_without_usable_ids_is_none(evaluate: Evaluate, widget: object) -> None:
    assert evaluate("frame-view.js", "readFrame(values[0], values[1]).widget", GOOD, widget) is None


@pytest.mark.parametrize(("height", "fitting"), [(1e9, 2000), (-1, 4), ("x", 4), (300, 300), (None, 4)])
def test_a_frame_is_never_higher_or_lower_than_a_page_can_bear(
    evaluate: Evaluate, height: object, fitting: int
) -> None:
    assert evaluate("frame-view.js", "fittingHeight(values[0])", height) == fitting


def test_what_a_frame_was_refused_is_said_in_a_sentence(evaluate: Evaluate) -> None:
    call = "refusedSentence(values[0])"
    known = evaluate("frame-view.js", call, {"what": "script", "host": "cdn.example"})
    assert known == "This output wanted to load a script from cdn.example: blocked"
    for lie in ({"what": "script", "host": "<b>"}, {"what": "x", "host": 1}, {"what": "x", "host": "a" * 101}):
        assert evaluate("frame-view.js", call, lie) is None
    assert (
        evaluate("frame-view.js", call, {"what": "constructor", "host": "h"})
        == "This output wanted to load something from h: blocked"
    )


def test_each_message_gets_its_own_buffers(evaluate: Evaluate) -> None:
    found = evaluate("frame-comms.js", "split({messages: [1, 2, 3], parts: [1, 0, 2]}, ['a', 'b', 'c'])")
    assert found == [
        {"type": "comm", "msg": 1, "buffers": ["a"]},
        {"type": "comm", "msg": 2, "buffers": []},
        {"type": "comm", "msg": 3, "buffers": ["b", "c"]},
    ]


def test_a_file_that_is_too_large_is_said_with_its_size_the_limit_and_what_to_do(evaluate: Evaluate) -> None:
    dropped = {"bytes": (70 << 20) + 1, "most": 8 << 20, "isFile": True}
    assert evaluate("frame-view.js", "droppedSentence(values[0])", dropped) == (
        "Not uploaded: 71 MB, and 8 MB in 10 seconds is the most. "
        "Put larger files into a folder of the session (--here, --mount)"
    )
    assert evaluate("frame-view.js", "droppedSentence(values[0])", {"bytes": 1.5e6, "most": 1 << 20}) == (
        "This output sent 2 MB at once: dropped, 1 MB is the most"
    )
    uncounted = evaluate("frame-view.js", "droppedSentence({ ...values[0], bytes: Infinity })", {"most": 1 << 20})
    assert "not passed on" in str(uncounted)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("newplot.png", "newplot.png"),
        ("../../.bashrc", "output.bashrc"),
        (".csv", "output.csv"),
        ("..", "output"),
        ("a\\b.txt", "b.txt"),
        (r"""a<b>:"c|?*.txt""", "abc.txt"),
        ("report\u202egnp.exe", "reportgnp.exe"),
        ("a\nb\0.txt", "ab.txt"),
        ("report.pdf" + "\u2800" * 60 + ".exe", "report.pdf.exe"),
        ("report.pdf" + " " * 60 + ".exe", "report.pdf .exe"),
        ("a\u3164\u115f\ufe0f\u034fb.txt", "ab.txt"),
        ("x." + "y" * 99, "output." + "y" * 99),
        ("x" * 200 + ".csv", "x" * 96 + ".csv"),
        ("Übersicht 1.csv", "Übersicht 1.csv"),
        ("", "output"),
        (None, "null"),
    ],
)
def test_the_name_of_a_file_to_save_is_the_one_that_is_seen(evaluate: Evaluate, name: object, shown: str) -> None:
    call = "fileToSave({ name: values[0], file: new ArrayBuffer(1) }).name"
    assert evaluate("frame-view.js", call, name) == shown
    assert evaluate("frame-view.js", "fileToSave({ name: 'a', file: values[0] })", name) is None


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [
        ("bokeh_plot", "image/png", "bokeh_plot.png"),
        ("plot.svg", "image/png", "plot.svg"),
        ("plot", "text/html", "plot"),
        ("plot", "constructor", "plot"),
        ("plot", None, "plot"),
    ],
)
def test_a_file_without_an_ending_gets_that_of_its_kind(
    evaluate: Evaluate, name: str, kind: object, shown: str
) -> None:
    call = "fileToSave({ name: values[0], kind: values[1], file: new ArrayBuffer(1) }).name"
    assert evaluate("frame-view.js", call, name, kind) == shown


def test_a_file_to_save_that_is_too_large_is_said_with_its_size_and_what_to_do(evaluate: Evaluate) -> None:
    dropped = {"bytes": 70 << 20, "most": 64 << 20, "isFile": True, "isSaved": True}
    assert evaluate("frame-view.js", "droppedSentence(values[0])", dropped) == (
        "Not saved: a file of 70 MB, and 64 MB in 10 seconds is the most. "
        "Let the program write it into a folder (--here)"
    )
