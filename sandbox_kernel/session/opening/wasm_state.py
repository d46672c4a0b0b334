"""Copies the state of a session out of its jail, to save it or to start another session with it."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.limits import quoted
from sandbox_kernel.receipt import one_line
from sandbox_kernel.session.opening.saved_file import MOST_MEMORY, check_elapsed
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES, FolderState, pack_files
from sandbox_kernel.workspace.tree.rooted import Rooted

_SAVE_S = 120.0
_OTHER = "the session's memory is not what its worker said; nothing was saved"


@dataclass(frozen=True)
class State:
    """The state of a session: the memory of its guest, its age, and the files of its work folder."""

    memory: SealedMemory
    elapsed_s: float
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: The work folder of a session of processes, with modes, times, links and empty folders.
    folder: FolderState = field(default_factory=FolderState)
    #: Whether ``memory`` has only the pages that differ from what the guest begins with.
    changes: bool = False
    #: What the worker said of it: which variables are in it.
    report: Mapping[str, object] = field(default_factory=dict)


def take_state(worker: JailedWorker) -> State:
    """Make the worker write its memory into the work folder, and copy it and the other files from there.

    The copy is sealed memory of the host: the worker, which must be between two cells, cannot change it afterwards.
    """
    jail, name = worker.jail, f".image-{secrets.token_hex(8)}"
    answer = worker.ask("image", f"{jail.places.work}/{name}", 0, _SAVE_S).answer
    size, elapsed = _told(answer)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=jail.box_fd)
    except OSError as error:
        raise SessionError(f"the session's memory could not be taken out: {error.strerror}") from None
    try:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=jail.box_fd)
        if os.fstat(descriptor).st_size != size:
            raise SessionError(_OTHER)
        memory = SealedMemory.of_file(descriptor, 0, size)
    except (OSError, EOFError) as error:
        raise SessionError(f"the session's memory could not be taken out: {error}") from None
    finally:
        os.close(descriptor)
    report = answer.get("report")
    return State(memory, elapsed, files_of(jail), report=report if isinstance(report, dict) else {})


def take_changes(worker: JailedWorker) -> State:
    """Make the worker write the changed pages of its memory into memory of the host, and copy its files.

    They are enough for a guest that begins with the same memory. Where the worker does not know them this is
    ``take_state``.
    """
    answer: Mapping[str, object] = {}

    def write(descriptor: int) -> None:
        nonlocal answer
        answer = worker.ask("changes", "", 0, _SAVE_S, descriptor).answer

    try:
        memory = SealedMemory.filled(write)
    except OSError as error:
        raise SessionError(f"the session's memory could not be taken out: {error.strerror}") from None
    if not answer:
        return take_state(worker)
    size, elapsed = _told(answer)
    if len(memory) != size or answer.get("changes") is not True:
        raise SessionError(_OTHER)
    return State(memory, elapsed, files_of(worker.jail), changes=True)


def _told(answer: Mapping[str, object]) -> tuple[int, float]:
    """Return the size of what was written, and the session's age; raises ``SessionError`` when nothing was."""
    size, opened = answer.get("size"), answer.get("open_files")
    if isinstance(opened, list) and opened:
        names = ", ".join(quoted(name) for name in opened[:5])
        raise SessionError(f"files are open, which are no part of the session's memory: {names}; close them first")
    try:
        elapsed = check_elapsed(answer.get("elapsed_s"))
    except ValueError:
        size, elapsed = None, 0.0
    if not isinstance(size, int) or not 0 < size <= MOST_MEMORY:
        what_to_do = (
            "delete variables that are not needed, or open the session with more memory"
            if answer.get("full") is False
            else "make room in the work folder, or open the session with a larger disk_mb"
        )
        why = one_line(str(answer.get("problem") or "the worker did not say why"), 300)
        raise SessionError(f"the session's memory could not be written: {why}; {what_to_do}")
    return size, elapsed


def files_of(jail: Jail) -> dict[str, bytes]:
    """Return the files of the work folder; raises ``SessionError`` when they are too many or too large."""
    with Rooted(os.dup(jail.box_fd)) as box:
        return dict(pack_files(box, MAX_PACKED_BYTES, MAX_PACKED_FILES).items())
