"""The rules of the house that a program can check: rooms say what they are, and imports go one way."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sandbox_kernel"
GUEST = PACKAGE / "guest"
TESTS = ROOT / "tests"

#: What guest programs may import beside the standard library and each other, by their folder below ``guest/``.
_TRACER = {"debugpy", "pydevd", "pydevd_file_utils", "_pydevd_bundle"}
GUEST_PACKAGES = {
    "python": {"IPython", "traitlets", "pip", *_TRACER},
    "wasm": {"wasmtime", "pip"},
}

#: Circles of imports that are still there. Take one out when it is broken; add none.
KNOWN_CIRCLES: set[frozenset[str]] = set()


def sources(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def test_every_room_of_the_package_says_what_it_is() -> None:
    rooms = {path.parent for path in PACKAGE.rglob("*.py")}
    silent = [room for room in rooms if not (room / "__init__.py").is_file()]
    silent += [
        room for room in rooms - set(silent) if not ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    ]
    assert silent == []


def test_guest_programs_import_only_each_other_the_standard_library_and_what_their_folder_may() -> None:
    foreign = []
    for path, tree in sources(GUEST):
        allowed = GUEST_PACKAGES.get(path.relative_to(GUEST).parts[0], set()) | set(sys.stdlib_module_names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            elif isinstance(node, ast.ImportFrom):
                # Relative, and not above the folder, which inside is the whole package.
                names = [] if node.level <= len(path.relative_to(GUEST).parts) else ["." * node.level]
            else:
                continue
            foreign += [(str(path.relative_to(GUEST)), name) for name in names if name.split(".")[0] not in allowed]
    assert foreign == []


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules that import each other, directly or through others."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            more = edges.get(waiting.pop(), set()) - found
            found |= more
            waiting += more
        return found

    below = {module: reached(module) for module in edges}
    inside = [module for module in edges if module in below[module]]
    return {frozenset(other for other in inside if other in below[each] and each in below[other]) for each in inside}


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}
    assert circles(edges) == {frozenset("bc"), frozenset("ef")}


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("sandbox_kernel", exclude_type_checking_imports=True, cache_dir=None)
    edges = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    found = {frozenset(name.removeprefix("sandbox_kernel.") for name in circle) for circle in circles(edges)}
    assert found == KNOWN_CIRCLES


def test_tests_import_what_they_share_by_its_full_name() -> None:
    changing = re.compile(r"^sys\.path", re.MULTILINE)
    # Programs of their own, which another Python starts, find the package by a path.
    assert [path.name for path in TESTS.rglob("test_*.py") if changing.search(path.read_text())] == []


@pytest.mark.parametrize("script", sorted(TESTS.glob("*.sh")), ids=lambda path: path.name)
def test_every_test_that_a_script_runs_exists(script: Path) -> None:
    named = re.findall(r"\btests/[\w/.]+", script.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []
