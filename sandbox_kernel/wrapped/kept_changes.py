"""``ChangesPlace``: where the changes of a wrapped kernel to the user's folder stay until they are applied or dropped.

One private folder of the host for each folder of the user, notebook and set of rights. One process at a time has it:
the launcher of a kernel, or ``sandbox-kernel changes`` when the kernel has ended. A second kernel of the same
notebook gets a place of its own. Places with nothing in them are removed when they are closed, and the oldest ones
beyond a limit.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from sandbox_kernel.box.project import here_folder
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, NotAsShown, SandboxError
from sandbox_kernel.ground.own_folder import make_own_folder, state_root
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.here.applying.selection import select
from sandbox_kernel.workspace.here.here_folder import HereFolder
from sandbox_kernel.workspace.here.showing.patch import MOST_PATCH
from sandbox_kernel.workspace.kept_work import LOCK, remove_oldest

#: Kernels of one notebook that can have changes at the same time.
MOST_AT_ONCE = 16
_ABOUT, _CHANGES, _SOCKET, _SHOWN = "about.json", "changes", "asked", "shown"
_MOST_ABOUT = 64 << 10


@dataclass(frozen=True)
class PlaceFacts:
    """What the changes belong to: the real path of the user's folder, the notebook if it is known, the program."""

    folder: str
    notebook: str
    program: str


class ChangesPlace:
    """One place that this process has; made by ``claim`` or ``take``."""

    def __init__(self, path: str, facts: PlaceFacts, lock_fd: int) -> None:
        self.path = path
        self.facts = facts
        self._lock_fd = lock_fd

    @property
    def changes(self) -> str:
        """The folder of the ``ChangeLog``."""
        return os.path.join(self.path, _CHANGES)

    def close(self, *, empty: bool) -> None:
        """Let another process have the place; an empty one is removed. May be called twice."""
        if self._lock_fd < 0:
            return
        if empty:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_fd)
        self._lock_fd = -1


@dataclass(frozen=True)
class FoundPlace:
    """A place on disk, whoever has it."""

    path: str
    facts: PlaceFacts

    @property
    def name(self) -> str:
        """A short name of the place, the same for good."""
        return os.path.basename(self.path)

    @property
    def socket(self) -> str:
        """Where the launcher that has the place can be asked."""
        return os.path.join(self.path, _SOCKET)

    @property
    def shown(self) -> str:
        """The digest of the changes of which the user was shown the diff; empty for none."""
        with contextlib.suppress(OSError), open(os.path.join(self.path, _SHOWN), encoding="utf-8") as file:
            return file.read(_MOST_ABOUT)
        return ""

    def note_shown(self, digest: str) -> None:
        """Write down what the user knows, for the command that applies it."""
        place = os.path.join(self.path, _SHOWN)
        with contextlib.suppress(FileNotFoundError), open(place, "w", encoding="utf-8", opener=_private) as file:
            file.write(digest)

    def take(self) -> ChangesPlace | None:
        """Take the place for this process; None while another one has it, or when it is gone."""
        lock_fd = _lock(self.path, make=False)
        return None if lock_fd is None else ChangesPlace(self.path, self.facts, lock_fd)


def claim(facts: PlaceFacts, rights: Sequence[str]) -> ChangesPlace:
    """Return the place of a kernel; the changes of an earlier one with the same facts and rights are in it.

    Args:
        facts: The folder, the notebook, the program.
        rights: What the kernel may touch beside the folder: changes made under other rights have another place.

    Raises:
        BackendUnavailable: there can be no folder that only this user can change.

    """
    words = "\0".join((facts.folder, facts.notebook, *rights))
    name = hashlib.sha256(os.fsencode(words)).hexdigest()[:10]
    try:
        for number in range(1, MOST_AT_ONCE + 1):
            path = os.path.join(_root(), name if number == 1 else f"{name}-{number}")
            make_own_folder(path)
            lock_fd = _lock(path, make=True)
            if lock_fd is None:
                continue
            with open(os.path.join(path, _ABOUT), "w", encoding="utf-8", opener=_private) as file:
                json.dump(asdict(facts), file)
            os.utime(path)
            with contextlib.suppress(OSError, SandboxError):
                remove_oldest(_root(), keep=path)
            return ChangesPlace(path, facts, lock_fd)
    except OSError as error:
        raise BackendUnavailable(
            f"changes to {facts.folder!r} cannot be kept below {_root()!r}: {error}; see to that folder, or wrap the "
            "kernel without --here"
        ) from None
    raise BackendUnavailable(
        f"{MOST_AT_ONCE} kernels work on {facts.folder!r} already; end one of them, or wrap the kernel without --here"
    )


def found_places() -> Iterator[FoundPlace]:
    """Yield every place of this user, the newest first."""
    try:
        with os.scandir(_root()) as scan:
            known = sorted(scan, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns, reverse=True)
    except OSError:
        return
    for entry in known:
        with contextlib.suppress(OSError, ValueError, TypeError), open(os.path.join(entry.path, _ABOUT), "rb") as file:
            yield FoundPlace(entry.path, PlaceFacts(**json.loads(file.read(_MOST_ABOUT))))


def _root() -> str:
    return os.path.join(state_root(), "sandbox-kernel", "wrapped")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _lock(path: str, *, make: bool) -> int | None:
    """Return a descriptor of the locked place; None when another process has it, or it was removed meanwhile."""
    file = os.path.join(path, LOCK)
    try:
        fd = os.open(file, os.O_RDWR | (os.O_CREAT if make else 0) | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(file)):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


# What a user asks of the changes of wrapped kernels, and who answers: the kernel's launcher while it lives, else we.
#
# The launcher listens on a unix socket in the place of the changes, which only its user can enter. A question and an
# answer are one line of JSON each.

#: The longest question and answer, in bytes; and how long a user's command may take to write or read one, in seconds.
_MOST_ASKED, _MOST_ANSWER = 1 << 20, 256 << 20
_PATIENCE_S = 10.0
#: Between two attempts to reach a launcher that is starting or ending, in seconds.
_AGAIN_S = 0.05
#: How long a launcher may take to answer: it may have to write many files.
_ANSWER_S = 300.0


class Wish(StrEnum):
    """What is asked: to list the changes, show them as a patch, write them to the folder, or drop them.

    ``KNOWN`` lists those that were found by the last look; to list and to show them takes a new look.
    """

    KNOWN = "known"
    LIST = "list"
    PATCH = "patch"
    APPLY = "apply"
    DISCARD = "discard"


@dataclass(frozen=True)
class ChangesAsked:
    """A question; ``paths`` are files, folders or patterns, none for all.

    ``shown`` is the digest of the answer that the user has looked at: another state is not applied. Empty for none.
    """

    wish: Wish
    paths: tuple[str, ...] = ()
    shown: str = ""


@dataclass(frozen=True)
class ChangesAnswer:
    """The changes that were listed, written or dropped; the patch; what ``apply`` writes only by name; or an error.

    ``digest`` is that of the state which the user knows by this answer; empty when the user does not know all of it.
    ``stale``: nothing was applied, because it is not what the user was shown.
    """

    changes: tuple[FsChange, ...] = ()
    patch: str = ""
    left_out: tuple[str, ...] = ()
    error: str = ""
    digest: str = ""
    stale: bool = False


def answer(folder: HereFolder, asked: ChangesAsked) -> ChangesAnswer:
    """Answer a question about the changes to a folder. Raises ``SandboxError``."""
    paths = asked.paths or None
    digest = folder.digest()
    if asked.wish is Wish.PATCH:
        patch = folder.patch(paths)
        # One that is cut is longer than half: the part that did not fit is small.
        whole = paths is None and len(patch) < MOST_PATCH // 2
        return ChangesAnswer(patch=patch, digest=digest if whole else "")
    if asked.wish is Wish.DISCARD:
        dropped = folder.discard(paths)
        return ChangesAnswer(dropped, digest=folder.digest() if asked.shown == digest else "")
    if asked.wish is Wish.APPLY:
        written = folder.apply(paths, shown=asked.shown or None)
        return ChangesAnswer(written, left_out=folder.left_out(), digest=folder.digest() if asked.shown else "")
    listed = folder.diff()
    if paths is not None:
        chosen = select(folder.kept.entries, paths)
        listed = tuple(change for change in listed if change.path in chosen)
    return ChangesAnswer(listed, left_out=folder.left_out(), digest=digest)


def ask(place: FoundPlace, asked: ChangesAsked) -> ChangesAnswer:
    """Ask about the changes in a place, of a kernel that lives or has ended. Raises ``SandboxError``."""
    until = time.monotonic() + _PATIENCE_S
    while (own := place.take()) is None:
        try:
            said = _ask_launcher(place, asked)
        except ConnectionError as error:
            # It is starting or ending; soon it answers, or the place is free.
            if time.monotonic() > until:
                raise _no_answer(place, error) from None
            time.sleep(_AGAIN_S)
            continue
        if said.stale:
            raise NotAsShown
        if said.error:
            raise InvalidRequest(said.error)
        return said
    if not os.path.isdir(place.facts.folder):
        if asked.wish is not Wish.DISCARD or asked.paths:
            own.close(empty=False)
            raise InvalidRequest(
                f"{place.facts.folder!r} is not there any more; all its changes can be dropped: --discard"
            )
        own.close(empty=True)
        return ChangesAnswer()
    with contextlib.closing(here_folder(place.facts.folder, own.changes)) as folder:
        try:
            return answer(folder, asked)
        finally:
            own.close(empty=not folder.diff())


def _ask_launcher(place: FoundPlace, asked: ChangesAsked) -> ChangesAnswer:
    """Ask over the socket. Raises ``ConnectionError`` when nobody listens there."""
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(_ANSWER_S)
            _connect(sock, place)
            sock.sendall(json.dumps(asdict(asked)).encode() + b"\n")
            told = json.loads(_line(sock, _MOST_ANSWER))
            changes = tuple(FsChange(**change) for change in told.pop("changes"))
            return ChangesAnswer(
                changes, told["patch"], tuple(told["left_out"]), told["error"], told["digest"], told["stale"]
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ConnectionError):
            raise
        raise _no_answer(place, error) from None


def _connect(sock: socket.socket, place: FoundPlace) -> None:
    try:
        with _entered(os.path.dirname(place.socket)) as folder:
            sock.connect(f"{folder}/{os.path.basename(place.socket)}")
    except FileNotFoundError as error:
        raise ConnectionRefusedError(error.errno, error.strerror) from None


def _no_answer(place: FoundPlace, error: Exception) -> BackendUnavailable:
    return BackendUnavailable(
        f"the kernel that works on {place.facts.folder!r} does not answer: {error}; end it, then ask again"
    )


class AskedServer:
    """Answers questions in a thread of the launcher until it is closed."""

    def __init__(self, place: ChangesPlace, respond: Callable[[ChangesAsked], ChangesAnswer]) -> None:
        self._respond = respond
        self._socket = socket.socket(socket.AF_UNIX)
        where = FoundPlace(place.path, place.facts).socket
        with contextlib.suppress(FileNotFoundError):
            os.unlink(where)  # of a launcher that was killed
        with _entered(os.path.dirname(where)) as folder:
            self._socket.bind(f"{folder}/{os.path.basename(where)}")
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
                asking.sendall(json.dumps(asdict(self._answer(asking))).encode() + b"\n")

    def _answer(self, asking: socket.socket) -> ChangesAnswer:
        try:
            told = json.loads(_line(asking, _MOST_ASKED))
            return self._respond(ChangesAsked(Wish(told["wish"]), tuple(map(str, told["paths"])), str(told["shown"])))
        except NotAsShown:
            return ChangesAnswer(stale=True)
        except (SandboxError, OSError) as error:
            return ChangesAnswer(error=str(error))
        except (ValueError, KeyError, TypeError):
            return ChangesAnswer(error="the question could not be read; is the launcher of another version?")


def _line(sock: socket.socket, most: int) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = sock.recv(1 << 16)
        if not piece or len(data) > most:
            raise ValueError("the other end closed")
        data += piece
    return bytes(data)


@contextlib.contextmanager
def _entered(folder: str) -> Iterator[str]:
    """Yield a short path of a folder: that of a socket may not be longer than about a hundred bytes."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
