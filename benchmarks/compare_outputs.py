"""Does a public notebook show the same in *Sandbox* as in Python 3, and is its folder untouched?

    python -m benchmarks.compare_outputs FOLDER [NOTEBOOK ...] [--memory 2G] [--timeout 300s] [--show]

Runs all cells of each notebook below a copy of FOLDER: twice with ipykernel, and once with the Sandbox kernel of this
tree, which works on the folder copy-on-write (``--here``). A cell whose outputs differ between the two runs of
ipykernel (random numbers, times) proves nothing and is counted apart. ``--show`` prints the other differences as diffs.
Prints a Markdown table: docs/ipykernel.md has one. Needs the packages that the notebooks import, and runs their code.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from benchmarks.cell_outputs import comparable
from benchmarks.kernel_peers import REPOSITORY
from benchmarks.markdown_section import table
from benchmarks.measure import machine
from sandbox_kernel.notebook.options.parse_cell import OPTIONS_VARIABLE
from sandbox_kernel.notebook.sandboxes import KEEP_VARIABLE

#: The text of what each code cell showed, in the order of the notebook.
Outputs = list[str]
_PYTHON = Path(sys.prefix) / "share" / "jupyter" / "kernels" / "python3"
_SANDBOX = REPOSITORY / "kernelspec" / "sandbox"


@dataclass(frozen=True)
class Comparison:
    """What a notebook showed in both kernels."""

    name: str
    sources: tuple[str, ...]
    first: Outputs
    second: Outputs
    sandboxed: Outputs
    untouched: bool

    @property
    def steady(self) -> list[int]:
        """Numbers of the cells that show the same in both runs of ipykernel."""
        return [number for number, shown in enumerate(self.first) if shown == self.second[number]]

    @property
    def different(self) -> list[int]:
        """Numbers of the steady cells that show something else in the sandbox."""
        return [number for number in self.steady if self.first[number] != self.sandboxed[number]]

    def row(self) -> list[str]:
        """Return its row of the table."""
        same = len(self.steady) - len(self.different)
        varying = len(self.first) - len(self.steady)
        cells = ", ".join(str(number + 1) for number in self.different)
        differ = f"{len(self.different)} ({cells})" if cells else "0"
        return [self.name, str(len(self.first)), str(same), str(varying), differ, "yes" if self.untouched else "NO"]

    def diffs(self) -> Iterator[str]:
        """Yield the source and the difference of each cell that differs."""
        for number in self.different:
            yield f"\n### {self.name}, code cell {number + 1}\n{self.sources[number].rstrip()}\n"
            old, new = self.first[number].splitlines(), self.sandboxed[number].splitlines()
            yield "\n".join(difflib.unified_diff(old, new, "ipykernel", "sandbox", lineterm="", n=1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; returns 1 when a folder was touched."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder with notebooks and their data")
    parser.add_argument("notebooks", nargs="*", help="paths below the folder; all that lie directly in it without any")
    parser.add_argument("--memory", default="", help="memory of the sandbox, like 2G, for every notebook")
    parser.add_argument("--timeout", default="", help="time limit of each cell, like 120s, for every notebook")
    parser.add_argument("--show", action="store_true", help="print what differs")
    given = parser.parse_args(arguments)
    names = given.notebooks or sorted(path.name for path in given.folder.glob("*.ipynb"))
    asked = {"--memory": given.memory, "--timeout": given.timeout}
    limits = "".join(f" {option}={value}" for option, value in asked.items() if value)
    done = []
    for name in names:
        done.append(compare(given.folder, name, limits))
        print(f"{name}: {', '.join(done[-1].row()[1:])}", file=sys.stderr, flush=True)
        if given.show:
            print(*done[-1].diffs(), sep="\n", flush=True)
    header = ["notebook", "code cells", "same outputs", "vary with ipykernel too", "differ", "folder untouched"]
    print(f"{machine()}\n\n{table(header, [each.row() for each in done])}")
    return 0 if all(each.untouched for each in done) else 1


def compare(folder: Path, name: str, limits: str) -> Comparison:
    """Run a notebook with both kernels, each on a copy of its folder of its own."""
    notebook = nbformat.read(folder / name, as_version=4)
    sources = tuple(cell.source for cell in notebook.cells if cell.cell_type == "code")
    plain = []
    for _ in range(2):
        with copy_of(folder) as copy:
            plain.append(run_all(copy, name, _PYTHON, {}))
    with copy_of(folder) as copy:
        before = contents(copy)
        sandboxed = run_all(copy, name, _SANDBOX, limits)
        return Comparison(name, sources, *plain, sandboxed, contents(copy) == before)


class copy_of:  # noqa: N801 - used as a function
    """A copy of a folder that is removed at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, tempfile.TemporaryDirectory(prefix="compare-")

    def __enter__(self) -> Path:
        return Path(shutil.copytree(self._folder, Path(self._made.name) / "folder", symlinks=True))

    def __exit__(self, *_: object) -> None:
        self._made.cleanup()


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of each file of a folder, by path."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


def run_all(folder: Path, name: str, spec: Path, limits: str) -> Outputs:
    """Run all cells of a notebook in its folder, also after errors, and return what each showed."""
    notebook: Any = nbformat.read(folder / name, as_version=4)
    with tempfile.TemporaryDirectory() as own:
        place = (folder / name).parent
        env = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "IPYTHONDIR": own,
            "JPY_SESSION_NAME": str(folder / name),
            OPTIONS_VARIABLE: f"--here{limits}",
            KEEP_VARIABLE: "0",
        }
        specs = KernelSpecManager(kernel_dirs=[str(spec.parent)], ensure_native_kernel=False)
        manager = AsyncKernelManager(kernel_name=spec.name, kernel_spec_manager=specs)
        client = NotebookClient(notebook, km=manager, allow_errors=True, timeout=900)
        client.owns_km = True  # it ends the kernel with the notebook
        client.execute(cwd=str(place), env=env, stderr=subprocess.DEVNULL)
    return [comparable(cell.outputs, str(place)) for cell in notebook.cells if cell.cell_type == "code"]


if __name__ == "__main__":
    raise SystemExit(main())
