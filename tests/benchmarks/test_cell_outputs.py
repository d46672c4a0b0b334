"""What counts as the same output of both kernels, and what does not."""

from benchmarks.cell_outputs import comparable
from benchmarks.compare_outputs import Comparison
from sandbox_kernel.receipt import MARK, MIME


def stream(text: str, name: str = "stdout") -> dict[str, object]:
    return {"output_type": "stream", "name": name, "text": text}


def shown(**data: object) -> dict[str, object]:
    return {"output_type": "display_data", "data": {"text/plain": "x", **data}, "metadata": {}}


def test_what_differs_on_purpose_is_no_difference() -> None:
    frame = '<blockquote title="shown by the program in the sandbox" style="margin:0;padding:0 0 0 8px;border:0;'
    frame += 'border-left:3px solid #9e9e9e;overflow:auto"><b>1</b></blockquote>'
    ours = [
        stream("a\n"),
        stream("/box/x /tmp/ipykernel_2/17.py\n"),
        shown(**{"text/html": frame}),
        shown(**{MIME: {}}),
    ]
    theirs = [stream("a\n/place/x /tmp/ipykernel_9/17.py\n"), shown(**{"text/html": "<b>1</b>"})]
    assert comparable(ours, "/place") == comparable(theirs, "/place")
    error = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["one"]}
    assert comparable([{**error, "traceback": ["\x1b[31mone", f"{MARK} ran"]}], "/a") == comparable([error], "/a")


def test_another_text_stream_picture_or_error_is_a_difference() -> None:
    one = comparable([stream("a")], "/a")
    assert one != comparable([stream("b")], "/a")
    assert one != comparable([stream("a", "stderr")], "/a")
    assert comparable([shown(**{"text/html": "<b>1</b>"})], "/a") != comparable([shown()], "/a")
    errors = ({"output_type": "error", "ename": name, "evalue": "", "traceback": []} for name in "AB")
    assert len({comparable([error], "/a") for error in errors}) == 2


def test_a_cell_that_varies_by_itself_is_not_blamed_on_the_sandbox() -> None:
    found = Comparison("n", ("a", "b", "c"), ["1", "2", "3"], ["1", "9", "3"], ["1", "5", "4"], True)
    assert found.row() == ["n", "3", "1", "1", "1 (3)", "yes"]
    assert "-3\n+4" in "".join(found.diffs())
