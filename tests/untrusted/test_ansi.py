"""Only colours survive of all that a terminal understands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.untrusted import ansi
from sandbox_kernel.untrusted.ansi import MAX_CHANGES, ColourFilter, only_colours, plain


@pytest.mark.attack("O02", "kernel")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\r\n\b", "plain\ttext\r\n\b"),
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        ("\x1b[38;2;1;2;3mx\x1b[38:5:1mz\x1b[m", "\x1b[38;2;1;2;3mx\x1b[38;5;1mz\x1b[0m"),
        ("\x1b[38:2::1:2:3mx\x1b[48:2:4:5:6mz", "\x1b[38;2;1;2;3mx\x1b[48;2;4;5;6mz"),
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
        ("a\x1b[1;8;31mb", "a\x1b[1;31mb"),
        ("a\x1b[38:5;8mb", "ab"),
        ("a\x1b[38;5mb\x1b[38;8mc", "abc"),
        ("a\x1b[58;5;8;1mb", "a\x1b[1mb"),
        ("a\x1b[10;18;28;70mb", "ab"),
        ("\x1b[37;47mx", "\x1b[37;47;49mx"),
        ("\x1b[97mx\x1b[48;5;15my", "\x1b[97mx\x1b[48;5;15;49my"),
        ("\x1b[48;2;9;9;9mx\x1b[38;2;9;9;9my", "\x1b[48;2;9;9;9mx\x1b[38;2;9;9;9;49my"),
    ],
)
def test_no_sequence_hides_text(text: str, shown: str) -> None:
    assert ColourFilter(None).feed(text) == shown


def test_changes_of_colour_are_shown_up_to_the_most_and_their_text_is_kept() -> None:
    def coloured(count: int) -> str:
        return "".join(f"\x1b[3{number % 7}mx" for number in range(count))

    assert only_colours(coloured(MAX_CHANGES)) == coloured(MAX_CHANGES)
    more = only_colours(coloured(MAX_CHANGES + 50))
    assert more.count("\x1b") == MAX_CHANGES + 1 and "\x1b[0m[… more than" in more and more.endswith("x" * 50)
    assert ColourFilter(None).feed(coloured(MAX_CHANGES + 50)) == coloured(MAX_CHANGES + 50)


def test_a_colour_that_is_on_already_is_no_change() -> None:
    assert only_colours("\x1b[0m\x1b[31mx" + "\x1b[31my\x1b[39;31mz" * 20_000) == "\x1b[31mx" + "yz" * 20_000


def test_the_colours_that_text_leaves_on_are_ended_once() -> None:
    stream = ColourFilter()
    stream.feed("\x1b[1;31mx\x1b[39m")
    assert (stream.end_colours(), stream.end_colours()) == ("\x1b[0m", "")
