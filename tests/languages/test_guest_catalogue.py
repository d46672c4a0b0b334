import re
from dataclasses import replace
from importlib.resources import files

from sandbox_kernel.languages.guest_catalogue import catalogue
from sandbox_kernel.model import Language


def test_the_catalogue_is_well_formed_and_names_everything() -> None:
    found = catalogue()
    assert {Language.JAVASCRIPT, Language.TYPESCRIPT, Language.PYTHON, Language.C, Language.COMMAND} <= found.keys()
    for language, guest in found.items():
        assert guest.language is language
        assert guest.script and guest.can and guest.version
        assert guest.memory_mb >= 1
        for package in guest.packages:
            assert package.licence
            assert re.fullmatch("[0-9a-f]{64}", package.sha256)
        for each in (guest, *([guest.session] if guest.session else [])):
            for part in (each, *each.libraries):
                assert part.package is None or part.file in part.package.files


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
    package = catalogue()[Language.PYTHON].packages[0]
    assert replace(package, registry="npm", name="@scope/p", version="1.2.3").archive == "scope-p-1.2.3.tgz"
