"""Variables travel as JSON, in one statement, without moving a line."""

import array
import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel import InvalidRequest, Language
from sandbox_kernel.notebook.options.variables import MarkedOutput, encode, encode_all, with_variables

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(alphabet=st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_a_python_program_gets_the_value_that_was_sent(value):
    code = with_variables(Language.PYTHON, "\n", {"x": encode("x", value)}, (), "")
    space = {}
    exec(code, space)
    assert space["x"] == value


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_a_text_goes_through_python_and_comes_back(text):
    marked = MarkedOutput()
    code = with_variables(Language.PYTHON, "\ny = x + '!'\n", {"x": encode("x", text)}, ("y",), marked.mark)
    space, printed = {"print": lambda line, **_: printed.append(line + "\n")}, []
    exec(code, space)
    assert marked.feed("".join(printed)) == ""
    assert marked.values(Language.PYTHON, ("y",)) == {"y": text + "!"}


@pytest.mark.parametrize("text", ["plain", "two words", "it's", '"q"', "a\nb", "tab\t\\back", "ünï", "$HOME `id`", ""])
def test_a_text_goes_through_a_shell_and_comes_back_beside_others(text):
    marked = MarkedOutput()
    code = with_variables(Language.COMMAND, '\ny="$x"\nz=1\necho hi', {"x": encode("x", text)}, ("y", "z"), marked.mark)
    done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=True)
    assert marked.feed(done.stdout) == "hi\n"
    assert marked.values(Language.COMMAND, ("y", "z")) == {"y": text.rstrip("\n"), "z": "1"}


def test_no_line_moves_when_the_first_line_is_ours():
    code = with_variables(Language.PYTHON, "\nfirst()\nsecond()", {"x": "1"}, ("x",), "M")
    assert code.split("\n")[1:3] == ["first()", "second()"]


def test_a_shebang_stays_first():
    assert with_variables(Language.COMMAND, "#!/bin/sh\necho", {"x": "1"}, (), "").startswith(
        "#!/bin/sh\nexport x='1'; \n"
    )


def test_javascript_gets_globals_and_prints_json():
    code = with_variables(Language.JAVASCRIPT, "\nlet y = x", {"x": '"</script>"'}, ("y",), "M")
    assert code.startswith('globalThis["x"] = JSON.parse("\\"</script>\\"");')
    assert code.endswith(";console.log('\\nM' + JSON.stringify({\"y\": y}));\n")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "type object cannot be passed"),
        (math.nan, "float"),
        (b"x", "type bytes"),
        (array.array("i", [1]), "pass thing.tolist() as a variable of its own"),
    ],
)
def test_what_is_no_json_is_refused_with_its_name(value, reason):
    with pytest.raises(InvalidRequest, match="-i thing") as caught:
        encode("thing", value)
    assert reason in str(caught.value)


def test_a_value_of_many_megabytes_is_refused():
    with pytest.raises(InvalidRequest, match="use --mount"):
        encode("x", "y" * (5 << 20))


def test_the_mark_is_found_however_the_output_is_cut():
    for cut in range(60):
        marked = MarkedOutput()
        text = f"hello\nworld\n{marked.mark}" + json.dumps({"x": [1]}) + "\n"
        shown = marked.feed(text[:cut]) + marked.feed(text[cut:]) + marked.close()
        assert shown == "hello\nworld"
        assert marked.values(Language.PYTHON, ("x",)) == {"x": [1]}


@given(st.lists(st.text(alphabet="ab\n\x1e", max_size=6), max_size=8))
def test_output_without_the_mark_passes_unchanged(chunks):
    marked = MarkedOutput()
    assert "".join(marked.feed(chunk) for chunk in chunks) + marked.close() == "".join(chunks)


@pytest.mark.parametrize("behind", ["", "nonsense", "[1]", "{}", '{"y": 1}', "[" * 100_000])
def test_a_forged_or_broken_answer_is_refused(behind):
    marked = MarkedOutput()
    marked.feed(f"\n{marked.mark}{behind}")
    with pytest.raises(InvalidRequest, match="-o x: what came out is not JSON"):
        marked.values(Language.PYTHON, ("x",))


def test_a_cell_that_ended_early_says_so():
    with pytest.raises(InvalidRequest, match="ended before it printed its variables"):
        MarkedOutput().values(Language.PYTHON, ("x",))


def test_python_prints_nan_as_an_error_and_not_as_a_value():
    assert sys.version_info >= (3, 11)
    marked = MarkedOutput()
    marked.feed(f'\n{marked.mark}{{"x": NaN}}')
    assert math.isnan(marked.values(Language.PYTHON, ("x",))["x"])


def test_the_variables_of_one_cell_are_read_until_they_are_too_much():
    read = []

    def values():
        for number in range(64):
            read.append(number)
            yield f"v{number}", "x" * (4_000_000)

    with pytest.raises(InvalidRequest, match="with the others more than 12582912 characters"):
        encode_all(values())
    assert len(read) == 4
    assert encode_all([("a", 1), ("b", [2])]) == {"a": "1", "b": "[2]"}
