"""Run the notebooks again and save what they show: ``python notebooks/refresh.py [NAME ...]``.

The notebooks of agent frameworks are refreshed by name where the frameworks are found:
``PYTHONPATH=.venv/frameworks python notebooks/refresh.py frameworks/smolagents``.

What differs from run to run or from machine to machine is not saved: timings, widgets (a saved one cannot be drawn
without its kernel) and the outputs of cells that nbval is told to ignore.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
WIDGET = "application/vnd.jupyter.widget-view+json"


def refresh(path: Path) -> None:
    """Execute one notebook in place."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=120, record_timing=False, store_widget_state=False)
    client.execute(cwd=str(HERE))
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        tags = cell.metadata.get("tags", ())
        # Kept where readers should see it although it differs: without control groups a program is told, not killed.
        ignored = "nbval-ignore-output" in tags and "keep-output" not in tags
        pictures = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        cell.outputs = pictures if ignored else [o for o in cell.outputs if WIDGET not in o.get("data", {})]
    about = notebook.metadata.language_info
    notebook.metadata.language_info = {key: about[key] for key in ("name", "file_extension", "mimetype")}
    nbformat.write(notebook, path)


def main() -> None:
    """Refresh the named notebooks, or all."""
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.ipynb"))
    for name in names:
        refresh(HERE / f"{name}.ipynb")


if __name__ == "__main__":
    main()
