"""The page and the kernel know the same languages."""

from sandbox_kernel.model.request import ALIASES, Language
from tests.labextension.conftest import Evaluate


def test_the_page_knows_every_language_and_alias_of_the_kernel(evaluate: Evaluate) -> None:
    assert evaluate("languages.js", "knownNames()") == {
        "languages": [str(language) for language in Language],
        "aliases": ALIASES,
    }


def test_names_are_read_as_the_kernel_reads_them(evaluate: Evaluate) -> None:
    written = [" Rust ", "C++", "wat", "cobol", "constructor", "__proto__"]
    assert evaluate("languages.js", "values.map(parseLanguage)", *written) == ["rust", "cpp", "wasm", None, None, None]


def test_an_unknown_language_is_plain_text_and_not_the_kernels(evaluate: Evaluate) -> None:
    assert evaluate("languages.js", "highlighterOf(null)") == "text/plain"
