"""When the sessions of a notebook are saved: every few minutes and at an orderly end, while autosave is on.

A state is saved only when a cell has changed it since the last time. Saving waits for a running cell, on a thread of
its own, and pickles in a fork of the session: a cell that comes meanwhile waits for that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from sandbox_kernel.errors import InvalidRequest, SandboxError, SessionError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Language, Note, notes
from sandbox_kernel.notebook.autosave.kept_states import MOST_BYTES, KeptState, KeptStates

#: How often states are saved when nothing else is asked for, and how often at most.
DEFAULT_EVERY_S, LEAST_EVERY_S = 300.0, 1.0
#: How long the last save at the end of a kernel may take: Jupyter kills a kernel that takes longer to end.
_LAST_S = 4.0

Key = tuple[Language, str]


@runtime_checkable
class Saveable(Protocol):
    """A session as autosave sees it."""

    @property
    def present_state(self) -> tuple[str, int]:
        """What changes with every cell that is kept."""

    def save(self, path: str) -> object:
        """Write the state to a file that is complete or not there."""


def notebook_path(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of the notebook that this kernel was started for; None where the server does not say."""
    return environment.get("JPY_SESSION_NAME") or None


class Autosaver:
    """Saves the sessions of one notebook, and knows what the kernel before this one left.

    Args:
        sessions: returns the sessions that hold something, by language and name.
        notebook: the notebook's path; None when it is not known, and then nothing can be saved by itself.

    """

    def __init__(self, sessions: Callable[[], Mapping[Key, object]], notebook: str | None) -> None:
        self._sessions = sessions
        self.kept = None if notebook is None else KeptStates(notebook)
        self.every_s: float | None = None
        self._saved: dict[Key, tuple[str, int]] = {}
        self._stop = threading.Event()
        self._saving = threading.Lock()
        self._troubles: list[Note] = []
        self._offered = False

    def switch_on(self, every_s: float = DEFAULT_EVERY_S) -> str:
        """Save from now on, every so many seconds; returns the path of the notebook."""
        if every_s < LEAST_EVERY_S:
            raise InvalidRequest(f"%sandbox autosave: at most once every {LEAST_EVERY_S:g} s, got {every_s:g} s")
        kept = self._known()
        kept.check()
        self.switch_off()
        self.every_s, self._stop = every_s, threading.Event()
        work = threading.Thread(target=self._watch, args=(every_s, self._stop), name="sandbox-autosave", daemon=True)
        work.start()
        return kept.notebook

    def switch_off(self) -> None:
        """Save no more by itself; what was saved stays."""
        self._stop.set()
        self.every_s = None

    def forget(self) -> None:
        """Save no more, and remove what was saved for this notebook."""
        self.switch_off()
        with self._saving:
            self._saved = {}
            self._known().forget()

    def finish(self) -> None:
        """Save for the last time, if autosave is on: the kernel ends. Takes a few seconds at most."""
        if self.every_s is not None:
            self.switch_off()
            last = threading.Thread(target=self.save, name="sandbox-autosave-last", daemon=True)
            last.start()
            last.join(_LAST_S)

    def save(self) -> None:
        """Save every session that has changed. What goes wrong is told with the next cell."""
        with self._saving:
            for (language, name), session in self._sessions().items():
                if isinstance(session, Saveable):
                    self._save_one((language, name), session)

    def _save_one(self, key: Key, session: Saveable) -> None:
        kept, state = self._known(), session.present_state
        if self._saved.get(key) == state:
            return
        try:
            session.save(kept.place(*key))
            if not kept.tidy():
                raise SessionError(f"the state is larger than the {MOST_BYTES // MIB} MB that autosave keeps")
            self._saved[key] = state
        except (SandboxError, OSError) as error:
            note = notes.not_autosaved(error)
            if note not in self._troubles:
                self._troubles.append(note)

    def left_behind(self) -> tuple[KeptState, ...]:
        """Return what an earlier kernel of this notebook left."""
        return () if self.kept is None else self.kept.left_behind()

    def news(self) -> tuple[Note, ...]:
        """Return what the next reply has to say: once what an earlier kernel left, and what could not be saved."""
        told, self._troubles = self._troubles, []
        if not self._offered:
            self._offered = True
            if left := self.left_behind():
                told = [notes.state_offered(when(left)), *told]
        return tuple(told)

    def _watch(self, every_s: float, stop: threading.Event) -> None:
        while not stop.wait(every_s):
            self.save()

    def _known(self) -> KeptStates:
        if self.kept is None:
            raise InvalidRequest(
                "%sandbox autosave: this kernel was not told which notebook it belongs to (Jupyter servers do, in "
                "JPY_SESSION_NAME), so no later kernel would find the state; use %sandbox save NAME and load NAME"
            )
        return self.kept


def when(states: Sequence[KeptState]) -> str:
    """Return when the youngest of these states was saved, in words."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(max(state.time for state in states)))
