"""Stream text is batched, in order, and complete."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.notebook.page.stream_batch import MAX_PIECES, StreamBatch, merged


def sent(*writes, ends=True, **options):
    """What a page gets of texts that are written, as pairs of a stream and a text."""

    async def go():
        found = []
        batch = StreamBatch(lambda name, text: found.append((name, text)), **options)
        for name, text in writes:
            batch.write(name, text)
        if ends:
            batch.close()
        return found

    return asyncio.run(go())


def test_a_hundred_thousand_lines_make_few_messages_and_lose_nothing():
    found = sent(*(("stdout", f"line {number}\n") for number in range(100_000)))
    assert "".join(text for _, text in found) == "".join(f"line {n}\n" for n in range(100_000))
    assert len(found) < 40


def test_text_is_sent_while_the_cell_runs_and_not_only_at_its_end():
    async def slowly():
        arrived = asyncio.Event()
        batch = StreamBatch(lambda name, text: arrived.set(), interval_s=0.001)
        batch.write("stdout", "early")
        await arrived.wait()

    asyncio.run(slowly())


def test_the_order_of_the_two_streams_is_kept():
    pieces = [("stdout", "a"), ("stdout", "b"), ("stderr", "c"), ("stdout", "d")]
    assert merged(pieces) == [("stdout", "ab"), ("stderr", "c"), ("stdout", "d")]


def test_streams_that_alternate_at_every_line_are_sent_as_two():
    pieces = [("stdout", "o"), ("stderr", "e")] * MAX_PIECES
    assert merged(pieces) == [("stdout", "o" * MAX_PIECES), ("stderr", "e" * MAX_PIECES)]


@pytest.mark.attack("O02", "kernel")
def test_escape_sequences_are_filtered_for_each_stream_on_its_own():
    found = sent(("stdout", "a\x1b]52;"), ("stderr", "\x1b[31mb"), ("stdout", "c;x\x07d\x1b["))
    assert found == [("stdout", "a"), ("stderr", "\x1b[31mb"), ("stdout", "d"), ("stderr", "\x1b[0m")]


def test_one_giant_write_is_cut_into_messages_of_bounded_size():
    texts = [text for _, text in sent(("stdout", "x" * 1000), ends=False, size=10)]
    assert "".join(texts) == "x" * 1000
    assert max(map(len, texts)) <= 160


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(alphabet="ab\n", min_size=1)), max_size=60))
def test_nothing_is_lost_whatever_is_written(writes):
    found = sent(*writes, size=8)
    for wanted in ("stdout", "stderr"):
        assert "".join(t for n, t in found if n == wanted) == "".join(t for n, t in writes if n == wanted)


def test_colours_that_end_one_by_one_leave_no_empty_line_below_the_output():
    text = "\x1b[31mE\x1b[39m \x1b[38;5;28;01mdef\x1b[39;00m \x1b[1;4;97;44mx\x1b[22;24;39;49m"
    assert sent(("stderr", text), ("stdout", "after"))[1:] == [("stdout", "after")]


@pytest.mark.parametrize(
    "left_on", ["5", "7", "38;5;0", "0;7", "31;49", "38;2;255;255;0", "48;5;1", "1;23", "53", "0;9"]
)
def test_every_colour_that_is_left_on_ends_before_anything_of_ours(left_on):
    assert sent(("stdout", f"\x1b[{left_on}mhidden")) == [("stdout", f"\x1b[{left_on}mhidden\x1b[0m")]


def test_text_of_a_program_never_bears_the_mark_of_a_receipt():
    ((_, text),) = sent(("stdout", "\u25a3 [python \u00b7 ok \u00b7 limits 30 s, 512 MB \u00b7 isolated process]\n"))
    assert text.startswith("\u25a1 [python")
