"""Each language of a notebook has a session of its own, also when the notebook's defaults name another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.notebook.line_commands import LineCommands, run_command
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import parse_cell, parse_line
from sandbox_kernel.notebook.sandboxes import NotebookSandboxes
from sandbox_kernel.notebook.sessions.cell_sessions import NotebookSessions
from sandbox_kernel.session.open_wasm import WasmSession


def test_a_shell_cell_does_not_run_in_the_python_session_that_the_defaults_mean() -> None:
    with Sandbox() as box:
        sessions = NotebookSessions(lambda _: box)
        defaults = CellOptions()
        python = sessions.choose(parse_cell("x = 1", defaults)).session
        shell = sessions.choose(parse_cell("%%sandbox bash\nx=1", defaults)).session
        assert python is not None and shell is not None
        assert (str(python.language), str(shell.language)) == ("python", "command")
        assert shell.run("for n in a b; do echo $n; done").stdout == "a\nb\n"


def test_a_line_command_with_a_name_finds_sessions_of_every_language() -> None:
    with Sandbox() as box:
        sessions = NotebookSessions(lambda _: box)
        defaults = CellOptions()
        shell = sessions.choose(parse_cell("%%sandbox bash --session s\nx=1", defaults)).session
        python = sessions.choose(parse_cell("x = 1", defaults)).session
        named = parse_line("undo --session s").options
        assert (sessions.find(named), sessions.find(parse_line("undo").options)) == (shell, python)
        assert sessions.find(parse_line("undo python --session s").options) is None
        second = sessions.choose(parse_cell("%%sandbox python --session s\nx = 1", defaults)).session
        assert sessions.find(named) is second
        sessions.choose(parse_cell("x", defaults))
        assert sessions.find(parse_line("undo bash --session s").options) is shell
        sessions.close()


@pytest.mark.timeout(600)
def test_a_notebook_on_wasm_keeps_javascript_and_runs_the_others_fresh(tmp_path: Path) -> None:
    with Sandbox(backend="wasm") as box:
        sessions = NotebookSessions(lambda _: box)
        defaults = CellOptions(backend="wasm")
        kept = sessions.choose(parse_cell("%%sandbox js\nlet x = 1", defaults)).session
        assert isinstance(kept, WasmSession)
        assert sessions.choose(parse_cell("%%sandbox js\nx", defaults)).session is kept
        fresh = sessions.choose(parse_cell("%%sandbox python\nprint(1)", defaults))
        assert (fresh.session, fresh.must_open) == (None, False)
        kept.run("let y = 5")
        kept.save(tmp_path / "s")
        sessions.adopt(CellOptions(language=kept.language, backend="wasm"), box.load_session(tmp_path / "s"))
        again = sessions.choose(parse_cell("%%sandbox js\ny", defaults)).session
        assert again is not None and again is not kept
        assert again.run("y").displays[-1].data["text/plain"] == "5"
        sessions.close()


@pytest.mark.timeout(600)
def test_a_loaded_session_takes_cells_of_its_own_language_and_no_others(tmp_path: Path, monkeypatch) -> None:
    """A JavaScript session that is loaded runs no Python cells, whatever the notebook's language is."""
    monkeypatch.chdir(tmp_path)
    with Sandbox(backend="wasm") as box, box.session("javascript") as saved:
        saved.run("let x = 41")
        saved.save("work")
    sandboxes, defaults = NotebookSandboxes(), CellOptions()
    try:
        (told,) = run_command(parse_line("load work"), LineCommands(sandboxes, defaults))
        assert told.data["text/plain"] == "Going on with work: javascript cells run in it."
        loaded = sandboxes.sessions.choose(parse_cell("%%sandbox js\nx + 1", defaults)).session
        assert isinstance(loaded, WasmSession)
        assert loaded.run("x + 1").displays[-1].data["text/plain"] == "42"
        python = sandboxes.sessions.choose(parse_cell("x = 1", defaults)).session
        assert python is not None and str(python.language) == "python"
        assert loaded.alive
        run_command(parse_line("save again js"), LineCommands(sandboxes, defaults))
        assert (tmp_path / "again").is_file()
    finally:
        sandboxes.close()
