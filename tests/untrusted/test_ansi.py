"""Only colours survive of all that a terminal understands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.untrusted import ansi
from sandbox_kernel.untrusted.ansi import (
    MAX_COLOURS,
    MAX_LETTERS,
    MAX_MARKS,
    MAX_TURNS,
    ColourFilter,
    few_colours,
    only_colours,
    plain,
    turns,
)
from sandbox_kernel.untrusted.sanitize import sanitize_bundle


@pytest.mark.attack("O02", "kernel")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\r\n\b", "plain\ttext\r\n\b"),
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        ("\x1b[38;2;1;2;3mx\x1b[38:5:1mz\x1b[m", "\x1b[38;2;1;2;3mx\x1b[38:5:1mz\x1b[m"),
        ("\x1b]52;c;cm0gLXJm\x07after", "after"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1b]8;;https://evil.example\x1b\\text\x1b]8;;\x1b\\", "text"),
        ("\x1b[2J\x1b[1A\x1b[Hx\x1b[?1049h\x1b[6n", "x"),
        ("\x1bP+q544e\x1b\\x\x1b_apc\x1b\\y\x1b^pm\x07z", "xyz"),
        ("\x1bc\x1b7\x1b(0x\x1b#8", "x"),
        ("\x9b31mred\x9d0;t\x07", "�31mred�0;t"),
        ("a\x00b\x07c\x1b", "a\u2400bc"),
        ("\x1b]52;unfinished\nnext line", "\nnext line"),
        ("\x1b[31", ""),
        ("\x1b[>4;2m\x1b[?1mx", "x"),
        ("\x1b[" + "1;" * 100 + "mx", "1;" * 68 + "mx"),
    ],
)
def test_what_is_not_a_colour_goes(text, shown):
    assert only_colours(text) == shown


@pytest.mark.attack("O02", "kernel")
def test_a_sequence_that_never_ends_does_not_swallow_the_rest():
    assert only_colours("\x1b]0;" + "x" * 10000).endswith("x" * 5000)


def test_plain_text_has_no_colours_either():
    assert plain("\x1b[31mred\x1b[0m\x1b]0;t\x07") == "red"


@pytest.mark.attack("O02", "kernel")
@pytest.mark.parametrize(
    "text", ["a\x1b[31mb\x1b[0mc", "a\x1b]52;c;xx\x07b", "a\x1b]0;t\x1b\\b", "\x1b[2Jx\x1b[1;2Hy", "x\x1b(0y"]
)
def test_a_sequence_split_anywhere_is_still_one(text):
    for cut in range(len(text) + 1):
        stream = ColourFilter()
        assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.close() == only_colours(text)


@pytest.mark.attack("O02", "kernel")
@given(st.lists(st.text(alphabet="ab\x1b[]0;1m\x07\\\nPX?\x9c", max_size=12), max_size=8))
def test_chunks_give_what_the_whole_gives_or_less_but_never_an_escape(chunks):
    stream = ColourFilter()
    shown = "".join(stream.feed(chunk) for chunk in chunks) + stream.close()
    assert "\x1b" not in plain(shown)
    assert "\x07" not in shown


def test_text_without_escapes_is_never_held_back():
    stream = ColourFilter()
    assert stream.feed("no newline yet") == "no newline yet"
    assert stream.close() == ""


@given(st.text(st.characters() | st.sampled_from("\x00\x1b\x7f\x80\x9b\x9f\xa0é\b\t\n\r")))
def test_the_quick_look_for_control_characters_misses_none(text: str) -> None:
    assert only_colours(text) == ColourFilter().whole(ansi._NOT_COLOURS.sub("", text).translate(ansi._VISIBLE))


@pytest.mark.attack("O02", "kernel")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[8mb", "ab"),
        ("a\x1b[1;8;31mb\x1b[08mc", "abc"),
        ("a\x1b[38:5;8mb\x1b[38;5mc\x1b[38;8md\x1b[38;2;1;8me", "abcde"),
        ("a\x1b[58;5;8;1mb\x1b[10;18;28;70mc", "abc"),
        ("\x1b[37;47mx", "\x1b[37;47m\x1b[49mx"),
        ("\x1b[97mx\x1b[48;5;15my", "\x1b[97mx\x1b[48;5;15m\x1b[49my"),
        ("\x1b[48;2;9;9;9mx\x1b[38:2::9:9:9my", "\x1b[48;2;9;9;9mx\x1b[38:2::9:9:9m\x1b[49my"),
        ("\x1b[31;1mx\x1b[41my", "\x1b[31;1mx\x1b[41m\x1b[49my"),
    ],
)
def test_no_sequence_hides_text(text: str, shown: str) -> None:
    assert only_colours(text) == shown


def test_colours_are_shown_up_to_the_most_and_their_text_is_kept() -> None:
    def coloured(count: int) -> str:
        return "".join(f"\x1b[3{number % 7}mx" for number in range(count))

    assert only_colours(coloured(MAX_COLOURS)) == coloured(MAX_COLOURS)
    more = only_colours(coloured(MAX_COLOURS + 50))
    assert more.count("\x1b") == MAX_COLOURS + 1 and "\x1b[0m[… more than" in more and more.endswith("x" * 50)
    assert ColourFilter(None).feed(coloured(MAX_COLOURS + 50)) == coloured(MAX_COLOURS + 50)


def test_the_lines_of_one_output_are_bounded_together() -> None:
    line = "\x1b[31mx" * 100
    assert few_colours([line] * (MAX_COLOURS // 100)) == [line] * (MAX_COLOURS // 100)
    assert few_colours([line] * (MAX_COLOURS // 100 + 1)) == ["x" * 100] * (MAX_COLOURS // 100 + 1)


def fed(chunk: str, times: int) -> str:
    colours = ColourFilter()
    return "".join(colours.feed(chunk) for _ in range(times)) + colours.close()


@pytest.mark.parametrize("mark", ["\u0301", "\u200d", "\ufe0f", "\u0903", "\U000e0061", "\u202e"])
def test_a_letter_has_few_marks_however_they_come(mark: str) -> None:
    assert only_colours("a" + mark * MAX_MARKS) == "a" + mark * MAX_MARKS
    assert only_colours("a" + mark * 1000 + "b") == "a" + mark * MAX_MARKS + "b"
    assert fed(mark, 1000) == mark * MAX_MARKS
    assert fed("a" + mark * 3, 1000).replace("\n", "") == ("a" + mark * 3) * 1000


def test_long_lines_stay_as_they_are() -> None:
    for text in ("xa1 " * 200_000, "äß語 " * 200_000, "x" * 500_000 + "\n" + "\u05d0" * 100):
        assert only_colours(text) == text


def test_returns_are_bounded_by_the_width_of_their_lines() -> None:
    progress = "\r" + "#" * 80
    assert fed(progress, 10_000) == progress * 10_000
    assert fed("|\b/\b", 10_000).count("\b") == 20_000, "a spinner"
    for text, most in (
        ("x" * 500_000 + "\ry" * 1000, 40),
        ("x" * 300_000 + "y\b" * 1000, 0),
        ("\ry" * 290_000, 200_000),
    ):
        shown = only_colours(text)
        assert shown.count("\r") + shown.count("\b") <= most and shown.count("y") == text.count("y")
    assert ColourFilter(None).feed("x" * 500_000 + "\ry" * 1000).count("\r") == 1000, "a terminal has no page"


MIXED = "\u05d0a1 "


def test_text_that_changes_its_direction_too_often_is_shown_without_letters_from_right_to_left() -> None:
    shown = only_colours(MIXED * 200_000)
    assert turns(shown) == MAX_TURNS
    assert shown.count("the direction changes more than") == 1 and shown.endswith("\ufffda1 ")
    chunks = ColourFilter()
    assert sum(turns(chunks.feed(MIXED * 1000)) for _ in range(20)) == MAX_TURNS
    assert turns("".join(few_colours([only_colours(MIXED * 4000)] * 20))) <= MAX_TURNS


@pytest.mark.parametrize("unit", ["a\u202bb\u202c", "\u2067a\u2069", "\u0627\u0031", "\U0001e900b", "\u05d0\n"])
def test_whatever_sets_a_direction_is_counted(unit: str) -> None:
    assert turns(only_colours(unit * 50_000)) <= MAX_TURNS < turns(unit * 50_000)


def test_prose_in_a_language_that_is_written_from_right_to_left_stays_as_it_is() -> None:
    prose = "\u05e9\u05dc\u05d5\u05dd, \u05e2\u05d5\u05dc\u05dd! " * 100 + "\n"
    assert only_colours(prose * 100) == prose * 100
    assert turns(prose * 100) == 100


def test_lines_that_a_page_would_lay_out_for_seconds_are_left_out_and_told() -> None:
    text = "".join(f"{number % 100}\n" for number in range(300_000))
    shown = sanitize_bundle({"text/plain": text, "text/html": f"<pre>{text}</pre>"}, {})
    cut = "\n99\n\x1b[0m[… more than 100000 lines: the rest is not shown]\n"
    assert str(shown.data["text/plain"]).endswith(cut)
    assert shown.removed == ("HTML was not shown: it has more than 100000 lines",)
    stream = ColourFilter()
    parts = "".join(stream.feed(text[at : at + 65_536]) for at in range(0, len(text), 65_536)) + stream.close()
    assert parts.count("\n") == 100_001
    assert parts.endswith(cut)
    coloured = ColourFilter()
    shown_last = coloured.feed("\x1b[97m" + "\n" * 100_001 + "\x1b[0m") + coloured.close()
    assert shown_last.rindex("\x1b[0m") > shown_last.rindex("\x1b[97m")


@pytest.mark.parametrize(
    "unit", ["\u200f ", "\u060c ", "\u05be ", "\u0600 ", "\u2066 \u2069 ", "\u05d0 ", "\u05d0 a", "\u200f\u05d0 "]
)
@pytest.mark.one_case
def test_a_megabyte_of_signs_that_set_a_direction_is_gone_through_once(unit: str) -> None:
    # In a time that grows with the square of the text this would take hours, and the test's own limit ends it.
    assert turns(only_colours(unit * (1_000_000 // len(unit)))) <= MAX_TURNS


@pytest.mark.parametrize("chunk", [1, 700, 10_000])
def test_the_different_letters_of_a_text_are_bounded(chunk: int) -> None:
    text = "\n".join(map(chr, range(0x20000, 0x20000 + MAX_LETTERS + 100))) + "\nplain\n"
    colours = ColourFilter()
    shown = "".join(colours.feed(text[at : at + chunk]) for at in range(0, len(text), chunk)) + colours.close()
    assert len(set(shown)) == MAX_LETTERS + len(set("plain\n\ufffd"))
    assert shown.endswith("\ufffd\nplain\n")
    assert plain(text[:100]) == text[:100]
