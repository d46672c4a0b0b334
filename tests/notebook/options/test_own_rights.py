"""``SANDBOX_KERNEL_LINES=limits``: lines of cells give no rights, the person at the page does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.notebook.execution import CellExecution, CellReply
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.own_rights import LINES_VARIABLE, check_own_rights, lines_give_rights
from sandbox_kernel.notebook.options.parse_cell import parse_cell
from tests.notebook.test_here import Notebook, Page, _no_input
from tests.workspace.here.conftest import project as project

DEFAULTS = CellOptions(here=".")


@pytest.fixture
def strict(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.chdir(project)
    monkeypatch.setenv(LINES_VARIABLE, "limits")
    made = Notebook()
    made.state.defaults = DEFAULTS
    yield made
    made.state.sandboxes.close()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("%sandbox --mount /etc:/data", "--mount"),
        ("%%sandbox python --mount /etc:/data\n1", "--mount"),
        ("%sandbox --here ../other", "--here"),
        ("%sandbox reset --here ../other", "--here"),
        ("%sandbox restart --keep --allow-net example.org", "--allow-net"),
        ("%%sandbox --allow-net example.org\n1", "--allow-net"),
        ("%sandbox --gpu all", "--gpu"),
        ("%sandbox --policy mine.json", "--policy"),
        ("%sandbox --python /usr/bin/python3", "--python"),
        ("%sandbox apply", "%sandbox apply"),
        ("%sandbox --timeout 5s\n%sandbox apply .git/hooks/pre-commit", "%sandbox apply"),
        ("%sandbox allow example.org", "%sandbox allow"),
        ("%sandbox save run.sh", "%sandbox save"),
    ],
)
def test_a_strangers_notebook_gives_itself_no_rights(text: str, word: str) -> None:
    with pytest.raises(PolicyViolation, match="give no rights") as caught:
        check_own_rights(parse_cell(text, DEFAULTS), DEFAULTS)
    assert word in str(caught.value) and "side panel" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["1", "%sandbox --timeout 5s --memory 200M", "%%sandbox javascript --session a\n1", "%sandbox discard", "%sandbox reset",
     "%sandbox --here", "%sandbox changes", "%sandbox never example.org", "%sandbox undo"],
)  # fmt: skip
def test_limits_languages_and_looks_stay(text: str) -> None:
    check_own_rights(parse_cell(text, DEFAULTS), DEFAULTS)


def test_a_word_that_is_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_give_rights()
    monkeypatch.setenv(LINES_VARIABLE, "none")
    with pytest.raises(InvalidRequest, match="neither 'all' nor 'limits'"):
        lines_give_rights()


def test_a_cell_writes_nothing_and_a_press_does(strict: Notebook, project: Path) -> None:
    assert "PolicyViolation" not in strict.run("open('n', 'w').write('1')")
    assert "PolicyViolation" in strict.run("%sandbox apply") and not (project / "n").exists()

    async def press() -> CellReply:
        execution = CellExecution(strict.state, Page(), _no_input, asyncio.Event())  # type: ignore[arg-type]
        return await execution.run("%sandbox apply", pressed=True)

    assert asyncio.run(press()).failure is None
    assert (project / "n").read_text() == "1"
