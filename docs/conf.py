"""How Sphinx builds the site: ``make docs``. Source is the whole repository, so that links are the same as on GitHub.

Nothing here needs a network: no inventories of other sites, and notebooks are shown as they were committed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pygments.lexer import Lexer  # noqa: E402
from pygments.lexers import get_lexer_by_name  # noqa: E402
from pygments.token import Comment  # noqa: E402
from pygments.util import ClassNotFound  # noqa: E402

from sandbox_kernel import __version__  # noqa: E402 - found by the line above
from sandbox_kernel.errors import InvalidRequest  # noqa: E402
from sandbox_kernel.model import Language  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pygments.token import _TokenType
    from sphinx.application import Sphinx

project = "sandbox-kernel"
copyright = "the authors of sandbox-kernel"  # noqa: A001 - Sphinx names it
release = version = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

root_doc = "docs/index"
include_patterns = ["docs/**", "notebooks/**.ipynb", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
# No ".*/**": it would leave out the index of html_extra_path, "./index.html" in Sphinx's words.
exclude_patterns = [".*", "artifacts", "sandbox_kernel", "tests", "benchmarks", "labextension", "kernelspec"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_render_error_lexer = "none"
suppress_warnings = ["mystnb.unknown_mime_type"]  # a receipt carries HTML too, and that is shown

autodoc_member_order = "bysource"
autoclass_content = "both"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

highlight_language = "none"
html_theme = "furo"
html_title = f"sandbox-kernel {__version__}"
html_extra_path = ["site_root"]
html_show_sourcelink = False


class CellLexer(Lexer):
    """Highlights a notebook cell in the language that its ``%%sandbox`` line names; Python if it names none."""

    name, aliases = "sandbox cell", ("sandbox-cell",)

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, _TokenType, str]]:
        """See ``Lexer``: the first line is a comment, the rest is the named language's."""
        first, newline, rest = text.partition("\n")
        if not first.startswith("%%sandbox"):
            yield from get_lexer_by_name("ipython3").get_tokens_unprocessed(text)
            return
        yield 0, Comment.Special, first + newline
        for place, kind, part in _lexer_of(first.split()[1:2]).get_tokens_unprocessed(rest):
            yield place + len(first + newline), kind, part


def _lexer_of(words: list[str]) -> Lexer:
    try:
        name = Language.parse(words[0]).value if words and not words[0].startswith("-") else "python"
        return get_lexer_by_name({"command": "bash", "wasm": "wast", "python": "ipython3"}.get(name, name))
    except (InvalidRequest, ClassNotFound):
        return get_lexer_by_name("text")


def _index_words(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Make entries of the search from ``<!-- search: csv file -->``: what people type for the next heading."""
    source[0] = re.sub(
        r"^<!-- search: (.*) -->$",
        lambda found: "```{index} " + ", ".join(f"! {words}" for words in found[1].split(", ")) + "\n```",
        source[0],
        flags=re.MULTILINE,
    )


def setup(app: Sphinx) -> None:
    """Called by Sphinx: cells of notebooks are highlighted by their own language."""
    app.add_lexer("python", CellLexer)
    app.connect("source-read", _index_words)
