"""What cells may ask of the Sandbox kernel when papermill runs the notebook: no more than the command line gave.

In a page ``%sandbox --mount`` is the user's own word. A notebook that papermill runs may be a stranger's, so options of
its cells can lower limits and choose languages and sessions; rights, files of the host and higher limits are refused
before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import DEFAULT_SESSION_MEMORY_MB, DEFAULT_TIMEOUT_S, Limits
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import parse_cell
from sandbox_kernel.notebook.options.units import parse_duration, parse_megabytes

#: Commands that touch nothing but the notebook's own sessions.
_HARMLESS = frozenset((
    "show", "defaults", "help", "report", "policy", "undo", "redo", "checkpoint", "checkout", "tree", "diff",
    "branches", "checkpoints", "restart", "reset", "files", "changes", "discard", "never", "fork",
))  # fmt: skip
#: Options that give rights, and the parameter of papermill that gives them, where there is one.
_RIGHTS = {
    "allow_net": "-p sandbox_domains DOMAIN", "mounts": "-p sandbox_mounts HOST:GUEST", "here": "-p sandbox_here DIR",
    "policy": "-p sandbox_policy NAME", "gpu": "", "gpu_memory_mb": "", "python": "",
}  # fmt: skip


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
        for command in plan.commands:
            if command.name not in _HARMLESS:
                raise InvalidRequest(
                    f"code cell {number}: %sandbox {command.name} is not for a notebook that papermill runs: it "
                    "reaches beyond the notebook's own sessions"
                )
            _check(number, command.options, most)
        _check(number, plan.options, most)


def _check(number: int, options: CellOptions, most: Mapping[str, float]) -> None:
    for name, parameter in _RIGHTS.items():
        if getattr(options, name):
            remedy = f"; who runs it can: {parameter}" if parameter else ""
            raise InvalidRequest(f"code cell {number} gives itself a right ({name.replace('_', '-')}){remedy}")
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
