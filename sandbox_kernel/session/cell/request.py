"""What a session was opened with, and the request to run one cell of it: values that are checked when they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.outcome import NetworkSigns
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import MAX_TIMEOUT_S, Limits, check_whole
from sandbox_kernel.model import Events, ExecRequest, Language, Note, check_listener
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.session.cell.displays import OnDisplay
from sandbox_kernel.session.cell.front_end import FrontEnd
from sandbox_kernel.util.values import dataclass

if TYPE_CHECKING:
    import asyncio

#: The least memory that a cell can be given beside its session.
LEAST_CELL_MB = 16
#: The most checkpoints that a session may keep.
MAX_CHECKPOINTS = 100


class LimitLift:
    """Time and memory that presses add to a running cell. One thread writes them, the cell's loop reads them.

    Each press doubles one of them. ``most_mb`` bounds the memory; 0 while no cell of a session runs.
    """

    def __init__(self) -> None:
        self.timeout_s, self.memory_mb, self.most_mb = 0.0, 0, 0

    def next(self) -> tuple[float, int]:
        """Return how many seconds and MB the next press gives; zeros where none can be given."""
        if not self.most_mb:
            return 0.0, 0
        return min(self.timeout_s, MAX_TIMEOUT_S - self.timeout_s), min(self.memory_mb, self.most_mb - self.memory_mb)

    def give(self, what: str) -> None:
        """Give more ``time`` or ``memory``. Raises ``InvalidRequest`` where that is not possible."""
        seconds, more_mb = self.next()
        if what == "time" and seconds > 0:
            self.timeout_s += seconds
        elif what == "memory" and more_mb > 0:
            self.memory_mb += more_mb
        else:
            why = f"this session can have {self.most_mb} MB, {MAX_TIMEOUT_S:g} s" if self.most_mb else "it has ended"
            raise InvalidRequest(f"the cell cannot be given more {what}: {why}; restart with more, and run it again")


@dataclass(frozen=True, kw_only=True)
class CellEvents(Events):
    """What the caller of a cell hears, beside what the caller of a run does."""

    on_display: OnDisplay | None = None
    #: The notebook that runs the cell: it gets values of expressions, and output after the end of the cell.
    front_end: FrontEnd | None = None
    #: Adds time or memory to the running cell; None where nobody may.
    lift: LimitLift | None = None
    #: Where coroutine functions of the host run.
    loop: asyncio.AbstractEventLoop | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_listener("on_display", self.on_display)


@dataclass(frozen=True, kw_only=True)
class CellRequest(ExecRequest):
    """A request to run one cell; ``Session.run`` documents its parameters. No memory limit means the session's."""

    number: int | None = None
    #: A message of the page to a widget of the session; it is handled in place of the code.
    comm: Mapping[str, object] | None = None


NetworkNotes = Callable[[NetworkSigns, Sequence[Note], SandboxPolicy | None], Sequence[Note]]


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """What a session was opened with; the same for each of its workers."""

    name: str
    language: Language
    memory_mb: int
    #: How many cells back ``undo`` can go.
    checkpoints: int
    limits: Limits
    #: How long a cell may go on after an interrupt before it is rolled back.
    grace_s: float
    #: The most memory that a single cell may be given; 0: every cell has exactly the session's limit.
    cell_memory_mb: int = 0
    backend: str
    isolation: str
    #: Why this backend, when nobody had named one.
    chosen: str = ""
    #: Makes notes on the network, from the signs that a cell wanted it, its other notes, and what it may reach by now.
    network_notes: NetworkNotes = lambda _signs, _notes, _policy: ()

    def __post_init__(self) -> None:
        check_whole("checkpoints", self.checkpoints, 0, MAX_CHECKPOINTS)
        name = self.name
        if not isinstance(name, str) or not name.strip() or len(name) > 100 or not name.isprintable():
            raise InvalidRequest(f"a session's name must be a short text, got {name!r:.120}")

    def request(
        self,
        code: str,
        timeout: float,
        comm: Mapping[str, object] | None = None,
        *,
        number: int | None = None,
        memory_mb: int | None = None,
        cpu_seconds: float | None = None,
        output_bytes: int | None = None,
    ) -> CellRequest:
        """Return a checked request for a cell of this session; raises ``InvalidRequest``."""
        limits = self.limits
        if cpu_seconds is not None:
            limits = replace(limits, cpu_seconds=cpu_seconds)
        if output_bytes is not None:
            limits = replace(limits, output_bytes=output_bytes)
        return CellRequest(
            language=self.language,
            code=code,
            timeout=timeout,
            memory_limit_mb=memory_mb,
            limits=limits,
            number=number,
            comm=comm,
        )

    def takes_memory(self, has_mb: int, memory_mb: int) -> bool:
        """Whether a single cell can have this limit; ``has_mb`` is what the session has now."""
        return memory_mb == has_mb or LEAST_CELL_MB <= memory_mb <= self.cell_memory_mb

    def memory_of(self, request: CellRequest, has_mb: int) -> int:
        """Return the memory limit of a cell in MB; raises ``InvalidRequest`` for one that it cannot have."""
        wanted = has_mb if request.memory_limit_mb is None else request.memory_limit_mb
        if not self.takes_memory(has_mb, wanted):
            raise InvalidRequest(
                f"a cell of session {self.name!r} cannot have {wanted} MB: it began with {self.memory_mb} MB"
                + (f" and takes {LEAST_CELL_MB} to {self.cell_memory_mb}" if self.cell_memory_mb else "")
                + "; open a session with that memory, or use box.run"
            )
        return wanted
