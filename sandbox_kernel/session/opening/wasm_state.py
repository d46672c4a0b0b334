"""Copies the state of a session out of its jail, to save it or to start another session with it."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.streams.sealed_memory import SealedMemory
from sandbox_kernel.session.opening.saved_file import MOST_MEMORY, check_elapsed
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES, pack_files
from sandbox_kernel.workspace.tree.rooted import Rooted

_SAVE_S = 120.0


@dataclass(frozen=True)
class State:
    """The state of a session: the memory of its guest, its age, and the files of its work folder."""

    memory: SealedMemory
    elapsed_s: float
    files: Mapping[str, bytes]
    #: Whether ``memory`` has only the pages that differ from what the guest begins with.
    changes: bool = False
    #: What the worker said of it: which variables are in it.
    report: Mapping[str, object] = field(default_factory=dict)


def take_state(worker: JailedWorker, *, changes: bool = False) -> State:
    """Make the worker write its memory into the work folder, and copy it and the other files from there.

    The copy is sealed memory of the host: the worker cannot change it afterwards.

    Args:
        worker: The worker, between two cells.
        changes: Whether the changed pages are enough, for a guest that begins with the same memory; the worker may
            still write all of it.

    """
    jail, name = worker.jail, f".image-{secrets.token_hex(8)}"
    worker.permit_fork()
    answer = worker.ask("changes" if changes else "image", f"{jail.places.work}/{name}", 0, _SAVE_S).answer
    size = answer.get("size")
    try:
        elapsed = check_elapsed(answer.get("elapsed_s"))
    except ValueError:
        size = None
    if not isinstance(size, int) or not 0 < size <= MOST_MEMORY:
        raise SessionError(
            f"the session's memory could not be written: {answer.get('problem') or 'the worker did not say why'}; "
            "make room in the work folder, or open the session with a larger disk_mb"
        )
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=jail.box_fd)
    except OSError as error:
        raise SessionError(f"the session's memory could not be taken out: {error.strerror}") from None
    try:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=jail.box_fd)
        if os.fstat(descriptor).st_size != size:
            raise SessionError("the session's memory is not what its worker said; nothing was saved")
        memory = SealedMemory.of_file(descriptor, 0, size)
    except (OSError, EOFError) as error:
        raise SessionError(f"the session's memory could not be taken out: {error}") from None
    finally:
        os.close(descriptor)
    with Rooted(os.dup(jail.box_fd)) as box:
        files = dict(pack_files(box, MAX_PACKED_BYTES, MAX_PACKED_FILES).items())
    report = answer.get("report")
    partial = changes and answer.get("changes") is True
    return State(memory, elapsed, files, partial, report if isinstance(report, dict) else {})
