"""What is asked of one cell, and how it ended: plain values. ``run_cell.py`` runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.model import Call, OnInput, OnOutput, OnUsage
from sandbox_kernel.session.cell.displays import OnDisplay
from sandbox_kernel.session.cell.front_end import FrontEnd
from sandbox_kernel.session.worker.messages import CellDone

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, kw_only=True)
class CellRequest:
    """What the caller of ``Session.run`` asks for; its parameters are documented there. None is the session's own."""

    code: str
    timeout: float
    number: int | None = None
    memory_mb: int | None = None
    cpu_seconds: float | None = None
    output_bytes: int | None = None
    on_output: OnOutput | None = None
    on_input: OnInput | None = None
    on_display: OnDisplay | None = None
    on_usage: OnUsage | None = None
    #: A message of the page to a widget of the session; it is handled in place of the code.
    comm: Mapping[str, object] | None = None
    #: Where coroutine functions of the host run.
    loop: asyncio.AbstractEventLoop | None = None
    front_end: FrontEnd | None = None


@dataclass(frozen=True, kw_only=True)
class CellOrder:
    """A request that was checked, and the limits that hold for it. ``make_order`` makes one."""

    request: CellRequest
    timeout_s: float
    grace_s: float
    memory_mb: int
    output_bytes: int
    cpu_seconds: float | None
    gpu_memory_mb: int | None = None


@dataclass(frozen=True, kw_only=True)
class CellEnd:
    """How a cell ended. Anything but ``DONE`` means that the worker is dead or must die.

    ``disk_full`` is true when the disk filled up during the cell, not when it was full before.
    """

    how: Ending
    done: CellDone | None
    duration_s: float
    interrupted: bool
    disk_full: bool
    code: int | None = None
    problem: str = ""
    #: Whether an earlier cell's result said already that the session uses a GPU.
    told_of_gpu: bool = False
    failure: BaseException | None = None
    calls: tuple[Call, ...] = ()
