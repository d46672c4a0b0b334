"""The papermill engine: any notebook in a jail, with limits from papermill's own command line."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_notebook


@pytest.fixture
def notebook(tmp_path):
    def write(*cells, **metadata):
        made = new_notebook(cells=[new_code_cell(cell) for cell in cells])
        made.metadata.update(kernelspec={"name": "python3", "display_name": "p", "language": "python"}, **metadata)
        nbformat.write(made, tmp_path / "in.ipynb")
        return str(tmp_path / "in.ipynb"), str(tmp_path / "out.ipynb")

    return write


def test_a_notebook_runs_in_a_jail_and_gets_its_parameters(notebook):
    source, target = notebook("import os\nprint(os.getcwd(), os.path.exists('/etc/shadow'), n)")
    done = papermill.execute_notebook(source, target, parameters={"n": 3}, engine_name="sandbox", progress_bar=False)
    assert done.cells[-1].outputs[0].text == "/box False 3\n"


def test_the_command_line_sets_the_time_limit_and_the_notebook_says_what_ended_it(notebook):
    source, target = notebook("print('first')", "import time; time.sleep(100)", "print('never')")
    done = subprocess.run(
        [sys.executable, "-m", "papermill", "--engine", "sandbox", "--execution-timeout", "2", source, target],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    outputs = nbformat.read(target, 4).cells
    shown = str([cell.get("outputs") for cell in outputs])
    assert "limit of 2 s" in shown and "KeyboardInterrupt" in shown and "never" not in shown


def test_memory_that_ends_the_kernel_is_said_in_the_output_notebook(notebook):
    source, target = notebook("x = b'x' * 900_000_000")
    with pytest.raises(papermill.PapermillExecutionError, match=r"MemoryExceeded|MemoryError"):
        papermill.execute_notebook(source, target, engine_name="sandbox", memory="300M", progress_bar=False)


def test_a_notebook_cannot_give_itself_rights(notebook):
    source, target = notebook("1", sandbox_kernel={"mounts": ["/:/host"]})
    with pytest.raises(Exception, match="may only set memory and timeout"):
        papermill.execute_notebook(source, target, engine_name="sandbox", progress_bar=False)
