"""Which work folder of an earlier kernel belongs to this one, and what is kept for the next.

By the path of the notebook, where Jupyter's server tells it: then the folder stays in any case. Else by the connection
file, which a restarted kernel has again: then the files are kept when the kernel is restarted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.cell_policy import changes_place
from sandbox_kernel.notebook.sandboxes import NotebookSandboxes
from sandbox_kernel.workspace.kept_work import KeptWork
from sandbox_kernel.workspace.tree.rooted import Rooted

#: Set by Jupyter's server: the path of the notebook whose kernel this is.
NOTEBOOK_VARIABLE = "JPY_SESSION_NAME"
#: ``0`` keeps nothing: the work folder ends with its kernel.
KEEP_VARIABLE = "SANDBOX_KERNEL_KEEP_FILES"


def kept_work(connection_file: str, environment: Mapping[str, str] = os.environ) -> KeptWork | None:
    """Return the kept work folder of this kernel; None where none is known or nothing shall be kept.

    Args:
        connection_file: The kernel's connection file; empty without one.
        environment: The environment of the kernel.

    """
    if environment.get(KEEP_VARIABLE, "").strip() == "0":
        return None
    notebook = environment.get(NOTEBOOK_VARIABLE, "")
    if notebook:
        return KeptWork.of(notebook)
    return KeptWork.of(connection_file) if connection_file and KeptWork.exists(connection_file) else None


def before_shutdown(
    sandboxes: NotebookSandboxes, connection_file: str, *, restart: bool, environment: Mapping[str, str] = os.environ
) -> None:
    """Keep the files of a kernel that is restarted, and drop what was kept for restarts alone when it ends for good."""
    if environment.get(NOTEBOOK_VARIABLE) or environment.get(KEEP_VARIABLE, "").strip() == "0":
        return
    if not restart:
        if sandboxes.kept is not None:
            sandboxes.kept.remove()
    elif sandboxes.kept is None and connection_file:
        files, changed = sandboxes.box(CellOptions()).files, [box for box in sandboxes.boxes_on_folders() if box.diff()]
        kept = KeptWork.of(connection_file) if files or changed else None
        if kept is not None:
            with Rooted.at(kept.files) as root:
                for path in files:
                    root.write(path, files[path])
            for box in changed:
                place = changes_place(kept, str(box.here), box.policy)
                if place is not None:
                    box.keep_changes_in(place)
            kept.close()
