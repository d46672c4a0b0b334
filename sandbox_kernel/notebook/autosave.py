"""Saves the sessions of a notebook by themselves, and offers the last state to the next kernel of that notebook.

Saving waits for a running cell, on a thread of its own, and pickles in a fork of the session.

    CACHE/autosave/NOTEBOOK/last/LANGUAGE-NAME       what the kernel saved that saved last
    CACHE/autosave/NOTEBOOK/earlier/LANGUAGE-NAME    what the kernel before that one left
    CACHE/autosave/NOTEBOOK/lock                     locked by the kernel that saves (``LockedFolder``)

``NOTEBOOK`` is a hash of the notebook's path. Each file is complete or not there, and is data of a sandbox: only a jail
makes variables of it (``session/saved_file.py``). The first save of a kernel puts what an earlier kernel left
aside, so a new kernel that saves an empty session destroys nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sandbox_kernel.errors import InvalidRequest, SandboxError, SessionError
from sandbox_kernel.model import Language, Note, notes
from sandbox_kernel.util.own_folder import MOST_BYTES, LockedFolder, cache_root, held_in, remove_oldest

_LAST, _EARLIER = "last", "earlier"
#: The end of the name of a file that is being written (``session/saved_file.py``).
_HALF = re.compile(r"\.[0-9a-f]{16}\.part\Z")
#: How often states are saved when nothing else is asked for, and how often at most.
DEFAULT_EVERY_S, LEAST_EVERY_S = 300.0, 1.0
#: How long the last save at the end of a kernel may take: Jupyter kills a kernel that takes longer to end.
_LAST_S = 4.0

Key = tuple[Language, str]


def notebook_path(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of the notebook that this kernel was started for; None where the server does not say."""
    return environment.get("JPY_SESSION_NAME") or None


class KeptState(NamedTuple):
    """One saved session: its file and name, when it was saved (seconds since the epoch)."""

    path: str
    name: str
    time: float


class Autosaver:
    """Saves what ``sessions`` returns for one notebook, and knows what the kernel before this one left."""

    def __init__(
        self, sessions: Callable[[], Mapping[Key, Any]], notebook: str | None, folder: str | None = None
    ) -> None:
        self._sessions, self._notebook = sessions, notebook
        chosen = os.environ.get("SANDBOX_KERNEL_CACHE")
        root = os.path.abspath(os.path.expanduser(chosen)) if chosen else os.path.join(cache_root(), "sandbox-kernel")
        name = hashlib.sha256(os.path.abspath(notebook or "/").encode()).hexdigest()[:32]
        self._own = os.path.join(folder or os.path.join(root, "autosave"), name)
        self._lock = threading.Lock()
        self._has_saved = False
        self._claim: LockedFolder | None = None
        self.every_s: float | None = None
        self._saved: dict[Key, object] = {}
        self._stop = threading.Event()
        self._saving = threading.Lock()
        self._troubles: dict[Note, None] = {}
        self._offered = False

    def check(self) -> LockedFolder:
        """Claim the folder: two kernels would replace each other's states. Raises ``SessionError`` when that fails."""
        if self._notebook is None:
            raise InvalidRequest(
                "%sandbox autosave: this kernel was not told which notebook it belongs to (Jupyter servers do, in "
                "JPY_SESSION_NAME), so no later kernel would find the state; use %sandbox save NAME and load NAME"
            )
        with self._lock:
            try:
                if self._claim is None or not os.path.isdir(self._own):
                    self.close()
                    self._claim = LockedFolder.claim(self._own)
            except OSError as error:
                raise SessionError(
                    f"autosave cannot keep states in {self._own!r}: {error}; name a folder of your own in the "
                    "environment variable SANDBOX_KERNEL_CACHE, or use %sandbox save NAME"
                ) from None
            if self._claim is None:
                raise SessionError(
                    "another kernel of this notebook saves its sessions already, and one would replace what the other "
                    "saved; end that kernel, or use %sandbox save NAME"
                )
            return self._claim

    def close(self) -> None:
        """Let another kernel save for this notebook."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def place(self, language: Language, name: str) -> str:
        """Return the path to save a session to. The first call puts aside what an earlier kernel left."""
        self.check()
        last = os.path.join(self._own, _LAST)
        with self._lock:
            if not self._has_saved:
                # What is in ``earlier`` stays as long as there is nothing newer: a save may fail, on a full disk.
                if self._states(_LAST):
                    earlier = os.path.join(self._own, _EARLIER)
                    shutil.rmtree(earlier, ignore_errors=True)
                    os.rename(last, earlier)
                self._has_saved = True
            os.makedirs(last, 0o700, exist_ok=True)
            os.utime(self._own)
        # The states of notebooks that have saved nothing for longest go first.
        remove_oldest(os.path.dirname(self._own), keep=self._own)
        return os.path.join(last, f"{language}-{name}" if name else str(language))

    def left_behind(self) -> tuple[KeptState, ...]:
        """Return the states that an earlier kernel of this notebook left, by language and name."""
        if self._notebook is None:
            return ()
        return self._states(_EARLIER) if self._has_saved else self._states(_LAST) or self._states(_EARLIER)

    def _states(self, which: str) -> tuple[KeptState, ...]:
        found: list[KeptState] = []
        with contextlib.suppress(OSError):
            for entry in sorted(os.scandir(os.path.join(self._own, which)), key=lambda entry: entry.name):
                language, _, name = entry.name.partition("-")
                if language in set(Language) and not _HALF.search(entry.name) and entry.is_file():
                    found.append(KeptState(entry.path, name, entry.stat().st_mtime))
        return tuple(found)

    def switch_on(self, every_s: float = DEFAULT_EVERY_S) -> str:
        """Save from now on, every so many seconds; returns the path of the notebook."""
        if every_s < LEAST_EVERY_S:
            raise InvalidRequest(f"%sandbox autosave: at most once every {LEAST_EVERY_S:g} s, got {every_s:g} s")
        self.check()
        self.switch_off()
        stop = threading.Event()
        self.every_s, self._stop = every_s, stop

        def watch() -> None:
            while not stop.wait(every_s):
                self.save()

        threading.Thread(target=watch, name="sandbox-autosave", daemon=True).start()
        return self._notebook or ""

    def switch_off(self) -> None:
        """Save no more by itself; what was saved stays."""
        self._stop.set()
        self.every_s = None

    def forget(self) -> None:
        """Save no more, and remove what was saved for this notebook."""
        self.switch_off()
        with self._saving:
            self._saved = {}
            self.check().remove()
            with self._lock:
                self._has_saved, self._claim = False, None

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
                key, state = (language, name), getattr(session, "present_state", None)
                if not hasattr(session, "save") or self._saved.get(key) == state:
                    continue
                try:
                    place = self.place(language, name)
                    session.save(place)
                    if held_in(os.path.dirname(place)) > MOST_BYTES:
                        os.unlink(place)
                        raise SessionError(f"the states are larger than the {MOST_BYTES >> 20} MB that autosave keeps")
                    self._saved[key] = state
                except (SandboxError, OSError) as error:
                    self._troubles[notes.not_autosaved(error)] = None

    def news(self) -> tuple[Note, ...]:
        """Return what the next reply has to say: once what an earlier kernel left, and what could not be saved."""
        told, self._troubles = tuple(self._troubles), {}
        left = () if self._offered else self.left_behind()
        self._offered = True
        return (notes.state_offered(when(left)), *told) if left else told


def when(states: Sequence[KeptState]) -> str:
    """Return when the youngest of these states was saved, in words."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(max(state.time for state in states)))
