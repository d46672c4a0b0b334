"""What is asked of a session's cell, checked before anything runs."""

from __future__ import annotations

from dataclasses import replace

from sandbox_kernel.backends.host_failures import check_listener
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.core.job import OnOutput
from sandbox_kernel.jail.meter.meter import OnUsage
from sandbox_kernel.limits import check_memory_mb
from sandbox_kernel.model import ExecRequest
from sandbox_kernel.session.cell.cell_order import CellOrder
from sandbox_kernel.session.cell.cell_prompt import OnInput
from sandbox_kernel.session.cell.displays import OnDisplay
from sandbox_kernel.session.opening.spec import SessionSpec

#: The least memory that a cell can be given beside its session.
LEAST_CELL_MB = 16


def takes_memory(spec: SessionSpec, has_mb: int, memory_mb: int) -> bool:
    """Whether a single cell can have this limit; ``has_mb`` is what the session has now."""
    return memory_mb == has_mb or LEAST_CELL_MB <= memory_mb <= spec.cell_memory_mb


def make_order(
    spec: SessionSpec,
    has_mb: int,
    *,
    code: str,
    timeout: float,
    number: int | None,
    memory_mb: int | None,
    cpu_seconds: float | None,
    output_bytes: int | None,
    on_output: OnOutput | None,
    on_input: OnInput | None,
    on_display: OnDisplay | None,
    on_usage: OnUsage | None,
) -> CellOrder:
    """The order for a cell, for ``Session.run``; None is what the session has. ``InvalidRequest`` on bad input."""
    callbacks = {"on_output": on_output, "on_input": on_input, "on_display": on_display, "on_usage": on_usage}
    for listener, callback in callbacks.items():
        check_listener(listener, callback)
    memory_mb = has_mb if memory_mb is None else check_memory_mb(memory_mb)
    if not takes_memory(spec, has_mb, memory_mb):
        raise InvalidRequest(
            f"a cell of session {spec.name!r} cannot have {memory_mb} MB: it began with {spec.memory_mb} MB"
            + (f" and takes {LEAST_CELL_MB} to {spec.cell_memory_mb}" if spec.cell_memory_mb else "")
            + "; open a session with that memory, or use box.run"
        )
    limits = replace(
        spec.limits,
        cpu_seconds=spec.limits.cpu_seconds if cpu_seconds is None else cpu_seconds,
        output_bytes=spec.limits.output_bytes if output_bytes is None else output_bytes,
    )
    # Building the request is what checks it.
    request = ExecRequest(language=spec.language, code=code, timeout=timeout, memory_limit_mb=memory_mb)
    return CellOrder(
        code=code,
        number=number,
        timeout_s=request.timeout,
        grace_s=spec.grace_s,
        memory_mb=memory_mb,
        output_bytes=limits.output_bytes,
        cpu_seconds=limits.cpu_seconds,
        on_output=on_output,
        on_display=on_display,
        on_input=on_input,
        on_usage=on_usage,
    )
