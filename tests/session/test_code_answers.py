"""A completion goes on with the word before the cursor, and adds nothing but the rest of a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.session.code_answers import MAX_MATCHES, completeness, completions, suggestions

KINDS = "_jupyter_types_experimental"


def offered(before: str, *texts: object, start: int | None = None, after: str = "") -> tuple[str, ...]:
    """What is taken of these matches at the end of ``before``, for the last word unless ``start`` is given."""
    begin = len(before) - len(before.split("\n")[-1].rpartition(" ")[2]) if start is None else start
    return tuple(suggestions(list(texts), before + after, begin, len(before))[0])


@pytest.mark.parametrize(
    ("before", "start", "text"),
    [
        ("pri", 0, "print"),
        ("x = 1\nthing.meth", 12, "method"),
        ("thing.meth", 0, "thing.method"),
        ("thing.meth", 5, ".method"),
        ("import os.pa", 7, "os.path"),
        ("print(se", 6, "sep="),
        ("d['", 3, "first name"),
        ("d['fir", 3, "first name']"),
        ("d[", 2, "'first name'"),
        ("d[", 2, "3"),
        ("open('./da", 6, "./data file (1).csv"),
        ("%ti", 0, "%%timeit"),
        ("!cat da", 5, "data/a-b.csv"),
        ("echo $my_v", 5, "$my_variable"),
        ("\\alp", 0, "\\alpha"),
        ("\\alpha", 0, "α"),
        ("घ", 0, "घर_की_संख्या"),
        ("", 0, "value"),
    ],
)
def test_a_name_is_offered(before: str, start: int, text: str) -> None:
    assert suggestions([text], before + " + 1", start, len(before))[0] == [text]


@pytest.mark.parametrize("before", ["", "pri", "x = 1\n", "x = 1\npri", "d['", "d[", "%", "%%", "%%sand", "\\"])
@pytest.mark.parametrize(
    "text",
    [
        "%%sandbox python --mount /root:/root --allow-net evil.example\nprint",
        "%%sandbox --mount /root:/root",
        "%sandbox --mount /root:/root",
        "%%sandbox",
        "%%SANDBOX",
        "print\nimport os",
        "print\rimport os",
        "print\u2028import os",
        "print;import os",
        "print(open('/etc/passwd').read())",
        "print import os",
        "print\u202e",
        "print\u200b",
        "print\u2066x",
        "print\ufeff",
        "print\u3164",
        "print\U000e0041",
        "print\x1b[2K",
        "print\x00",
        "print\ud800",
        "print`id`",
        "print$(id)",
        "print|sh",
        "print\\",
        "p" * 10_000,
        "",
        None,
        7,
        ["print"],
    ],
)
@pytest.mark.one_case
def test_nothing_but_a_name_is_ever_offered(before: str, text: object) -> None:
    for start in range(len(before) + 1):
        for shown in (text, before[start:] + text if isinstance(text, str) else text):
            if shown == before[start:] or (before == "d['" and shown == "print import os"):
                continue  # what is there already; and a key may have spaces
            assert suggestions([shown], before + " rest", start, len(before))[0] == []


def test_text_that_is_not_before_the_cursor_on_its_line_is_never_replaced() -> None:
    code = "import os\npri(1)"
    for start in [*range(-3, 10), 14, 99]:
        assert offered("import os\npri", "print", "import os\nprint", start=start, after="(1)") == ()
    assert completions({"matches": ["print"], "cursor_start": 10, "cursor_end": 999}, code, 13)["cursor_end"] == 13


def test_a_match_that_does_not_go_on_with_what_is_written_is_left_out() -> None:
    assert offered("os.remove", "shutil.rmtree", "os.removedirs") == ("os.removedirs",)
    assert offered("x = user_", "root_", "user_name") == ("user_name",)


def test_what_is_known_of_a_match_is_made_here_and_not_by_the_worker() -> None:
    forged = {
        "type": "function",
        "text": "%%sandbox --mount /:/",
        "start": 0,
        "end": 3,
        "insertText": "x",
        "signature": "y",
    }
    fair = {"type": "class", "text": "print", "start": 0, "end": 99, "signature": "<b>"}
    odd = {"type": "Approved by the administrator", "text": "printer"}
    answer = {"matches": ["print", "printer"], "cursor_start": 0, "metadata": {KINDS: [forged, fair, odd], "more": 1}}
    found = completions(answer, "pri", 3)
    assert found["metadata"] == {
        KINDS: [
            {"start": 0, "end": 3, "text": "print", "type": "class"},
            {"start": 0, "end": 3, "text": "printer", "type": "<unknown>"},
        ]
    }


@pytest.mark.parametrize(
    "answer", [{}, {"matches": "x"}, {"matches": [1]}, {"matches": ["print"], "cursor_start": True}]
)
def test_an_answer_of_another_shape_offers_nothing(answer: dict[str, object]) -> None:
    assert completions(answer, "pri", 3) == {"matches": [], "cursor_start": 3, "cursor_end": 3, "metadata": {}}


def test_an_endless_answer_is_cut() -> None:
    assert len(offered("a", *[f"a{number}" for number in range(100_000)])) == MAX_MATCHES


_SIGNS = st.text(alphabet="ab1_.$/%'\"[]()\\ \n\r;:=-sandbox\u202e\u200b", max_size=12)


@given(_SIGNS, _SIGNS, st.lists(_SIGNS, max_size=5), st.integers(-2, 14))
@pytest.mark.slow
def test_whatever_is_answered_only_the_word_at_the_cursor_changes(
    before: str, after: str, texts: list[str], start: int
) -> None:
    code, pos = before + after, len(before)
    found, begin = suggestions([*texts, *(before[max(start, 0) :] + text for text in texts)], code, start, pos)
    for text in found:
        typed = code[begin:pos]
        assert "\n" not in typed
        assert not set(text) & set("\n\r\u202e\u200b")
        assert "%sandbox" not in text
        assert text.startswith(typed) or typed[0] in "%\\"


@pytest.mark.parametrize("indent", ["\n%%sandbox", "    x", "\u3000", " \t ", " " * 999, None, 4])
def test_the_indent_of_the_next_line_is_white_and_nothing_else(indent: object) -> None:
    assert completeness({"status": "incomplete", "indent": indent}) == {"status": "incomplete", "indent": ""}
    assert completeness({"status": "incomplete", "indent": "    "})["indent"] == "    "
