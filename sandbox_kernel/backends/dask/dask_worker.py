"""Functions that run on the workers of a Dask cluster; ``dask_backend.py`` submits them."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.dask.dask_delivery import (
    MAX_FILES_BYTES,
    Delivery,
    encode_capabilities,
    encode_delivery,
    encode_error,
)
from sandbox_kernel.backends.process import ProcessSetup
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.model import ExecRequest, FsChange, Note, notes
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder, pack_changes
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE, Entry

#: Name of the event that a run has begun. Events of output have the name of their stream.
BEGAN = "began"


#: Runs of this worker that can be stopped, and those that were stopped before they began.
_running: dict[str, Stop] = {}
_stopped: set[str] = set()
_lock = threading.Lock()


def run_on_worker(
    setup: ProcessSetup,
    request: ExecRequest,
    name: str,
    tell: bool,
    bring_files: bool,
    folder: Sequence[Entry] | None = None,
) -> bytes:
    """Run a request on this worker. Returns an encoded delivery or error.

    ``folder`` is the user's folder that the program works on; a private copy is made of it here.
    """
    from distributed import get_worker

    pieces = 0
    files: dict[str, bytes] = {}
    worker = get_worker()

    def say(stream: str, text: str) -> None:
        nonlocal pieces
        pieces += 1
        worker.log_event(name, (stream, text))

    def take(box: Rooted, changes: Sequence[FsChange]) -> Sequence[Note]:
        left = MAX_FILES_BYTES
        for change in changes:
            if change.type == FILE and change.kind != "deleted":
                if change.size > left:
                    return [notes.files_stayed_on_worker(change.path)]
                files[change.path] = box.read(change.path, max_bytes=left)
                left -= len(files[change.path])
        return []

    stop = Stop()
    with _lock:
        _running[name] = stop
        if name in _stopped:
            stop.set()
    try:
        worker.log_event(name, (BEGAN, ""))
        context = RunContext(on_output=say if tell else None, stop=stop)
        if folder is not None:
            with tempfile.TemporaryDirectory(prefix="sandbox-kernel-dask-") as copy:
                with Rooted.at(copy) as root:
                    for error in root.put_tree(folder).values():
                        raise error
                with closing(HereFolder(copy)) as here:
                    result = setup.backend().run(request, replace(context, here=here))
                    changed, missing = pack_changes(here, MAX_FILES_BYTES)
            result = replace(result, notes=(*result.notes, *missing))
            return encode_delivery(Delivery(result, {}, pieces, tuple(changed)))
        result = setup.backend().run(request, replace(context, keep=take if bring_files else None))
        return encode_delivery(Delivery(result, files, pieces))
    except SandboxError as error:
        return encode_error(error)
    finally:
        with _lock:
            del _running[name]
            _stopped.discard(name)
            stop.close()


def stop_on_worker(name: str) -> bool:
    """Stop a run on this worker, now or when it begins. Called on every worker."""
    with _lock:
        running = _running.get(name)
        if running is not None:
            running.set()
        elif len(_stopped) < 10_000:
            _stopped.add(name)
        return running is not None


def measure_on_worker(setup: ProcessSetup) -> bytes:
    """Measure this worker's machine. Returns encoded capabilities or an encoded error."""
    try:
        return encode_capabilities(setup.backend().capabilities())
    except SandboxError as error:
        return encode_error(error)
