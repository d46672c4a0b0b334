"""A papermill run that keeps the state before a failed cell, and goes on from there when it is started again.

Only for the Sandbox kernel, whose sessions can be saved. The state file is the session's; beside it lies what the cells
before the failed one were and what they showed, so that the next run can tell whether they are still the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from nbclient.exceptions import CellExecutionError
from papermill.clientwrap import PapermillNotebookClient
from papermill.log import logger

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.policy.written_folders import host_file
from sandbox_kernel.wrapped.relaying.clean_outputs import OutputCleaner

_BESIDE = ".cells.json"
_OUTPUTS = ("stream", "display_data", "execute_result", "error")


class KeptCells:
    """The cells before a failed one, in a file beside the state; ``name`` is a file name in the present folder."""

    def __init__(self, name: str) -> None:
        self.name = os.path.abspath(name)
        self._path = self.name + _BESIDE

    def read(self, cells: list[Any]) -> list[dict[str, Any]]:
        """Return what the first cells showed, if a state was kept; empty when there is none.

        Raises ``InvalidRequest`` when these cells are no longer the same: the state would be that of other code.
        """
        if not os.path.exists(self._path) or not os.path.exists(self.name):
            return []
        try:
            with open(self._path, encoding="utf-8") as file:
                kept = [dict(each) for each in json.load(file)]
            digests = [str(each["source"]) for each in kept]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(f"{self._path!r} is not what a run of papermill left: {error}") from None
        for number, digest in enumerate(digests, 1):
            if number > len(cells) or _digest(cells[number - 1]) != digest:
                raise InvalidRequest(
                    f"cell {number} differs from the one that ran before the state in {self.name!r} was kept; "
                    "undo the change, or remove that file to run from the beginning"
                )
        return kept

    def write(self, cells: list[Any]) -> None:
        """Keep these cells and what they showed."""
        kept = [{"source": _digest(cell), "outputs": cell.get("outputs"), "count": cell.get("execution_count")}
                for cell in cells]  # fmt: skip
        descriptor = os.open(host_file(self._path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(kept, file)

    def remove(self) -> None:
        """Remove both files: the notebook has run to its end."""
        for path in (self._path, self.name):
            if os.path.exists(path):
                os.unlink(path)


class SandboxNotebookClient(PapermillNotebookClient):  # type: ignore[misc]
    """Runs a notebook in the Sandbox kernel: sets its options first, and keeps or takes up a state if one is named."""

    def __init__(self, nb_man: Any, *, options_cell: str, state: str, **kwargs: Any) -> None:
        super().__init__(nb_man, **kwargs)
        self._options_cell = options_cell
        self._kept = KeptCells(state) if state else None
        self._done: list[dict[str, Any]] = []

    def papermill_execute_cells(self) -> None:
        """Run the cells that are left. papermill's own loop does it; cells that were run before are passed over."""
        if self._options_cell:
            self._command(self._options_cell)
        if self._kept is not None:
            self._done = self._kept.read(self.nb.cells)
            if self._done:
                self._command(f"%sandbox load {os.path.basename(self._kept.name)}")
                logger.info(f"Going on at cell {len(self._done) + 1} with the state in {self._kept.name}")
        super().papermill_execute_cells()
        failed = any(cell.metadata.papermill.get("exception") for cell in self.nb.cells)
        if self._kept is not None and not failed:
            self._kept.remove()

    def execute_cell(self, cell: Any, index: int, *args: Any, **kwargs: Any) -> Any:
        """Run a cell, or put back what it showed when it was run before the state was kept."""
        if index < len(self._done):
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = self._nodes(index), self._done[index].get("count")
            return cell
        try:
            return super().execute_cell(cell, index, *args, **kwargs)
        except CellExecutionError:
            if self._kept is not None:
                self._keep(index)
            raise

    def _nodes(self, index: int) -> list[Any]:
        """Return what a cell showed, cleaned as outputs of a kernel are: the file may have come with the notebook."""
        from nbformat import from_dict

        cleaner = OutputCleaner()
        nodes = []
        for output in self._done[index].get("outputs") or ():
            kind = output.get("output_type")
            content = cleaner.clean(kind, output) if kind in _OUTPUTS else None
            if content is not None:
                content.pop("transient", None)
                nodes.append(from_dict({"output_type": kind, **content}))  # type: ignore[no-untyped-call]
        return nodes

    def _keep(self, index: int) -> None:
        """Take the failed cell back and save the session as it was before it."""
        assert self._kept is not None
        self._command("%sandbox undo")
        self._command(f"%sandbox save {os.path.basename(self._kept.name)}")
        self._kept.write(self.nb.cells[:index])
        logger.warning(
            f"Cell {index + 1} failed. The state before it is in {self._kept.name}; run again to go on there"
        )

    def _command(self, line: str) -> None:
        """Run a line of ours that belongs to no cell. Raises ``SessionError`` with the kernel's words if it fails."""
        content = self.wait_for_reply(self.kc.execute(line, store_history=False))["content"]
        if content["status"] != "ok":
            raise SessionError(f"{line}: {content.get('evalue', 'failed')}")


def _digest(cell: Any) -> str:
    return hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()
