"""All languages of the process backend, by name. CONTRIBUTING.md lists the files of a new language.

Each recipe is imported when its language is first asked for: a run needs one of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from importlib import import_module

from sandbox_kernel.languages.recipe import Availability, Recipe, Toolchains
from sandbox_kernel.model import Language

#: The file and the class of each language's recipe.
_ALL = {
    Language.PYTHON: ("python", "PythonLanguage"),
    Language.JAVASCRIPT: ("node", "JavaScriptLanguage"),
    Language.TYPESCRIPT: ("node", "TypeScript"),
    Language.RUST: ("rust", "Rust"),
    Language.C: ("c_family", "C"),
    Language.CPP: ("c_family", "Cpp"),
    Language.ZIG: ("c_family", "ZigLanguage"),
    Language.COMMAND: ("interpreters", "CommandLanguage"),
    Language.SQL: ("python", "Sql"),
    Language.RUBY: ("interpreters", "Ruby"),
    Language.LUA: ("interpreters", "Lua"),
    Language.PERL: ("interpreters", "Perl"),
    Language.PHP: ("interpreters", "Php"),
    Language.R: ("interpreters", "R"),
    Language.GO: ("interpreters", "Go"),
}


class _Recipes(Mapping[Language, Recipe]):
    """The recipes by language; each is made once, when it is first looked up."""

    def __getitem__(self, language: Language) -> Recipe:
        return _made(language)

    def __iter__(self) -> Iterator[Language]:
        return iter(_ALL)

    def __len__(self) -> int:
        return len(_ALL)


@functools.cache
def _made(language: Language) -> Recipe:
    module, name = _ALL[language]
    recipe: Recipe = getattr(import_module(f"sandbox_kernel.languages.{module}"), name)()
    return recipe


RECIPES: Mapping[Language, Recipe] = _Recipes()


@functools.lru_cache(maxsize=64)
def availability(config: Toolchains, language: Language) -> Availability:
    """Return whether this host can run a language with this configuration. Measured once for each process."""
    recipe = RECIPES.get(language)
    if recipe is None:
        return Availability(
            available=False,
            reason=f"{language} has no recipe on the process backend",
            remedy="use backend='wasm'" if language is Language.WASM else "",
        )
    return recipe.probe(config)
