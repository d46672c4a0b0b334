"""The jail that a kernel begins before it is imported is the one that its first session takes."""

from pathlib import Path

import pytest

from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.walls import Walls
from sandbox_kernel.notebook.first_jail import begin_first_jail
from sandbox_kernel.notebook.options.parse_cell import OPTIONS_VARIABLE, first_defaults
from sandbox_kernel.notebook.sandboxes import NotebookSandboxes


class _Taken(Exception):
    """The walls that a session takes are known; no jail is needed."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Walls]:
    """The walls that were begun and taken last."""
    seen: dict[str, Walls] = {}

    def take(_: Pool, walls: Walls, *, lasts: bool = False) -> Jail:
        seen["taken"] = walls
        raise _Taken

    monkeypatch.setattr(Pool, "begin", lambda _, walls: seen.update(begun=walls))
    monkeypatch.setattr(Pool, "take", take)
    return seen


@pytest.mark.parametrize("line", ["", "--memory 1G --disk 64M", "--policy strict", "--timeout 9s --processes 7"])
def test_a_first_session_takes_the_walls_that_were_begun(
    line: str, asked: dict[str, Walls], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OPTIONS_VARIABLE, line)
    begin_first_jail()
    with pytest.raises(_Taken):
        NotebookSandboxes().warm(first_defaults())
    assert asked["begun"] == asked["taken"]


@pytest.mark.parametrize(
    "line", ["--here {}", "--mount {}:/data", "javascript", "--backend wasm", "--fresh", "--memory nonsense"]
)
def test_a_session_that_needs_more_than_walls_has_none_begun(
    line: str, asked: dict[str, Walls], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(OPTIONS_VARIABLE, line.format(tmp_path))
    begin_first_jail()
    assert not asked
