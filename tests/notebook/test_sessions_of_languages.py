"""Each language of a notebook has a session of its own, also when the notebook's defaults name another one."""

from __future__ import annotations

from sandbox_kernel import Sandbox
from sandbox_kernel.notebook.cell_options import CellOptions
from sandbox_kernel.notebook.options import parse_cell
from sandbox_kernel.notebook.sessions import NotebookSessions


def test_a_shell_cell_does_not_run_in_the_python_session_that_the_defaults_mean() -> None:
    with Sandbox() as box:
        sessions = NotebookSessions(lambda _: box)
        defaults = CellOptions()
        python = sessions.choose(parse_cell("x = 1", defaults)).session
        shell = sessions.choose(parse_cell("%%sandbox bash\nx=1", defaults)).session
        assert python is not None and shell is not None
        assert (str(python.language), str(shell.language)) == ("python", "command")
        assert shell.run("for n in a b; do echo $n; done").stdout == "a\nb\n"
