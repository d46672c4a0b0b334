"""The notebooks are documentation that must stay true: each runs under nbval, papermill and nbconvert."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel import Language, ProcessBackend
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import parse_cell
from tests.conftest import need

ROOT = Path(__file__).resolve().parents[1]
#: The first is what ``make test`` runs: a short one.
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"), key=lambda path: (path.stem != "rollback", path.stem))


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Jupyter finds this tree's kernelspec, and the kernels import this tree's package.

    The notebooks are the project's own: their lines give themselves the rights that they show.
    """
    share = tmp_path_factory.mktemp("jupyter")
    (share / "kernels").mkdir()
    (share / "kernels" / "sandbox").symlink_to(ROOT / "kernelspec" / "sandbox")
    return {
        **os.environ,
        "JUPYTER_PATH": str(share),
        "IPYTHONDIR": str(share / "ipython"),
        "SANDBOX_KERNEL_LINES": "all",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }


def run(command, environment, cwd=ROOT):
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    return done.stdout


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} >= {
        "interactive",
        "tour",
        "limits",
        "policies",
        "python-kernel-magics",
        "sessions",
        "rollback",
    }


@pytest.mark.timeout(320)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.one_case
def test_every_output_of_the_notebook_is_what_it_was(path, environment):
    missing = languages_of(path) - {str(language) for language in ProcessBackend().available_languages()}
    need(not missing, f"the notebook uses {', '.join(sorted(missing))}, which cannot run here")
    shown = run(["-m", "pytest", "--nbval", "-q", "-p", "no:cacheprovider", "--timeout=250", str(path)], environment)
    assert " passed" in shown
    assert "skipped" not in shown


def test_every_line_of_ours_in_a_notebook_is_one_that_the_kernel_takes():
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code" and not expects_an_error(cell):
                parse_cell("".join(cell["source"]), CellOptions())


def languages_of(path):
    """Languages that the cells of a notebook name and that need programs of the host."""
    cells = json.loads(path.read_text())["cells"]
    lines = [cell["source"][0].split() for cell in cells if cell["cell_type"] == "code" and cell["source"]]
    named = [line[1] for line in lines if line[0] == "%%sandbox" and len(line) > 1 and "--backend" not in line]
    found = {str(Language.parse(name)) for name in named if not name.startswith("-")}
    return found - {"wasm"}


def expects_an_error(cell):
    return "raises-exception" in cell["metadata"].get("tags", ())


@pytest.mark.timeout(320)
@pytest.mark.parametrize("name", ["rollback", "wasm"])
@pytest.mark.slow
def test_a_notebook_runs_with_papermill(name, environment, tmp_path):
    out = tmp_path / f"{name}.ipynb"
    # A cell that shows an error on purpose would end papermill: the notebook is cut before its first one.
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())
    cells = notebook["cells"]
    notebook["cells"] = cells[: next((n for n, cell in enumerate(cells) if expects_an_error(cell)), len(cells))]
    source = tmp_path / "source.ipynb"
    source.write_text(json.dumps(notebook))
    run(["-m", "papermill", str(source), str(out), "--cwd", str(ROOT / "notebooks")], environment)
    ran = [cell for cell in json.loads(out.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in ran)
    assert any(cell["outputs"] for cell in ran)


@pytest.mark.timeout(320)
@pytest.mark.slow
def test_parameters_reach_a_notebook_through_papermill(environment, tmp_path):
    source, out = tmp_path / "source.ipynb", tmp_path / "out.ipynb"
    cells = [("parameters", "number = 1"), ("", "print('ran')")]
    source.write_text(
        json.dumps(
            {
                "nbformat": 4,
                "nbformat_minor": 4,
                "metadata": {"kernelspec": {"name": "sandbox", "display_name": "Sandbox", "language": "python"}},
                "cells": [
                    {
                        "cell_type": "code",
                        "source": code,
                        "metadata": {"tags": [tag] if tag else []},
                        "outputs": [],
                        "execution_count": None,
                    }
                    for tag, code in cells
                ],
            }
        )
    )
    run(["-m", "papermill", "-p", "number", "7", str(source), str(out)], environment)
    assert "number = 7" in out.read_text()


@pytest.mark.timeout(320)
@pytest.mark.parametrize("name", ["tour", "python-kernel-magics"])
@pytest.mark.slow
def test_a_notebook_becomes_a_page_with_nbconvert(name, environment, tmp_path):
    command = ["-m", "jupyter", "nbconvert", "--to", "html", "--execute", "--output-dir", str(tmp_path)]
    run([*command, str(ROOT / "notebooks" / f"{name}.ipynb")], environment)
    page = (tmp_path / f"{name}.html").read_text()
    assert "isolated process" in page
    assert "SandboxTimeout" in page
