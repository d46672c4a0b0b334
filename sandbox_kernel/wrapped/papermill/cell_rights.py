"""What cells may ask of the Sandbox kernel when papermill runs the notebook: no more than the command line gave.

Options of its cells can lower limits and choose languages and sessions; rights, files of the host and higher limits are
refused before anything runs. ``notebook/options/option_table.py`` says what is a right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import DEFAULT_SESSION_MEMORY_MB, DEFAULT_TIMEOUT_S, Limits
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.own_rights import rights_asked, shown
from sandbox_kernel.notebook.options.parse_cell import parse_cell
from sandbox_kernel.notebook.options.units import parse_duration, parse_megabytes


def check_cells(sources: Iterable[str], settings: Mapping[str, object]) -> None:
    """Raise ``InvalidRequest`` if a cell asks for a right, or for more than the limits of this run.

    Args:
        sources: The programs of the notebook's code cells, in order.
        settings: The settings of this run.

    """
    most = _limits(settings)
    for number, source in enumerate(sources, 1):
        try:
            plan = parse_cell(source, CellOptions())
        except SandboxError:
            continue  # the kernel refuses this cell
        if rights := rights_asked(plan, CellOptions()):
            raise InvalidRequest(
                f"code cell {number} asks for a right: {', '.join(map(shown, rights))}; who runs it can give one: -p "
                "sandbox_mounts HOST:GUEST, sandbox_domains DOMAIN, sandbox_here DIR, sandbox_policy NAME"
            )
        for options in (plan.options, *(command.options for command in plan.commands)):
            _check(number, options, most)


def _check(number: int, options: CellOptions, most: Mapping[str, float]) -> None:
    for name, limit in most.items():
        asked = getattr(options, name)
        if asked is not None and asked > limit:
            raise InvalidRequest(
                f"code cell {number} asks for {name} {asked:g}, more than the {limit:g} of this run; "
                "who runs it sets the most: -p sandbox_memory, --execution-timeout"
            )


def _limits(settings: Mapping[str, object]) -> dict[str, float]:
    memory, timeout, usual = settings.get("memory"), settings.get("timeout"), Limits()
    return {
        "memory_mb": parse_megabytes(str(memory), "memory") if memory else DEFAULT_SESSION_MEMORY_MB,
        "timeout_s": parse_duration(str(timeout), "timeout") if timeout else DEFAULT_TIMEOUT_S,
        **{name: getattr(usual, name) for name in ("processes", "disk_mb", "output_bytes")},
    }
