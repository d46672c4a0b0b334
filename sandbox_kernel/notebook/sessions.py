"""Which session a cell belongs to, when it must run in a sandbox of its own instead, and how sessions follow defaults.

Unnamed sessions, one for each language, start with the notebook's defaults, a named one with the options of its first
cell. Each cell may have its own time, CPU and output limit and, within bounds, memory limit. The rest is fixed when a
session starts (``at_start`` in ``option_table.py``): a cell that asks for other values runs fresh, as its receipt says.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SessionError
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, MIB
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.cell_options import CellOptions, limits_of, may_share, policy_of
from sandbox_kernel.notebook.options.option_table import BY_NAME, OPTIONS, AtStart
from sandbox_kernel.notebook.options.parse_cell import CellPlan
from sandbox_kernel.session.language_workers import ENGINES
from sandbox_kernel.session.open_session import has_sessions, only_when_named
from sandbox_kernel.session.python_state import PythonSession
from sandbox_kernel.session.saved_file import SaveReport
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree.variables import size_of
from sandbox_kernel.util.values import dataclass

if TYPE_CHECKING:
    from sandbox_kernel.workspace.kept_work import KeptWork

Key = tuple[Language, str]
_FOLLOWED = tuple(option.field for option in OPTIONS if option.at_start is AtStart.FOLLOWS)
_WALLS = tuple(option for option in OPTIONS if option.at_start is AtStart.WALLS)


#: From how many bytes on a variable is large, and how many of them an error names.
_LARGE, _MOST_TOLD = MIB, 10
#: The most sessions at once: each has the limits of the notebook for itself.
MOST_SESSIONS = 16


class WouldLose(SessionError):
    """A new session would not have these large variables; nothing was changed."""

    def __init__(self, variables: tuple[str, ...]) -> None:
        super().__init__(
            f"a new session would not have {'; '.join(variables)}. Nothing was changed. Save what you need of it to a "
            "file and delete the variable, or give the session more memory; %sandbox restart begins without variables"
        )
        self.variables = variables


@dataclass(frozen=True)
class Choice:
    """Where a cell runs: in a session, or fresh. ``why_fresh`` is the reason for the receipt, or empty.

    ``must_open``: in a session that is to be opened. ``one_cell``: in one of its own, which is closed after it.
    """

    session: Session | None = None
    why_fresh: str = ""
    must_open: bool = False
    one_cell: bool = False


@dataclass
class _Held:
    """An open session, the options that it began with or was given since, and whether a cell has used it."""

    session: Session
    options: CellOptions
    used: bool = False


class NotebookSessions:
    """The sessions of one notebook, opened in sandboxes of ``box_for``; large files stay in ``kept``. Thread-safe."""

    def __init__(self, box_for: Callable[[CellOptions], Sandbox], kept: KeptWork | None = None) -> None:
        self._box_for = box_for
        self._kept = kept
        self._lock = threading.RLock()
        self._held: dict[Key, _Held] = {}
        self._last: Key | None = None

    def choose(self, plan: CellPlan) -> Choice:
        """Return where a cell runs. Opens its session if necessary."""
        options, key = plan.options, _key(plan.options)
        base = plan.defaults if options.session is None else options
        with self._lock:
            choice = self.choose_open(plan)
            if choice.must_open:
                unused = self._held.pop(key, None)
                if unused is not None:
                    unused.session.close()
                self._put(key, self._open(key[0], base, options.session), base.of_session, used=False)
                choice = self.choose_open(plan)
        return choice

    def prepare(self, options: CellOptions) -> bool:
        """Open the unnamed session before its first cell; False if cells under these options run in no session."""
        key = _key(options)
        with self._lock:
            if not options.keeps_state or not has_sessions(key[0], options.backend):
                return False
            if key not in self._held:
                self._put(key, self._open(key[0], options, options.session), options.of_session, used=False)
            return True

    def choose_open(self, plan: CellPlan) -> Choice:
        """Return where a cell runs, like ``choose``, but open nothing; so it does not block for long."""
        choice, key = self.choice(plan), _key(plan.options)
        held = self._held.get(key)
        if held is not None and choice.session is held.session:
            self._last = key
            held.used = True
        return choice

    def choice(self, plan: CellPlan) -> Choice:
        """Return where a cell would run.

        Only that session may answer completions: one with fewer rights must not change the text of a cell with more.
        """
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
        fixed, began = options.at_start, base.of_session.at_start
        held = self._held.get(key)
        if held is not None and (not held.session.alive or not (held.used or held.options.at_start == began)):
            held = None
        has = held.options.at_start if held is not None else began
        differing = [
            name for name, value in fixed.items() if has.get(name) != value and not _of_a_cell(name, options, held)
        ]
        if differing:
            only_this_cell = options.session is None and (held is None or base.at_start != fixed)
            one_cell = has_sessions(key[0], options.backend)
            return Choice(why_fresh=_explain(differing, options, only_this_cell), one_cell=one_cell)
        return Choice(must_open=True) if held is None else Choice(session=held.session)

    def grow(self, options: CellOptions) -> tuple[str, ...]:
        """Let running sessions follow new defaults; returns what changed. Raises ``PolicyViolation`` before that."""
        told: list[str] = []
        wanted = options.of_session
        with self._lock:
            grown: list[_Held] = []
            changes: list[tuple[Session, RightsChange]] = []
            for (language, name), held in self._held.items():
                if name or not held.used or not held.session.alive:
                    continue
                if found := rights_between(held.options, wanted, language):
                    words = "; ".join(change.words for change in found if change.words)
                    told.append(f"The {language} session keeps its variables and {words}.")
                    grown.append(held)
                    changes += [(held.session, change) for change in found]
            change_all(changes)
            now: dict[str, Any] = {name: getattr(wanted, name) for name in _FOLLOWED}
            for held in grown:
                held.options = replace(held.options, **now)
        return tuple(told)

    def begin_anew(self, old: Session, options: CellOptions, *, anyway: bool = False) -> SaveReport:
        """Replace a session by one that has its variables. Raises ``WouldLose`` for large ones, unless ``anyway``."""
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
            sizes = {name: size_of(seen) or 0 for name, seen in (old.variables() or {}).items()}
            lost = new.restored.lost if new.restored is not None and not anyway else {}
            large = [name for name in lost if sizes.get(name, 0) >= _LARGE][:_MOST_TOLD]
            if large:
                raise WouldLose(tuple(f"{name} ({sizes[name] / MIB:.0f} MB): {lost[name]}" for name in large))
        except BaseException:
            new.close()
            raise
        self.adopt(options, new)
        return new.restored or SaveReport()

    def find(self, options: CellOptions) -> Session | None:
        """Return the open session that a line command means: by name or language, else the last one that was used."""
        with self._lock:
            key, name = _key(options), options.session
            if options.language is None:
                named = [key for key, held in self._held.items() if key[1] == name and held.session.alive]
                if self._last is not None and name in (None, self._last[1]):
                    key = self._last
                elif len(named) == 1:
                    key = named[0]
            held = self._held.get(key)
            return held.session if held is not None and held.session.alive else None

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
        ended = self._close(lambda held: held.session is session)
        return " ".join(f"{language} session {name}".strip() for language, name in ended) or "session"

    def close(self, *, unused: bool = False) -> None:
        """Close all sessions, or only those that were opened in advance and have run no cell; may be called twice."""
        self._close(lambda held: not (unused and held.used))

    def _close(self, which: Callable[[_Held], bool]) -> list[Key]:
        with self._lock:
            ended = {key: held for key, held in self._held.items() if which(held)}
            for key in ended:
                del self._held[key]
        for held in ended.values():
            held.session.close()
        return list(ended)

    def adopt(self, options: CellOptions, session: Session) -> None:
        """Use a session that was loaded from a file, in place of the one with the same language and name."""
        self._put(_key(options), session, options.of_session)
        self._last = _key(options)

    def add_fork(self, of: Session, name: str, copy: Session) -> None:
        """Let cells with ``--session NAME`` run in a fork of a session, which began with the same options."""
        with self._lock:
            (begun,) = (held.options for held in self._held.values() if held.session is of)
        self._put((copy.language, name), copy, begun)

    def _put(self, key: Key, session: Session, options: CellOptions, *, used: bool = True) -> None:
        """Hold a session in place of the one with its key. One that holds state counts as used."""
        with self._lock:
            old = self._held.pop(key, None)
            if fits := len(self._held) < MOST_SESSIONS:
                self._held[key] = _Held(session, options, used)
        for other in (*([old.session] if old is not None else []), *([] if fits else [session])):
            other.close()
        if not fits:
            raise InvalidRequest(f"{MOST_SESSIONS} sessions are open; end one first: %sandbox restart --session NAME")

    def open_for_one_cell(self, options: CellOptions) -> Session | None:
        """Open a session for one cell, with the limits of a fresh run, or return None. The caller closes it."""
        language, box = options.effective_language, self._box_for(options)
        memory_mb = options.memory_mb if options.memory_mb is not None else DEFAULT_MEMORY_MB
        if memory_mb < ENGINES[language].minimum_mb or (language is Language.COMMAND and not box.policy.process_spawn):
            return None
        # Its one checkpoint restores the files when the cell has to be ended.
        return box.session(
            language, memory_mb=memory_mb, checkpoints=1, python=options.python, limits=limits_of(options)
        )

    def _open(self, language: Language, options: CellOptions, name: str | None) -> Session:
        """Open a session. ``options`` are the notebook's, for an unnamed session, or those of the cell."""
        chosen = {"memory_mb": options.memory_mb, "checkpoints": options.checkpoints}
        given: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
        session = self._box_for(options).session(
            language, name=name, python=options.python, limits=limits_of(options), **given
        )
        if self._kept is not None and may_share(policy_of(options), policy_of(CellOptions())):
            with contextlib.suppress(OSError):  # the kept folder is gone: as where none is kept
                session.keep_large_files(self._kept.place_of_large_files(f"{language} {name or ''}"))
        if options.env:
            session.allow(env=dict(options.env))
        return session


def _key(options: CellOptions) -> Key:
    return options.effective_language, options.session or ""


def _of_a_cell(name: str, options: CellOptions, held: _Held | None) -> bool:
    """Whether a session can apply this option to a single cell."""
    if name == "--memory" and held is not None:
        return options.memory_mb is not None and held.session.takes_memory(options.memory_mb)
    return name == "--memory" or BY_NAME[name].at_start is AtStart.OF_A_CELL


def _explain(differing: list[str], options: CellOptions, only_this_cell: bool) -> str:
    what = f"the session was not started with this {' and '.join(differing)}"
    if not only_this_cell:
        named = f" --session {options.session}" if options.session is not None else ""
        return f"{what}; %sandbox restart {options.effective_language}{named} begins one that has it"
    if all(BY_NAME[name].harmless for name in differing):
        return what
    return f"{what}; with --session NAME added, this cell begins one that has it and keeps its variables"


class RightsChange(NamedTuple):
    """One right that a session gains or loses, as ``allow`` and ``revoke`` take it, and the words for it."""

    gains: bool
    right: dict[str, Any]
    words: str = ""


def change_all(changes: Sequence[tuple[Session, RightsChange]]) -> None:
    """Make all changes or, when a session refuses one, none: those made before it are taken back."""
    done: list[tuple[Session, RightsChange]] = []
    try:
        # Memory cannot be taken back, so it comes last.
        for session, change in sorted(changes, key=lambda each: "memory_mb" in each[1].right):
            (session.allow if change.gains else session.revoke)(**change.right)
            done.append((session, change))
    except BaseException:
        for session, change in reversed(done):
            if "memory_mb" not in change.right:
                (session.revoke if change.gains else session.allow)(**change.right)
        raise


def rights_between(has: CellOptions, wants: CellOptions, language: Language) -> list[RightsChange]:
    """Return what leads from the rights of a session to the new ones. Raises ``PolicyViolation`` where nothing does."""
    for option in _WALLS:
        old, new = getattr(has, option.field), getattr(wants, option.field)
        if old != new:
            raise PolicyViolation(
                f"{option.name} cannot be changed while the {language} session runs: its working folder and walls stay "
                f"as it began; {_instead(option.name, old, new, language)}"
            )
    # What is taken back first: a new folder or value may come to the place of an old one.
    found = [
        RightsChange(False, {"mount": mount}, f"lost {mount.guest}") for mount in set(has.mounts) - set(wants.mounts)
    ]
    for mount in set(wants.mounts) - set(has.mounts):
        reads = "reads and writes" if mount.writable else "reads"
        found.append(RightsChange(True, {"mount": mount}, f"{reads} {mount.host} at {mount.guest}"))
    more, less = set(wants.allow_net) - set(has.allow_net), set(has.allow_net) - set(wants.allow_net)
    found += [RightsChange(True, {"domain": str(rule)}, f"reaches {rule}") for rule in more]
    found += [RightsChange(False, {"domain": str(rule)}, f"no longer reaches {rule}") for rule in less]
    old_env, new_env = dict(has.env), dict(wants.env)
    for name, value in sorted(set(has.env) - set(wants.env)):
        words = "" if name in new_env else f"lost {name} from its environment"
        found.append(RightsChange(False, {"env": {name: value}}, words))
    for name, value in wants.env:
        if old_env.get(name) != value:
            found.append(RightsChange(True, {"env": {name: value}}, f"has {name} in its environment"))
    if (wants.memory_mb or 0) > (has.memory_mb or 0):
        found.append(RightsChange(True, {"memory_mb": wants.memory_mb}, f"may use {wants.memory_mb} MB"))
    return found


def _instead(name: str, old: object, new: object, language: Language) -> str:
    """Return what works instead; only Python sessions can bring their variables along."""
    value = old if new is None else new
    option = name if value == "." else f"{name}={shlex.quote(str(value))}"
    ends = f"%sandbox restart {language} ends it (its variables are lost, files stay), then write this line"
    if new is None:
        return f"%sandbox reset {option} takes back everything else; {ends}"
    if language is not Language.PYTHON:
        return ends
    return f"%sandbox restart --keep {option} begins a new one with its variables (%sandbox restart {language} without)"
