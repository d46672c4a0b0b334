from __future__ import annotations

import re
from importlib.resources import files

import pytest

from sandbox_kernel.languages.guest_catalogue import CatalogueError, catalogue, read_catalogue
from sandbox_kernel.model import Language

PACKAGE = """
[packages.p]
registry = "npm"
name = "@scope/p"
version = "1.2.3"
sha256 = "{sha}"
licence = "MIT"
files = {{ "m.wasm" = "package/m.wasm" }}
"""
GUEST = """
[languages.ruby]
entry = "command"
module = ["p", "m.wasm"]
script = "cell.rb"
version = "x"
memory_mb = 10
can = "y"
"""
GOOD = PACKAGE.format(sha="a" * 64) + GUEST


def test_the_catalogue_is_well_formed_and_names_everything() -> None:
    found = catalogue()
    assert {Language.JAVASCRIPT, Language.TYPESCRIPT, Language.PYTHON, Language.C, Language.COMMAND} <= found.keys()
    for language, guest in found.items():
        assert guest.language is language
        assert guest.script and guest.can and guest.version
        assert guest.memory_mb >= 1
        for package in guest.packages:
            assert package.licence


def test_files_of_ours_that_the_catalogue_names_exist() -> None:
    folder = files("sandbox_kernel") / "guest"
    for guest in catalogue().values():
        own = [library.file for library in guest.libraries if library.package is None]
        for name in (*guest.helpers.values(), *own, *([guest.glue] if guest.glue else [])):
            assert (folder / name).is_file(), name


def test_no_registry_host_is_named() -> None:
    text = (files("sandbox_kernel") / "languages" / "guests.toml").read_text()
    assert not re.search(r"https?://|registry\.\w+\.\w+", text)


def test_archives_are_named_as_the_clients_name_them() -> None:
    (guest,) = read_catalogue(GOOD).values()
    assert guest.package is not None
    assert guest.package.archive == "scope-p-1.2.3.tgz"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('registry = "npm"', 'registry = "ftp"', "registry"),
        ("a" * 64, "a" * 63, "SHA-256"),
        ('licence = "MIT"\n', "", "licence"),
        ('entry = "command"', 'entry = "magic"', "entry"),
        ('["p", "m.wasm"]', '["q", "m.wasm"]', "not listed"),
        ('["p", "m.wasm"]', '["p", "n.wasm"]', "not listed"),
        ("memory_mb = 10", 'memory_mb = "10"', "memory_mb"),
    ],
)
def test_mistakes_in_the_catalogue_are_found(old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(CatalogueError, match=words):
        read_catalogue(GOOD.replace(old, new))
