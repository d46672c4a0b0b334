"""Functions that run on the workers of a Dask cluster; ``dask_backend.py`` submits them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandbox_kernel.backends.base import BackendCapabilities, RunContext
from sandbox_kernel.backends.process import ProcessSetup
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.model import ExecRequest, ExecResult, FsChange, Note, notes
from sandbox_kernel.workspace.changes import MAX_CHANGES
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE

#: Most bytes of files that a run sends back. The rest stays on the worker, and the result says so.
MAX_FILES_BYTES = 64 << 20
#: Name of the event that a run has begun. Events of output have the name of their stream.
BEGAN = "began"


@dataclass
class Delivery:
    """The result of a run and its files. ``pieces`` is the number of output events that were sent before."""

    result: ExecResult
    files: dict[str, bytes] = field(default_factory=dict)
    pieces: int = 0


#: Runs of this worker that can be stopped, and those that were stopped before they began.
_running: dict[str, Stop] = {}
_stopped: set[str] = set()
_lock = threading.Lock()


def run_on_worker(
    setup: ProcessSetup, request: ExecRequest, name: str, tell: bool, bring_files: bool
) -> Delivery | SandboxError:
    """Run a request here. An error is returned: Dask would write a raised one to its log."""
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
        for change in changes[:MAX_CHANGES]:
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
        context = RunContext(on_output=say if tell else None, keep=take if bring_files else None, stop=stop)
        result = setup.backend().run(request, context)
        return Delivery(result, files, pieces=pieces)
    except SandboxError as error:
        return error
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


def measure_on_worker(setup: ProcessSetup) -> BackendCapabilities | SandboxError:
    """Measure this worker's machine."""
    try:
        return setup.backend().capabilities()
    except SandboxError as error:
        return error
