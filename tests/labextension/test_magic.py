"""The page reads the %%sandbox line as far as it needs it."""

import pytest

from sandbox_kernel.notebook.options.option_table import OPTIONS
from tests.labextension.conftest import Evaluate


@pytest.mark.parametrize(
    ("source", "language", "options"),
    [
        ("%%sandbox", None, {}),
        ("%%sandbox   \r\nprint(1)", None, {}),
        ("\n  \n%%sandbox js\n1", "js", {}),
        ("# NBVAL_IGNORE_OUTPUT\n// NBVAL_SKIP\n%%sandbox js\n1", "js", {}),
        ("%%sandbox rust --timeout 5s --memory=64M\nfn main(){}", "rust", {"--timeout": ["5s"], "--memory": ["64M"]}),
        ("%%sandbox --fresh c -i a -i b", "c", {"--fresh": [""], "-i": ["a", "b"]}),
        ("%%sandbox py --stdin 'two words' --arg \"a \\\" b\"", "py", {"--stdin": ["two words"], "--arg": ['a " b']}),
        ("%%sandbox py --stdin 'still typing", "py", {"--stdin": ["still typing"]}),
        ("%%sandbox py --timeout", "py", {"--timeout": [""]}),
    ],
)  # fmt: skip
def test_a_cell_magic_is_read(evaluate: Evaluate, source: str, language: str | None, options: dict[str, str]) -> None:
    assert evaluate("languages.js", "cellMagic(values[0])", source) == {"language": language, "options": options}


@pytest.mark.parametrize(
    "source", ["", "print(1)", "%%sandboxed js", "x\n%%sandbox js", "%sandbox js", "# x\n%%sandbox js", " %%sandbox js"]
)
def test_other_cells_have_no_magic(evaluate: Evaluate, source: str) -> None:
    assert evaluate("languages.js", "cellMagic(values[0])", source) is None


def test_every_line_magic_of_a_cell_is_read(evaluate: Evaluate) -> None:
    source = "%sandbox --timeout 2s\nx = 1\n%sandbox go 3\n%sandbox --memory 64M\n%sandbox"
    assert evaluate("languages.js", "lineMagics(values[0])", source) == [
        {"language": None, "options": {"--timeout": ["2s"]}},
        {"language": None, "options": {"--memory": ["64M"]}},
    ]


@pytest.mark.parametrize(
    ("source", "program"),
    [
        ("%%sandbox js\n1\n2", "1\n2"),
        ("\n\n%%sandbox js\n\n1", "\n1"),
        ("%%sandbox js", ""),
        ("%%sandbox js\r\n1", "1"),
        ("# NBVAL_SKIP\n%%sandbox js\n1", "1"),
    ],
)
def test_the_program_begins_below_the_magic_line(evaluate: Evaluate, source: str, program: str) -> None:
    assert evaluate("languages.js", "values[0].slice(magicEnd(values[0]))", source) == program


def test_every_option_of_the_kernel_is_read_with_its_value_or_as_a_flag(evaluate: Evaluate) -> None:
    written = " ".join(option.name if option.is_flag else f"{option.name} value" for option in OPTIONS)
    expected = {option.name: [""] if option.is_flag else ["value"] for option in OPTIONS}
    assert evaluate("languages.js", "cellMagic(values[0])", f"%%sandbox {written} rust") == {
        "language": "rust",
        "options": expected,
    }
