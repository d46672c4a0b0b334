"""What a user asks of the changes of wrapped kernels, and who answers: the kernel's launcher while it lives, else we.

The launcher listens on a unix socket in the place of the changes, which only its user can enter. A question and an
answer are one line of JSON each.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

from sandbox_kernel.box.project import here_folder
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, NotAsShown, SandboxError
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.here.here_folder import HereFolder
from sandbox_kernel.workspace.here.patch import MOST_PATCH
from sandbox_kernel.workspace.here.selection import select
from sandbox_kernel.wrapped.here.place import ChangesPlace, FoundPlace

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
