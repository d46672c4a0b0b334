"""Documentation stays true: links lead somewhere, commands are commands, examples run, tables are complete."""

import ast
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import sandbox_kernel
from benchmarks.__main__ import MARKERS, SECTIONS
from benchmarks.markdown_section import section_of
from benchmarks.results import RESULTS
from sandbox_kernel import errors as errors_room
from sandbox_kernel.cli import make_parser, split_arguments
from sandbox_kernel.notebook.options.option_table import BY_NAME, COMMAND_NAMES, COMMANDS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
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
        "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/index.md", "docs/notebook.md",
        "docs/library.md", "docs/command-line.md", "docs/agents.md", "docs/environment.md", "docs/deploy.md",
        "docs/troubleshooting.md", "docs/security.md", "docs/architecture.md", "docs/decisions.md",
        "docs/benchmarks.md", "docs/network.md", "docs/wasm.md", "docs/glossary.md",
    } <= set(NAMES)  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    places = [link.split("#")[0] for link in links if not re.match(r"[a-z]+:", link) and not link.startswith("#")]
    assert [place for place in places if not (page.parent / place).exists()] == []


def anchors(page: Path) -> set[str]:
    """What the headings of a page are linked by."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_into_a_page_leads_to_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([\w./-]*\.md)?#([^)\s]+)\)", page.read_text())
    assert [(place, name) for place, name in links if name not in anchors(page.parent / place if place else page)] == []


def test_the_map_leads_to_every_page_and_notebook() -> None:
    text = (ROOT / "docs" / "index.md").read_text()
    linked = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)\s]+)\)", text)}
    assert {*PAGES, *(ROOT / "notebooks").glob("*.ipynb")} - {ROOT / "docs" / "index.md"} <= linked


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_python_block_is_python_and_imports_what_exists(page: Path) -> None:
    for block in blocks(page, "python"):
        tree = compile(block, page.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "sandbox_kernel":
                assert {name.name for name in node.names} <= set(sandbox_kernel.__all__)


GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"), run_name="generate")
_AGAIN = "run python docs/generate.py"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_generated_part_of_a_page_is_what_the_code_makes(page: Path) -> None:
    assert page.read_text() == GENERATE["generated"](page.read_text()), _AGAIN


def test_every_generated_part_is_on_a_page() -> None:
    named = re.findall(r"<!-- generated: ([\w-]+) -->", "".join(page.read_text() for page in PAGES))
    assert set(named) == set(GENERATE["PARTS"])


@pytest.mark.parametrize("name", GENERATE["PICTURES"])
def test_every_drawn_picture_is_what_the_code_draws_and_names_files_that_exist(name: str) -> None:
    drawn = (ROOT / "docs" / "images" / name).read_text()
    assert drawn == GENERATE["PICTURES"][name](), _AGAIN
    named = re.findall(r">([\w/]+\.py)<", drawn)
    assert [file for file in named if not (ROOT / "sandbox_kernel" / file).is_file()] == []


def test_the_library_page_has_every_public_name() -> None:
    text = (ROOT / "docs" / "library.md").read_text()
    errors = {
        name for name in sandbox_kernel.__all__ if getattr(sandbox_kernel, name, None) in vars(errors_room).values()
    }
    public = {*sandbox_kernel.__all__} - errors - {"__version__"}
    assert "automodule:: sandbox_kernel.errors" in text
    assert public == set(re.findall(r"auto(?:class|function):: sandbox_kernel\.(\w+)", text))


def python_strings(folder: Path) -> str:
    """Every text that stands in the code below a folder, each piece on a line of its own."""
    found = []
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text())
        found += [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is str]
    return "\n".join(found)


@pytest.mark.slow
def test_every_message_of_the_troubleshooting_page_is_one_of_ours() -> None:
    told = python_strings(ROOT / "sandbox_kernel")
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(rows) > 30
    parts = [part.strip() for row in rows for part in row.split("…")]
    assert [part for part in parts if part not in told] == []


@pytest.mark.slow
def test_every_environment_variable_that_is_read_is_on_its_page_and_no_other() -> None:
    ours = re.compile(r"\bSANDBOX_KERNEL_[A-Z_]+[A-Z]\b")
    text = (ROOT / "docs" / "environment.md").read_text()
    package = set(ours.findall(python_strings(ROOT / "sandbox_kernel")))
    tests = set(ours.findall("".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))))
    settings, rest = text.split("## Variables of the system")
    assert set(ours.findall(settings)) == package
    assert set(ours.findall(rest)) - package <= tests
    read = re.compile(r"""environ(?:\.get\(|\[)"([A-Z_]+)\"""")
    host = [path for path in (ROOT / "sandbox_kernel").rglob("*.py") if "guest" not in path.parts]
    assert {name for path in host for name in read.findall(path.read_text())} <= set(re.findall(r"`([A-Z_]+)`", text))
    for names, where in re.findall(r"^\| (`[A-Z].*?`) \|.*\| (`[\w/]+\.py`.*?) \|$", text, re.MULTILINE):
        sources = [(ROOT / "sandbox_kernel" / file).read_text() for file in _INLINE.findall(where)]
        assert [name for name in _INLINE.findall(names) for source in sources if name not in source] == []


def test_where_do_i_change_has_nine_answers_that_lead_to_files_and_names() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Where do I change")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 9
    for _, answer, test in rows:
        files = [word for word in _INLINE.findall(f"{answer} {test}") if re.search(r"\.(py|js)$", word)]
        found = [path for word in files for path in (ROOT / "sandbox_kernel" / word, ROOT / word) if path.is_file()]
        assert len(found) == len(files), files
        sources = "".join(path.read_text() for path in found)
        names = [word for word in _INLINE.findall(answer) if re.fullmatch(r"[A-Z_]+", word)]
        assert [name for name in names if name not in sources] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
@pytest.mark.one_case
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
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {line.split()[1] for line in code_lines(page) if re.match(r"make [a-z]", line)}
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_magic_that_is_shown_has_options_and_commands_that_exist(page: Path) -> None:
    for line in code_lines(page):
        found = re.match(r"(%%?)sandbox\b(.*)", line)
        if found is None:
            continue
        words = found[2].split()
        flags = {f"--{command.flag}" for command in COMMANDS}
        assert {word for word in words if word.startswith("--")} <= set(BY_NAME) | flags, line
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
def test_every_test_that_is_named_exists(page: Path) -> None:
    known = {name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"\btest_\w+", path.read_text())}
    known |= {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"`(test_\w+)", page.read_text())) - known == set()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_page_names_somebodys_machine(page: Path) -> None:
    assert re.findall(r"(?:/root/|/home/\w+/|/work/|\b10\.\d+\.\d+\.\d+\b)\S*", page.read_text()) == []


EXAMPLES = {f"{name}-{number}": source for name in ("README.md", "docs/library.md")
            for number, source in enumerate(blocks(ROOT / name, "python"))}  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.slow
def test_the_examples_of_the_readme_and_the_library_page_run_and_print_what_they_say(
    example: str, tmp_path: Path
) -> None:
    source = EXAMPLES[example]
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line.split("  # ", 1)[1] for line in source.splitlines() if "print(" in line and "  # " in line]
    assert [line for line in done.stdout.splitlines() if line] == said


def test_every_benchmark_can_be_found() -> None:
    known = (ROOT / "docs" / "benchmarks.md").read_text() + " ".join(SECTIONS.values())
    scripts = [path for path in (ROOT / "benchmarks").glob("*.py") if "argparse" in path.read_text()]
    assert [path.name for path in scripts if path.stem not in known and path.stem != "__main__"] == []


def test_every_result_on_the_page_is_one_that_a_benchmark_prints() -> None:
    rows = [
        line.strip("| ").split(" | ") for line in section_of(ROOT / "docs" / "benchmarks.md", *MARKERS).splitlines()
    ]
    assert [row[0] for row in rows if len(row) > 1][2:] == [result.question for result in RESULTS]


#: Times that somebody chose: they stand in the code, and no machine changes them.
CHOSEN = {"20 ms", "30 ms", "30 s", "10 seconds"}
_TIME = re.compile(r"\b\d+(?:\.\d+)? (?:µs|ms|s|seconds|minutes)\b")


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "benchmarks.md"], ids=lambda page: page.name)
def test_a_time_that_was_measured_stands_only_where_a_command_prints_it(page: Path) -> None:
    prose = _INLINE.sub("", _FENCE.sub("", page.read_text()))
    written = [line for line in prose.splitlines() if not line.startswith("|")]
    assert set(_TIME.findall("\n".join(written))) <= CHOSEN, "name the section of docs/benchmarks.md instead"
