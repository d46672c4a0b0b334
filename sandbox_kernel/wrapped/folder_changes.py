"""``ChangesPlace``: where the changes of a wrapped kernel to the user's folder stay until they are applied or dropped.

One private folder for each folder of the user, notebook and set of rights. One process at a time has it: the launcher
of a kernel, or ``sandbox-kernel changes`` afterwards; a second kernel of the notebook has its own. Empty places are
removed when they are closed, and the oldest ones beyond a limit.

``ask`` asks the launcher while the kernel lives, over a unix socket in the place; else it answers itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from sandbox_kernel.box.files import here_folder
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, NotAsShown, SandboxError
from sandbox_kernel.jail.enforcer import start_jail
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.template import NoLayer, Templates
from sandbox_kernel.jail.walls import Walls
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.util.own_folder import LockedFolder, remove_oldest
from sandbox_kernel.util.wire import Frames, check, decode, frame
from sandbox_kernel.workspace.changes import displayed
from sandbox_kernel.workspace.folder_link import FolderLink
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.patch import MOST_PATCH
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.workspace.overlay.selection import select
from sandbox_kernel.workspace.overlay.session_layer import SessionLayer
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.wrapped.wrap_options import WrapOptions

#: Kernels of one notebook that can have changes at the same time.
MOST_AT_ONCE = 16
_ABOUT, _CHANGES, _SOCKET, _SHOWN = "about.json", "changes", "asked", "shown"
_MOST_ABOUT = 64 << 10
_T = TypeVar("_T")


@dataclass(frozen=True)
class PlaceFacts:
    """What the changes belong to: the real path of the user's folder, the notebook if it is known, the program."""

    folder: str
    notebook: str
    program: str


class ChangesPlace:
    """One place on disk. A process that has its lock has the place: from ``claim`` or ``take`` until ``close``."""

    def __init__(self, path: str, facts: PlaceFacts, held: LockedFolder | None = None) -> None:
        self.path = path
        self.facts = facts
        #: A short name of the place, the same for good.
        self.name = os.path.basename(path)
        #: The folder of the ``ChangeLog``.
        self.changes = os.path.join(path, _CHANGES)
        self._held = held

    @property
    def shown(self) -> str:
        """The digest of the changes of which the user was shown the diff; empty for none."""
        with contextlib.suppress(OSError):
            return Path(self.path, _SHOWN).read_text(encoding="utf-8")[:_MOST_ABOUT]
        return ""

    def note_shown(self, digest: str) -> None:
        """Write down what the user knows, for the command that applies it."""
        with contextlib.suppress(FileNotFoundError):
            _write(os.path.join(self.path, _SHOWN), digest)

    def take(self) -> bool:
        """Take the place for this process; False while another one has it, or when it is gone."""
        self._held = LockedFolder.take(self.path)
        return self._held is not None

    def close(self, *, empty: bool) -> None:
        """Let another process have the place; an empty one is removed. May be called twice."""
        held, self._held = self._held, None
        if held is not None:
            (held.remove if empty else held.close)()

    @contextlib.contextmanager
    def socket(self) -> Iterator[str]:
        """Yield where the launcher that has the place can be asked: a path of less than a hundred bytes."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{fd}/{_SOCKET}"
        finally:
            os.close(fd)


def claim(facts: PlaceFacts, rights: Sequence[str]) -> ChangesPlace:
    """Return the place of a kernel with these facts and rights. Raises ``BackendUnavailable`` where none is private."""
    words = "\0".join((facts.folder, facts.notebook, *rights))
    name = hashlib.sha256(os.fsencode(words)).hexdigest()[:10]
    try:
        for number in range(1, MOST_AT_ONCE + 1):
            path = os.path.join(_root(), name if number == 1 else f"{name}-{number}")
            held = LockedFolder.claim(path)
            if held is None:
                continue
            _write(os.path.join(path, _ABOUT), json.dumps(asdict(facts)))
            os.utime(path)
            remove_oldest(_root(), keep=path)
            return ChangesPlace(path, facts, held)
    except OSError as error:
        raise BackendUnavailable(
            f"changes to {facts.folder!r} cannot be kept below {_root()!r}: {error}; see to that folder, or wrap the "
            "kernel without --here"
        ) from None
    raise BackendUnavailable(
        f"{MOST_AT_ONCE} kernels work on {facts.folder!r} already; end one of them, or wrap the kernel without --here"
    )


def found_places() -> Iterator[ChangesPlace]:
    """Yield every place of this user, the newest first."""
    try:
        with os.scandir(_root()) as scan:
            known = sorted(scan, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns, reverse=True)
    except OSError:
        return
    for entry in known:
        with contextlib.suppress(OSError, ValueError, TypeError), open(os.path.join(entry.path, _ABOUT), "rb") as file:
            yield ChangesPlace(entry.path, decode(file.read(_MOST_ABOUT), PlaceFacts))


def _root() -> str:
    return LockedFolder.root("wrapped")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)


#: The longest question and answer, in bytes; and how long a user's command may take to write or read one, in seconds.
_MOST_ASKED, _MOST_ANSWER = 1 << 20, 256 << 20
_PATIENCE_S = 10.0
#: Between two attempts to reach a launcher that is starting or ending, in seconds.
_AGAIN_S = 0.05
#: How long a launcher may take to answer: it may have to write many files.
_ANSWER_S = 300.0


class Wish(StrEnum):
    """List changes (``KNOWN``: as the last look found them), show them as a patch, write them or drop them."""

    KNOWN = "known"
    LIST = "list"
    PATCH = "patch"
    APPLY = "apply"
    DISCARD = "discard"


@dataclass(frozen=True)
class ChangesAsked:
    """A question; no ``paths`` are all. ``shown`` is the digest of what the user has seen: nothing else is applied."""

    wish: Wish
    paths: tuple[str, ...] = ()
    shown: str = ""


@dataclass(frozen=True)
class ChangesAnswer:
    """The changes that were listed, written or dropped; the patch; what needs naming, and why; or an error.

    ``digest``: of the state, if the user knows all of it by now. ``stale``: it is not what the user was shown.
    """

    changes: tuple[FsChange, ...] = ()
    patch: str = ""
    left_out: tuple[str, ...] = ()
    why: str = ""
    error: str = ""
    digest: str = ""
    stale: bool = False


def answer(folder: HereFolder, asked: ChangesAsked) -> ChangesAnswer:
    """Answer a question about the changes to a folder. Raises ``SandboxError``."""
    paths, digest = asked.paths or None, folder.digest()
    match asked.wish:
        case Wish.PATCH:
            patch = folder.patch(paths)
            # One that is cut is longer than half: the part that did not fit is small.
            whole = paths is None and len(patch) < MOST_PATCH // 2
            return ChangesAnswer(patch=patch, digest=digest if whole else "")
        case Wish.DISCARD:
            dropped = folder.discard(paths)
            return ChangesAnswer(dropped, digest=folder.digest() if asked.shown == digest else "")
        case Wish.APPLY:
            written = folder.apply(paths, shown=asked.shown or None)
            shown = folder.digest() if asked.shown else ""
            return ChangesAnswer(written, left_out=folder.left_out(), why=folder.why_left_out(), digest=shown)
    listed = folder.diff()
    if paths is not None:
        chosen = select(folder.kept.entries, paths)
        listed = tuple(change for change in listed if change.path in chosen)
    return ChangesAnswer(listed, left_out=folder.left_out(), why=folder.why_left_out(), digest=digest)


def ask(place: ChangesPlace, asked: ChangesAsked) -> ChangesAnswer:
    """Ask about the changes in a place, of a kernel that lives or has ended. Raises ``SandboxError``."""
    until = time.monotonic() + _PATIENCE_S
    while not place.take():
        try:
            with socket.socket(socket.AF_UNIX) as sock, place.socket() as path:
                sock.settimeout(_ANSWER_S)
                sock.connect(path)
                _send(sock, asked)
                said = _receive(sock, ChangesAnswer, _MOST_ANSWER)
        except (OSError, ValueError) as error:
            # One that is starting or ending does not listen: soon it answers, or the place is free.
            if not isinstance(error, ConnectionError | FileNotFoundError) or time.monotonic() > until:
                raise BackendUnavailable(
                    f"the kernel that works on {place.facts.folder!r} does not answer: {error}; end it, then ask again"
                ) from None
            time.sleep(_AGAIN_S)
            continue
        if said.stale:
            raise NotAsShown
        if said.error:
            raise InvalidRequest(said.error)
        return said
    if not os.path.isdir(place.facts.folder):
        drops_all = asked.wish is Wish.DISCARD and not asked.paths
        place.close(empty=drops_all)
        if drops_all:
            return ChangesAnswer()
        raise InvalidRequest(f"{place.facts.folder!r} is not there any more; all its changes can be dropped: --discard")
    with contextlib.closing(here_folder(place.facts.folder, place.changes)) as folder:
        try:
            return answer(folder, asked)
        finally:
            place.close(empty=not folder.diff())


class AskedServer:
    """Answers questions in a thread of the launcher until it is closed."""

    def __init__(self, place: ChangesPlace, respond: Callable[[ChangesAsked], ChangesAnswer]) -> None:
        self._respond = respond
        self._socket = socket.socket(socket.AF_UNIX)
        with place.socket() as path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # of a launcher that was killed
            self._socket.bind(path)
        self._socket.listen(4)
        threading.Thread(target=self._serve, name="sandbox-kernel-asked", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                asking, _ = self._socket.accept()
            except OSError:
                return
            with asking, contextlib.suppress(OSError):
                asking.settimeout(_PATIENCE_S)
                try:
                    said = self._respond(_receive(asking, ChangesAsked, _MOST_ASKED))
                except NotAsShown:
                    said = ChangesAnswer(stale=True)
                except (SandboxError, OSError) as error:
                    said = ChangesAnswer(error=str(error))
                except ValueError:
                    said = ChangesAnswer(error="the question could not be read; is the launcher of another version?")
                _send(asking, said)


def _send(sock: socket.socket, message: ChangesAsked | ChangesAnswer) -> None:
    sock.sendall(frame(json.dumps(asdict(message)).encode()))


def _receive(sock: socket.socket, kind: type[_T], most: int) -> _T:
    """Return one message. Raises ``ValueError`` or ``OSError``. Both ends are of one user, so parts are not counted."""
    frames = Frames(most)
    while data := sock.recv(1 << 16):
        for message in frames.feed(data):
            return check(json.loads(message), kind)
    raise ConnectionResetError("the other end closed")


#: Set by Jupyter's server: the path of the notebook whose kernel this is.
_NOTEBOOK = "JPY_SESSION_NAME"


class KernelFolder:
    """The user's folder of one wrapped kernel, copy-on-write, while the kernel lives. A lock keeps threads apart.

    Changes are kept when a cell is over: a kernel that a limit ends in a cell leaves nothing of that cell.
    """

    def __init__(self, options: WrapOptions, environment: Mapping[str, str] = os.environ) -> None:
        try:
            started = os.getcwd()
        except OSError:
            raise InvalidRequest("the folder where the kernel starts was removed; open the notebook anew") from None
        project = ProjectFolder(os.path.normpath(os.path.join(started, options.here))).path
        facts = PlaceFacts(project, environment.get(_NOTEBOOK, ""), os.path.basename(options.command[0]))
        given = options.settings()
        #: Where its changes stay.
        self.place = claim(facts, (options.policy, *given.get("mounts", ()), *given.get("domains", ())))
        self._folder: HereFolder = here_folder(project, self.place.changes)
        self._link = FolderLink(self._folder)
        self._lock = threading.RLock()
        self._jail: Jail | None = None
        self._layer: SessionLayer | None = None
        #: What was changed between two cells: the next cell's reply tells it.
        self._early: tuple[tuple[FsChange, ...], list[Note]] = (), []
        #: What the first cell says.
        self._unsaid = [notes.wrapped_changes_found(self._folder.found)] if self._folder.found else []
        inside = os.path.realpath(started)
        #: Where the kernel is started, as a path in the folder; empty when that is outside of it.
        self.below = os.path.relpath(inside, project) if inside.startswith(f"{project}/") else ""

    def start_jail(self, walls: Walls) -> Jail:
        """Start the jail of the kernel with the folder in it."""
        try:
            if walls.enforcer != bubblewrap.NAME:
                raise NoLayer("only bubblewrap's walls have file systems of their own")
            here = replace(walls, here=self._folder.path, here_id=self._folder.project.identity())
            jail = Templates().fork_over(here)
        except NoLayer as error:
            self._unsaid.append(notes.folder_copied(str(error)))
            jail = start_jail(walls).wait_ready()
        try:
            if jail.layer_fd >= 0:
                self._layer = SessionLayer(self._folder, jail.box_fd, jail.layer_fd, jail.settings_fd)
            with Rooted(jail.box_fd) as box:
                self._unsaid += self._link.begin_over(self._layer, box)
                self._link.bring_in(box, lambda: None)
            self._link.tracker.settle()
        except BaseException:
            jail.destroy()
            raise
        self._jail = jail
        return jail

    def before_cell(self) -> tuple[Note, ...]:
        """Bring in what the user applied or dropped since the last cell, and hide new secrets. Returns what to say."""
        with self._lock:
            said, self._unsaid = tuple(self._unsaid), []
            if self._jail is None:
                return said
            with Rooted(self._jail.box_fd) as box:
                written, _ = self._link.bring_in(box, self._keep_early)
                if written:
                    self._link.tracker.settle(written)
            return said

    def _keep_early(self) -> None:
        """Keep what programs have changed between two cells, before the host writes into their folder."""
        self._early = self.after_cell()

    def after_cell(self) -> tuple[tuple[FsChange, ...], list[Note]]:
        """Keep what changed since the last cell; returns it, and notes. Raises ``SandboxError`` or ``OSError``."""
        with self._lock:
            if self._jail is None:
                return (), []
            (early, missing), self._early = self._early, ((), [])
            seen = self._link.tracker.changes()
            missing += [*self._link.keep_changes(seen), *self._folder.project.git_notes(seen.changes)]
            return displayed(seen.changes, early), missing

    def leave(self, *, keep: bool) -> None:
        """The kernel has ended and its jail is about to: keep what changed since the last cell, or not."""
        with self._lock:
            if keep:
                self.after_cell()
            self._jail = None

    def close(self) -> None:
        """Let others have the place; removed when there is no change. May be called twice."""
        with self._lock:
            empty = not self._folder.diff()
            self._folder.close()
            self.place.close(empty=empty)

    def answer(self, asked: ChangesAsked) -> ChangesAnswer:
        """Answer the user. A new look is taken only to show: what the kernel changes meanwhile is not applied."""
        with self._lock:
            if asked.wish in (Wish.LIST, Wish.PATCH):
                self.after_cell()
            said = answer(self._folder, asked)
            self._unsaid += self.before_cell()
            return said
