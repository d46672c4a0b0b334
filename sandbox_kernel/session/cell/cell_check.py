"""What is asked of a session's cell, checked before anything runs."""

from __future__ import annotations

from dataclasses import replace

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import check_memory_mb
from sandbox_kernel.model import ExecRequest, check_listener
from sandbox_kernel.session.cell.cell_order import CellOrder, CellRequest
from sandbox_kernel.session.opening.spec import SessionSpec

#: The least memory that a cell can be given beside its session.
LEAST_CELL_MB = 16


def takes_memory(spec: SessionSpec, has_mb: int, memory_mb: int) -> bool:
    """Whether a single cell can have this limit; ``has_mb`` is what the session has now."""
    return memory_mb == has_mb or LEAST_CELL_MB <= memory_mb <= spec.cell_memory_mb


def check_listeners(asked: CellRequest) -> None:
    """Refuse a callback that cannot be called."""
    for name in ("on_output", "on_input", "on_display", "on_usage"):
        check_listener(name, getattr(asked, name))


def make_order(spec: SessionSpec, has_mb: int, asked: CellRequest) -> CellOrder:
    """Check a request and fill in the session's limits; ``InvalidRequest`` names what cannot be.

    Args:
        spec: the session.
        has_mb: the memory that the session has now.
        asked: the request.

    """
    check_listeners(asked)
    memory_mb = has_mb if asked.memory_mb is None else check_memory_mb(asked.memory_mb)
    if not takes_memory(spec, has_mb, memory_mb):
        raise InvalidRequest(
            f"a cell of session {spec.name!r} cannot have {memory_mb} MB: it began with {spec.memory_mb} MB"
            + (f" and takes {LEAST_CELL_MB} to {spec.cell_memory_mb}" if spec.cell_memory_mb else "")
            + "; open a session with that memory, or use box.run"
        )
    limits = replace(
        spec.limits,
        cpu_seconds=spec.limits.cpu_seconds if asked.cpu_seconds is None else asked.cpu_seconds,
        output_bytes=spec.limits.output_bytes if asked.output_bytes is None else asked.output_bytes,
    )
    # Building the request is what checks it.
    checked = ExecRequest(language=spec.language, code=asked.code, timeout=asked.timeout, memory_limit_mb=memory_mb)
    return CellOrder(
        request=asked,
        timeout_s=checked.timeout,
        grace_s=spec.grace_s,
        memory_mb=memory_mb,
        output_bytes=limits.output_bytes,
        cpu_seconds=limits.cpu_seconds,
        gpu_memory_mb=limits.gpu_memory_mb,
    )
