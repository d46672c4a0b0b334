"""What cells may ask of the Sandbox kernel when papermill runs the notebook: no more than the command line gave.

Options of its cells can lower limits and choose languages and sessions; rights, files of the host and higher limits are
refused before anything runs. ``notebook/options/own_rights.py`` says what is a right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.model.units import parse_duration, parse_megabytes
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.own_rights import rights_asked, shown
from sandbox_kernel.notebook.options.parse_cell import parse_cell


def check_cells(sources: Iterable[str], settings: Mapping[str, object]) -> None:
    """Raise ``InvalidRequest`` if a cell asks for a right, or for more than the limits of this run.

    Args:
        sources: The programs of the notebook's code cells, in order.
        settings: The settings of this run.

    """
    memory, timeout = settings.get("memory"), settings.get("timeout")
    given = CellOptions(
        memory_mb=parse_megabytes(str(memory), "memory") if memory else None,
        timeout_s=parse_duration(str(timeout), "timeout") if timeout else None,
    )
    for number, source in enumerate(sources, 1):
        try:
            plan = parse_cell(source, given)
        except SandboxError:
            continue  # the kernel refuses this cell
        if rights := rights_asked(plan, given):
            raise InvalidRequest(
                f"code cell {number} asks for a right: {', '.join(map(shown, rights))}; who runs it can give one: -p "
                "sandbox_mounts HOST:GUEST, sandbox_domains DOMAIN, sandbox_here DIR, sandbox_policy NAME, "
                "sandbox_memory SIZE, --execution-timeout SECONDS"
            )
