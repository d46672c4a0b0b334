"""Documentation stays true: links lead somewhere, commands are commands, examples run, tables are complete."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.cli import make_parser, split_arguments
from sandbox_kernel.notebook.options.option_table import BY_NAME, COMMAND_NAMES

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")


def blocks(page: Path, kind: str) -> list[str]:
    """The fenced blocks of a kind."""
    return [body for found, body in _FENCE.findall(page.read_text()) if found == kind]


def code_lines(page: Path) -> list[str]:
    """Every line of code: of plain fenced blocks, and between single backticks."""
    text = page.read_text()
    lines = [line.split(" #")[0].strip() for body in blocks(page, "") for line in body.splitlines()]
    return [line for line in (*lines, *_INLINE.findall(_FENCE.sub("", text))) if line]


def test_the_pages_that_people_look_for_are_there() -> None:
    assert {
        "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/architecture.md", "docs/security.md",
        "docs/decisions.md", "docs/benchmarks.md", "docs/kernel.md",
    } <= set(NAMES)  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    places = [link.split("#")[0] for link in links if not re.match(r"[a-z]+:", link) and not link.startswith("#")]
    assert [place for place in places if not (page.parent / place).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_line_that_is_shown_is_one(page: Path) -> None:
    for line in code_lines(page):
        if not line.startswith("sandbox-kernel ") or "…" in line:
            continue
        ours, _ = split_arguments(shlex.split(line)[1:])
        try:
            make_parser().parse_args(ours)
        except SystemExit:
            pytest.fail(f"{page.name} shows {line!r}, which the command line does not take")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {line.split()[1] for line in code_lines(page) if re.match(r"make [a-z]", line)}
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_magic_that_is_shown_has_options_and_commands_that_exist(page: Path) -> None:
    for line in code_lines(page):
        found = re.match(r"(%%?)sandbox\b(.*)", line)
        if found is None:
            continue
        words = found[2].split()
        assert {word for word in words if word.startswith("--")} <= set(BY_NAME), line
        if found[1] == "%" and words and words[0].isalpha():
            assert words[0] in COMMAND_NAMES, line


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_script_that_is_shown_exists_and_knows_its_options(page: Path) -> None:
    for line in code_lines(page):
        found = re.match(r"python (?:-m (benchmarks\.\w+)|([\w/]+\.py))(.*)", line)
        if found is None:
            continue
        script = ROOT / (f"{found[1].replace('.', '/')}.py" if found[1] else found[2])
        assert script.is_file(), line
        for option in re.findall(r"--[\w-]+", found[3]):
            assert f'"{option}"' in script.read_text(), line


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_file_of_the_package_that_is_named_exists(page: Path) -> None:
    places = (ROOT, ROOT / "sandbox_kernel")
    named = [word for word in code_lines(page) if re.fullmatch(r"[\w.]+(/[\w.]+)+\.(py|sh|js|ipynb|toml)", word)]
    assert [word for word in named if not any((place / word).exists() for place in places)] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_page_names_somebodys_machine(page: Path) -> None:
    assert re.findall(r"(?:/root/|/home/\w+/|/work/|\b10\.\d+\.\d+\.\d+\b)\S*", page.read_text()) == []


@pytest.mark.parametrize("number", range(len(blocks(ROOT / "README.md", "python"))))
def test_the_examples_of_the_readme_run_and_print_what_they_say(number: int, tmp_path: Path) -> None:
    source = blocks(ROOT / "README.md", "python")[number]
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line.split("  # ", 1)[1] for line in source.splitlines() if "print(" in line and "  # " in line]
    assert [line for line in done.stdout.splitlines() if line] == said


def test_every_benchmark_has_a_section() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    scripts = [path for path in (ROOT / "benchmarks").glob("*.py") if "argparse" in path.read_text()]
    assert [path.name for path in scripts if path.stem not in text and path.stem != "__main__"] == []
    assert len(re.findall(r"<!-- bench:\w+ -->", text)) == text.count("<!-- /bench -->")


def test_every_section_of_the_benchmarks_can_be_run_and_written() -> None:
    from benchmarks.__main__ import sections

    text = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [section.name for section in sections(text)] == re.findall(r"<!-- bench:(\w+) -->", text)


#: Times that somebody chose: they stand in the code, and no machine changes them.
CHOSEN = {"20 ms", "30 ms", "30 s"}
_TIME = re.compile(r"\b\d+(?:\.\d+)? (?:µs|ms|s|seconds|minutes)\b")


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "benchmarks.md"], ids=lambda page: page.name)
def test_a_time_that_was_measured_stands_only_where_a_command_prints_it(page: Path) -> None:
    prose = _INLINE.sub("", _FENCE.sub("", page.read_text()))
    written = [line for line in prose.splitlines() if not line.startswith("|")]
    assert set(_TIME.findall("\n".join(written))) <= CHOSEN, "name the section of docs/benchmarks.md instead"


def test_every_section_that_a_decision_names_is_one() -> None:
    headings = re.findall(r"^## (\w+)", (ROOT / "docs" / "benchmarks.md").read_text(), re.MULTILINE)
    named = re.findall(r"\*([A-Z]\w+)\*", (ROOT / "docs" / "decisions.md").read_text())
    assert named
    assert set(named) <= set(headings)
