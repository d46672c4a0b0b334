"""What a session was opened with, and the request to run one cell of it: values that are checked when they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from sandbox_kernel.backends.outcome import NetworkSigns
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import Events, ExecRequest, Language, Note, OnInput, OnOutput, OnUsage, check_listener
from sandbox_kernel.session.cell.displays import OnDisplay
from sandbox_kernel.session.cell.front_end import FrontEnd
from sandbox_kernel.util.values import dataclass

if TYPE_CHECKING:
    import asyncio
    from typing import Unpack

#: The least memory that a cell can be given beside its session.
LEAST_CELL_MB = 16
#: The most checkpoints that a session may keep.
MAX_CHECKPOINTS = 100


@dataclass(frozen=True, kw_only=True)
class CellEvents(Events):
    """What the caller of a cell hears, beside what the caller of a run does."""

    on_display: OnDisplay | None = None
    #: The notebook that runs the cell: it gets values of expressions, and output after the end of the cell.
    front_end: FrontEnd | None = None
    #: Where coroutine functions of the host run.
    loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def of(cls, on_output: OnOutput | None, on_input: OnInput | None, more: CellExtras) -> CellEvents:
        """Return those parameters of a cell that are called."""
        heard = {name: more.get(name) for name in ("on_display", "on_usage", "front_end")}
        return cls(on_output=on_output, on_input=on_input, **heard)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_listener("on_display", self.on_display)


@dataclass(frozen=True, kw_only=True)
class CellRequest(ExecRequest):
    """A request to run one cell; ``Session.run`` documents its parameters. No memory limit means the session's."""

    number: int | None = None
    #: A message of the page to a widget of the session; it is handled in place of the code.
    comm: Mapping[str, object] | None = None


class CellExtras(TypedDict, total=False):
    """The parameters of a cell that are given by name only; ``Session.run`` documents them."""

    on_display: OnDisplay | None
    on_usage: OnUsage | None
    number: int | None
    memory_mb: int | None
    cpu_seconds: float | None
    output_bytes: int | None
    front_end: FrontEnd | None


NetworkNotes = Callable[[NetworkSigns, Sequence[Note]], Sequence[Note]]


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
    #: Makes notes on the network, from the signs that a cell wanted it and its other notes.
    network_notes: NetworkNotes = lambda _signs, _notes: ()

    def __post_init__(self) -> None:
        count, name = self.checkpoints, self.name
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_CHECKPOINTS:
            raise InvalidRequest(f"checkpoints must be between 0 and {MAX_CHECKPOINTS}, got {count!r}")
        if not isinstance(name, str) or not name.strip() or len(name) > 100 or not name.isprintable():
            raise InvalidRequest(f"a session's name must be a short text, got {name!r:.120}")

    def request(
        self, code: str, timeout: float, comm: Mapping[str, object] | None = None, **more: Unpack[CellExtras]
    ) -> CellRequest:
        """Return a checked request for a cell of this session; raises ``InvalidRequest``."""
        given = {name: more.get(name) for name in ("cpu_seconds", "output_bytes") if more.get(name) is not None}
        return CellRequest(
            language=self.language,
            code=code,
            timeout=timeout,
            memory_limit_mb=more.get("memory_mb"),
            limits=replace(self.limits, **given) if given else self.limits,  # type: ignore[arg-type]
            number=more.get("number"),
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
