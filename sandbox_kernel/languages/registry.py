"""All languages of the process backend, by name. CONTRIBUTING.md lists the files of a new language."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import import_module

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.languages.recipe import Availability, Recipe, Toolchains
from sandbox_kernel.model import Language

#: The module of each language's recipe, in whose ``RECIPES`` it is. A run needs one of them, so they are imported late.
MODULES = {
    Language.PYTHON: "python",
    Language.JAVASCRIPT: "node",
    Language.TYPESCRIPT: "node",
    Language.RUST: "rust",
    Language.C: "c_family",
    Language.CPP: "c_family",
    Language.ZIG: "c_family",
    Language.COMMAND: "interpreters",
    Language.SQL: "python",
    Language.RUBY: "interpreters",
    Language.LUA: "interpreters",
    Language.PERL: "interpreters",
    Language.PHP: "interpreters",
    Language.R: "interpreters",
    Language.GO: "interpreters",
}


@functools.cache
def recipe_of(language: Language) -> Recipe:
    """Return the recipe of a language. Raises ``KeyError`` for WebAssembly, which has none."""
    recipes: Sequence[Recipe] = import_module(f"sandbox_kernel.languages.{MODULES[language]}").RECIPES
    return next(recipe for recipe in recipes if recipe.language is language)


@functools.lru_cache(maxsize=64)
def availability(config: Toolchains, language: Language) -> Availability:
    """Return whether this host can run a language with this configuration. Measured once for each process."""
    try:
        origin, version = recipe_of(language).find(config)
    except BackendUnavailable as error:
        return Availability(available=False, reason=error.reason, remedy=error.remedy)
    return Availability(available=True, version=version, origin=origin)
