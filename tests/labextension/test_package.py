"""The extension is one whole: what its files name exists, what it must never do is nowhere, the wheel carries it."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
EXTENSION = REPOSITORY / "labextension"
SOURCES = sorted(EXTENSION.glob("static/*.js"))


def test_the_extension_has_the_version_of_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    package = json.loads((EXTENSION / "package.json").read_text())
    assert (package["name"], package["version"]) == (project["name"], project["version"])


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_what_a_module_imports_exists(source: Path) -> None:
    named = re.findall(r"(?:from |import\(new URL\()'\.?/?([\w-]+\.js)'", source.read_text())
    assert all((source.parent / name).is_file() for name in named)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_module_makes_markup_or_code_from_text(source: Path) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\.on\w+ ?="
    assert re.findall(forbidden, source.read_text()) == []


def test_the_wheel_puts_the_extension_where_jupyterlab_looks(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    marker = ".data/data/share/jupyter/labextensions/sandbox-kernel/"
    packed = {name.split(marker)[1] for name in zipfile.ZipFile(wheel).namelist() if marker in name}
    assert packed == {str(path.relative_to(EXTENSION)) for path in EXTENSION.rglob("*") if path.is_file()}
