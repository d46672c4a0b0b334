"""Which session a cell belongs to, and when it must run in a sandbox of its own instead.

Unnamed sessions, one for each language, start with the notebook's defaults; a named session starts with the options of
its first cell, network included. Each cell may have its own time, CPU and output limit and, within bounds, its own
memory limit. Policy, interpreter, disk limit and the like are fixed when a session starts. A cell that asks for other
values of these runs fresh, and its receipt says why.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, DEFAULT_SESSION_MEMORY_MB
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.cell_policy import limits_of, may_share, policy_of
from sandbox_kernel.notebook.options.option_table import BY_NAME
from sandbox_kernel.notebook.options.parse_cell import CellPlan
from sandbox_kernel.notebook.sessions.session_growth import GROWING, RightsChange, change_all, rights_between
from sandbox_kernel.session.open_session import has_sessions, least_memory_mb, only_when_named
from sandbox_kernel.session.python_state import PythonSession, SaveReport
from sandbox_kernel.session.session import Session

if TYPE_CHECKING:
    from sandbox_kernel.workspace.kept_work import KeptWork

Key = tuple[Language, str]


def asks(options: CellOptions) -> dict[str, object]:
    """Return the values of these options that a session fixes when it starts, by option name."""
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
        "--gpu": options.gpu,
        "--gpu-memory": options.gpu_memory_mb,
        "--here": options.here,
        "--env": options.env or None,
        "--python": options.python,
        "--checkpoints": options.checkpoints,
    }
    return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Choice:
    """Where a cell runs: in a session, or fresh. ``why_fresh`` is the reason for the receipt, or empty.

    ``must_open``: the session has to be opened first. ``one_cell``: no open session has the options of this cell, so it
    gets a session of its own that is closed after it; its value, figures and errors are shown as in other cells.
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
    """The sessions of one notebook; thread-safe. ``box_for`` returns the sandbox to open a session in.

    ``kept`` is where their large files stay when the kernel ends; None where they do not.
    """

    def __init__(self, box_for: Callable[[CellOptions], Sandbox], kept: KeptWork | None = None) -> None:
        self._box_for = box_for
        self._kept = kept
        self._lock = threading.RLock()
        self._held: dict[Key, _Held] = {}
        self._last: Key | None = None

    def choose(self, plan: CellPlan) -> Choice:
        """Return where a cell runs. Opens its session if necessary."""
        choice = self.choose_open(plan)
        if not choice.must_open:
            return choice
        options, key = plan.options, _key(plan.options)
        base = plan.defaults if options.session is None else options
        with self._lock:
            choice = self.choose_open(plan)  # another thread may have opened it meanwhile
            if choice.must_open:
                unused = self._held.pop(key, None)
                if unused is not None:
                    unused.session.close()
                self._held[key] = _Held(self._open(key[0], base, options.session), begun_with(base))
                choice = self.choose_open(plan)
        return choice

    def prepare(self, options: CellOptions) -> bool:
        """Open the unnamed session in advance. It is replaced if the defaults change before its first cell.

        Returns False if cells under these options run in no session.
        """
        key = _key(options)
        with self._lock:
            if not options.keeps_state or not has_sessions(key[0], options.backend):
                return False
            if key not in self._held:
                self._held[key] = _Held(self._open(key[0], options, options.session), begun_with(options))
            return True

    def choose_open(self, plan: CellPlan) -> Choice:
        """Return where a cell runs, like ``choose``, but open nothing; so it does not block for long."""
        choice, key = self._choice(plan), _key(plan.options)
        held = self._held.get(key)
        if held is not None and choice.session is held.session:
            self._last = key
            held.used = True
        return choice

    def of_cell(self, plan: CellPlan) -> Session | None:
        """Return the open session in which this cell would run; None if it would run fresh or in a new session.

        Only that session may answer completion requests for the cell: the answer of a session with fewer rights must
        not change the text of a cell with more.
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
        if options.args or options.env != plan.defaults.env:
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

    def grow(self, options: CellOptions) -> tuple[str, ...]:
        """Give the sessions that run what the notebook's new defaults allow, and take back what they do not.

        Returns what changed, one sentence for each session. Raises ``PolicyViolation``, which says what works instead,
        when a session cannot follow; then no session has changed.
        """
        told: list[str] = []
        with self._lock:
            grown: list[tuple[_Held, tuple[RightsChange, ...]]] = []
            for (language, name), held in self._held.items():
                if name or not held.used or not held.session.alive:
                    continue
                changes = rights_between(held.begun_with, begun_with(options), language)
                if changes:
                    words = "; ".join(change.words for change in changes)
                    told.append(f"The {language} session keeps its variables and {words}.")
                    grown.append((held, changes))
            change_all([(held.session, change) for held, changes in grown for change in changes])
            now = {name: begun_with(options).get(name) for name in GROWING}
            for held, _ in grown:
                held.begun_with = {k: v for k, v in {**held.begun_with, **now}.items() if v is not None}
        return tuple(told)

    def begin_anew(self, old: Session, options: CellOptions) -> SaveReport:
        """Replace a session by a new one under these options that has its variables; returns what became of them.

        The old session goes on when the new one cannot be made.

        Args:
            old: An open session of this notebook.
            options: The notebook's defaults, with the language and name of the session.

        """
        key = _key(options)
        if not isinstance(old, PythonSession):
            raise InvalidRequest(
                f"%sandbox restart --keep: the variables of a running {old.language} session cannot be brought along, "
                "only those of Python sessions of processes; %sandbox restart begins one without them"
            )
        new = self._open(key[0], options, options.session)
        assert isinstance(new, PythonSession), "a Python session of processes"
        try:
            new.take_over(old, files=self._box_for(options).here is None)
        except BaseException:
            new.close()
            raise
        self.adopt(options, new)
        return new.restored or SaveReport()

    def find(self, options: CellOptions) -> Session | None:
        """Return the open session that a line command means: by name or language, else the last one that was used."""
        with self._lock:
            key = (self._meant(options.session) if options.language is None else None) or _key(options)
            held = self._held.get(key)
            return held.session if held is not None and held.session.alive else None

    def _meant(self, name: str | None) -> Key | None:
        """Return the key of the session meant without a language: the last one used, or the only one of this name."""
        if self._last is not None and name in (None, self._last[1]):
            return self._last
        found = [key for key, held in self._held.items() if key[1] == name and held.session.alive]
        return found[0] if len(found) == 1 else None

    def all(self) -> list[Session]:
        """Return all open sessions."""
        with self._lock:
            return [held.session for held in self._held.values() if held.session.alive]

    def with_state(self) -> dict[Key, Session]:
        """Return the open sessions that a cell has used, by language and name."""
        with self._lock:
            return {key: held.session for key, held in self._held.items() if held.used and held.session.alive}

    def names(self) -> list[str]:
        """Return the names of all open sessions that have one."""
        with self._lock:
            return sorted({name for (_, name), held in self._held.items() if name and held.session.alive})

    def end(self, session: Session) -> str:
        """Close a session and return its description. The next cell that belongs to it opens a new one."""
        with self._lock:
            ended = [key for key, held in self._held.items() if held.session is session]
            for key in ended:
                del self._held[key]
        session.close()
        return " ".join(f"{language} session {name}".strip() for language, name in ended) or "session"

    def adopt(self, options: CellOptions, session: Session) -> None:
        """Use a session that was loaded from a file, in place of the one with the same language and name."""
        key = _key(options)
        with self._lock:
            old = self._held.get(key)
            # It holds saved state, so new defaults must not replace it: it counts as used.
            self._held[key] = _Held(session, begun_with(options), used=True)
            self._last = key
        if old is not None:
            old.session.close()

    def add_fork(self, of: Session, name: str, copy: Session) -> None:
        """Let cells with ``--session NAME`` run in a fork of a session, which began with the same options."""
        with self._lock:
            (begun,) = (held.begun_with for held in self._held.values() if held.session is of)
            old = self._held.get((copy.language, name))
            self._held[copy.language, name] = _Held(copy, dict(begun), used=True)
        if old is not None:
            old.session.close()

    def close_unused(self) -> None:
        """Close the sessions that were opened in advance and have run no cell: a new one has what they lack."""
        with self._lock:
            unused = [key for key, held in self._held.items() if not held.used]
            sessions = [self._held.pop(key).session for key in unused]
        for session in sessions:
            session.close()

    def close(self) -> None:
        """Close all sessions; may be called twice."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for one in held:
            one.session.close()

    def open_for_one_cell(self, options: CellOptions) -> Session | None:
        """Open a session for a single cell, with the limits of a fresh run; None if that is not possible.

        It is not registered here: the caller closes it after the cell. Its one checkpoint restores the files when the
        cell has to be ended.
        """
        language, box = options.effective_language, self._box_for(options)
        memory_mb = options.memory_mb if options.memory_mb is not None else DEFAULT_MEMORY_MB
        if memory_mb < least_memory_mb(language) or (language is Language.COMMAND and not box.policy.process_spawn):
            return None
        return box.session(
            language, memory_mb=memory_mb, checkpoints=1, python=options.python, limits=limits_of(options)
        )

    def _open(self, language: Language, options: CellOptions, name: str | None) -> Session:
        """Open a session. ``options`` are the notebook's, for an unnamed session, or those of the cell."""
        wanted: dict[str, object] = {"memory_mb": options.memory_mb, "checkpoints": options.checkpoints}
        given = {key: value for key, value in wanted.items() if value is not None}
        session = self._box_for(options).session(
            language,
            name=name,
            python=options.python,
            limits=limits_of(options),
            **given,  # type: ignore[arg-type]
        )
        if self._kept is not None and may_share(policy_of(options), policy_of(CellOptions())):
            with contextlib.suppress(OSError):  # the kept folder is gone: as where none is kept
                session.keep_large_files(self._kept.place_of_large_files(f"{language} {name or ''}"))
        if options.env:
            session.allow(env=dict(options.env))
        return session


def _key(options: CellOptions) -> Key:
    return options.effective_language, options.session or ""


def begun_with(options: CellOptions) -> dict[str, object]:
    """Return the fixed values of a session that starts with these options."""
    return {"--memory": DEFAULT_SESSION_MEMORY_MB, **asks(options)}


def _of_a_cell(name: str, options: CellOptions, held: _Held | None) -> bool:
    """Whether a session can apply this option to a single cell."""
    if name == "--memory" and held is not None:
        return options.memory_mb is not None and held.session.takes_memory(options.memory_mb)
    return name in ("--memory", "--cpu", "--output")


def _same(has: object, value: object) -> bool:
    """Whether two option values are equal. The order of domains, mounts and variables does not matter."""
    if isinstance(has, tuple) and isinstance(value, tuple):
        return set(has) == set(value)
    return has == value


def _explain(differing: list[str], options: CellOptions, only_this_cell: bool) -> str:
    what = f"the session was not started with this {' and '.join(differing)}"
    if not only_this_cell:
        named = f" --session {options.session}" if options.session is not None else ""
        return f"{what}; %sandbox restart {options.effective_language}{named} begins one that has it"
    if all(BY_NAME[name].harmless for name in differing):
        return what
    return f"{what}; with --session NAME added, this cell begins one that has it and keeps its variables"
