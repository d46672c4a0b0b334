"""Which session a cell belongs to, and when it must run in a sandbox of its own instead.

Unnamed sessions, one for each language, begin with the notebook's defaults; a named one begins with the options of its
first cell, network included. Time, CPU, output and, within bounds, memory may be another for each cell. What a session
is fixed to when it begins (policy, interpreter, disk, …) cannot change while it lives. A cell that asks for something
else is not refused and not run under the wrong limit: it runs fresh, and is told why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, DEFAULT_SESSION_MEMORY_MB
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.cell_policy import limits_of
from sandbox_kernel.notebook.options.parse_cell import CellPlan
from sandbox_kernel.session.opening.open_session import has_sessions, least_memory_mb, only_when_named
from sandbox_kernel.session.session import Session

#: What a cell may touch; whoever asks for it once often goes on working with what came of it.
_GRANTS = frozenset(("--allow-net", "--mount", "--policy"))

Key = tuple[Language, str]


def asks(options: CellOptions) -> dict[str, object]:
    """What these options ask for that is fixed when a session begins, by the option that says it."""
    named: dict[str, object] = {
        "--memory": options.memory_mb,
        "--cpu": options.cpu_s,
        "--processes": options.processes,
        "--disk": options.disk_mb,
        "--output": options.output_bytes,
        "--backend": options.backend,
        "--policy": options.policy,
        "--allow-net": options.allow_net or None,
        "--mount": options.mounts or None,
        "--python": options.python,
        "--checkpoints": options.checkpoints,
    }
    return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Choice:
    """Where a cell runs: in a session, or fresh; ``why_fresh`` is empty when that is what everybody expects.

    ``one_cell``: it belongs to a session, but none that runs has what it asks for. So it gets one that ends with it,
    and shows its value, its figures and its errors as its neighbours do.
    """

    session: Session | None = None
    why_fresh: str = ""
    must_open: bool = False
    one_cell: bool = False


@dataclass
class _Held:
    session: Session
    begun_with: dict[str, object]
    used: bool = False


class NotebookSessions:
    """The sessions of one notebook; thread-safe. ``box_for`` gives the sandbox that a session is opened in."""

    def __init__(self, box_for: Callable[[CellOptions], Sandbox]) -> None:
        self._box_for = box_for
        self._lock = threading.RLock()
        self._held: dict[Key, _Held] = {}
        self._last: Key | None = None

    def choose(self, plan: CellPlan) -> Choice:
        """The session for a cell, opened if need be; or none, and the reason why the cell runs fresh, if it is news."""
        choice = self.choose_open(plan)
        if not choice.must_open:
            return choice
        options, key = plan.options, _key(plan.options)
        base = plan.defaults if options.session is None else options
        with self._lock:
            choice = self.choose_open(plan)  # another thread may have been faster
            if choice.must_open:
                unused = self._held.pop(key, None)
                if unused is not None:
                    unused.session.close()
                self._held[key] = _Held(self._open(key[0], base, options.session), begun_with(base))
                choice = self.choose_open(plan)
        return choice

    def prepare(self, options: CellOptions) -> None:
        """Open the unnamed session in advance. Until a cell has run in it, it gives way to other defaults."""
        key = _key(options)
        with self._lock:
            if options.keeps_state and has_sessions(key[0], options.backend) and key not in self._held:
                self._held[key] = _Held(self._open(key[0], options, options.session), begun_with(options))

    def choose_open(self, plan: CellPlan) -> Choice:
        """The same without opening anything: never blocks for long."""
        choice, key = self._choice(plan), _key(plan.options)
        held = self._held.get(key)
        if held is not None and choice.session is held.session:
            self._last = key
            held.used = True
        return choice

    def of_cell(self, plan: CellPlan) -> Session | None:
        """The running session in which this cell would run; None where it would run elsewhere, or begin one.

        Only that session may be asked about the cell: another one, with fewer rights, must not write into it.
        """
        return self._choice(plan).session

    def _choice(self, plan: CellPlan) -> Choice:
        options, key = plan.options, _key(plan.options)
        if not options.keeps_state:
            return Choice()
        named = options.session is not None and only_when_named(key[0], options.backend)
        if not (has_sessions(key[0], options.backend) or named or key in self._held):
            if options.session is not None:
                raise InvalidRequest(f"--session {options.session!r}: there are no sessions for {key[0]} here yet")
            return Choice()
        if options.env or options.args:
            return Choice(why_fresh="--env and --arg are for a new process")
        if options.check:
            return Choice(why_fresh="--check takes the cell as a whole program")
        base = plan.defaults if options.session is None else options
        held = self._held.get(key)
        if held is not None and (not held.session.alive or not (held.used or held.begun_with == begun_with(base))):
            held = None
        has = held.begun_with if held is not None else begun_with(base)
        differing = [name for name, value in asks(options).items() if not _same(has.get(name), value)]
        differing = [name for name in differing if not _of_a_cell(name, options, held)]
        if differing:
            only_this_cell = options.session is None and (held is None or asks(base) != asks(options))
            one_cell = has_sessions(key[0], options.backend)
            return Choice(why_fresh=_explain(differing, options, only_this_cell), one_cell=one_cell)
        if held is None:
            return Choice(must_open=True)
        return Choice(session=held.session)

    def find(self, options: CellOptions) -> Session | None:
        """The running session that a line command means: by name or language, else the last one."""
        with self._lock:
            key = (self._meant(options.session) if options.language is None else None) or _key(options)
            held = self._held.get(key)
            return held.session if held is not None and held.session.alive else None

    def _meant(self, name: str | None) -> Key | None:
        """Without a language: the last session, or the last or only one of this name."""
        if self._last is not None and name in (None, self._last[1]):
            return self._last
        found = [key for key, held in self._held.items() if key[1] == name and held.session.alive]
        return found[0] if len(found) == 1 else None

    def names(self) -> list[str]:
        """The names of the sessions that were given one."""
        with self._lock:
            return sorted({name for (_, name), held in self._held.items() if name and held.session.alive})

    def end(self, session: Session) -> str:
        """End a session and say which it was; the next cell that belongs to it begins a new one, as asked for then."""
        with self._lock:
            ended = [key for key, held in self._held.items() if held.session is session]
            for key in ended:
                del self._held[key]
        session.close()
        return " ".join(f"{language} session {name}".strip() for language, name in ended) or "session"

    def adopt(self, options: CellOptions, session: Session) -> None:
        """Go on with a session that was loaded from a file, in place of the one with its name."""
        key = _key(options)
        with self._lock:
            old = self._held.get(key)
            # It holds what somebody saved: like one in which a cell has run, it does not give way to other defaults.
            self._held[key] = _Held(session, begun_with(options), used=True)
            self._last = key
        if old is not None:
            old.session.close()

    def close(self) -> None:
        """End them all; may be called twice."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for one in held:
            one.session.close()

    def open_for_one_cell(self, options: CellOptions) -> Session | None:
        """A session that nobody else finds, with the limits of a fresh run; None where such a session cannot be.

        The caller closes it when the cell is over. Its one checkpoint is what puts the files back when it is stopped.
        """
        language, box = options.effective_language, self._box_for(options)
        memory_mb = options.memory_mb if options.memory_mb is not None else DEFAULT_MEMORY_MB
        if memory_mb < least_memory_mb(language) or (language is Language.COMMAND and not box.policy.process_spawn):
            return None
        return box.session(
            language, memory_mb=memory_mb, checkpoints=1, python=options.python, limits=limits_of(options)
        )

    def _open(self, language: Language, options: CellOptions, name: str | None) -> Session:
        """``options`` are the notebook's, whose language is not the cell's, or the cell's own."""
        wanted: dict[str, object] = {"memory_mb": options.memory_mb, "checkpoints": options.checkpoints}
        given = {key: value for key, value in wanted.items() if value is not None}
        return self._box_for(options).session(
            language,
            name=name,
            python=options.python,
            limits=limits_of(options),
            **given,  # type: ignore[arg-type]
        )


def _key(options: CellOptions) -> Key:
    return options.effective_language, options.session or ""


def begun_with(options: CellOptions) -> dict[str, object]:
    """What a session that begins with these options has."""
    return {"--memory": DEFAULT_SESSION_MEMORY_MB, **asks(options)}


def _of_a_cell(name: str, options: CellOptions, held: _Held | None) -> bool:
    """Whether a session can give a single cell what it asks for, beside what it began with; it may have to begin."""
    if name == "--memory" and held is not None:
        return options.memory_mb is not None and held.session.takes_memory(options.memory_mb)
    return name in ("--memory", "--cpu", "--output")


def _same(has: object, value: object) -> bool:
    """Lists of domains and mounts mean the same in any order."""
    if isinstance(has, tuple) and isinstance(value, tuple):
        return set(has) == set(value)
    return has == value


def _explain(differing: list[str], options: CellOptions, only_this_cell: bool) -> str:
    what = f"the session has another {' and '.join(differing)}"
    if not only_this_cell:
        named = f" --session {options.session}" if options.session is not None else ""
        return f"{what}; %sandbox restart {options.effective_language}{named} begins one that has it"
    if not _GRANTS.intersection(differing):
        return what
    return f"{what}; with --session NAME added, this cell begins one that has it and keeps its variables"
