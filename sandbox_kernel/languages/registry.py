"""All languages of the process backend, by name. CONTRIBUTING.md lists the files of a new language."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from sandbox_kernel.languages.c import C
from sandbox_kernel.languages.command import CommandLanguage
from sandbox_kernel.languages.cpp import Cpp
from sandbox_kernel.languages.go import Go
from sandbox_kernel.languages.javascript import JavaScriptLanguage
from sandbox_kernel.languages.lua import Lua
from sandbox_kernel.languages.perl import Perl
from sandbox_kernel.languages.php import Php
from sandbox_kernel.languages.python import PythonLanguage
from sandbox_kernel.languages.r import R
from sandbox_kernel.languages.ruby import Ruby
from sandbox_kernel.languages.rust import Rust
from sandbox_kernel.languages.sql import Sql
from sandbox_kernel.languages.support.recipe import Availability, ProcessConfig, Recipe
from sandbox_kernel.languages.typescript import TypeScript
from sandbox_kernel.languages.zig import ZigLanguage
from sandbox_kernel.model import Language

_ALL: tuple[Recipe, ...] = (
    PythonLanguage(),
    JavaScriptLanguage(),
    TypeScript(),
    Rust(),
    C(),
    Cpp(),
    ZigLanguage(),
    CommandLanguage(),
    Sql(),
    Ruby(),
    Lua(),
    Perl(),
    Php(),
    R(),
    Go(),
)
RECIPES: Mapping[Language, Recipe] = MappingProxyType({recipe.language: recipe for recipe in _ALL})


@functools.lru_cache(maxsize=64)
def availability(config: ProcessConfig, language: Language) -> Availability:
    """Return whether this host can run a language with this configuration. Measured once for each process."""
    recipe = RECIPES.get(language)
    if recipe is None:
        return Availability(
            available=False,
            reason=f"{language} has no recipe on the process backend",
            remedy="use backend='wasm'" if language is Language.WASM else "",
        )
    return recipe.probe(config)
