"""What runs on the workers of a Dask cluster: called there by name, with what the host sends (``dask.py``)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from sandbox_kernel.backends.dask.dask_delivery import (
    MAX_FILES_BYTES,
    Delivery,
    encode_capabilities,
    encode_delivery,
    encode_error,
)
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.languages.support.recipe import ProcessConfig
from sandbox_kernel.model import ExecRequest, ExecResult, notes
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE

#: The event by which a worker says that it has begun a run; others are named after the stream that they are of.
BEGAN = "began"


@dataclass(frozen=True)
class Kitchen:
    """How a worker is to run requests."""

    config: ProcessConfig
    policy: SandboxPolicy
    enforcer: str | None

    def backend(self) -> ProcessBackend:
        """The backend of the machine that this is called on."""
        return ProcessBackend(self.config, enforcer=self.enforcer, policy=self.policy)


#: Runs of this worker that can be stopped, and those that were stopped before they began.
_running: dict[str, Stop] = {}
_stopped: set[str] = set()
_lock = threading.Lock()


def run_on_worker(kitchen: Kitchen, request: ExecRequest, name: str, tell: bool, bring_files: bool) -> bytes:
    """Run on the machine of a worker; called there. Returns a delivery, or an error of ours, as they travel."""
    from distributed import get_worker

    pieces = 0
    files: dict[str, bytes] = {}
    worker = get_worker()

    def say(stream: str, text: str) -> None:
        nonlocal pieces
        pieces += 1
        worker.log_event(name, (stream, text))

    def take(box: Rooted, result: ExecResult) -> ExecResult:
        left = MAX_FILES_BYTES
        for change in result.changes:
            if change.type == FILE and change.kind != "deleted":
                if change.size > left:
                    return replace(result, notes=(*result.notes, notes.files_stayed_on_worker(change.path)))
                files[change.path] = box.read(change.path, max_bytes=left)
                left -= len(files[change.path])
        return result

    stop = Stop()
    with _lock:
        _running[name] = stop
        if name in _stopped:
            stop.set()
    try:
        worker.log_event(name, (BEGAN, ""))
        result = kitchen.backend().run(
            request, on_output=say if tell else None, stop=stop, keep=take if bring_files else None
        )
        return encode_delivery(Delivery(result, files, pieces))
    except SandboxError as error:
        return encode_error(error)
    finally:
        with _lock:
            del _running[name]
            _stopped.discard(name)
            stop.close()


def stop_on_worker(name: str) -> bool:
    """Stop a run if it is on this worker, now or when it begins; called on every worker."""
    with _lock:
        running = _running.get(name)
        if running is not None:
            running.set()
        elif len(_stopped) < 10_000:
            _stopped.add(name)
        return running is not None


def measure_on_worker(kitchen: Kitchen) -> bytes:
    """What the machine of a worker enforces, or an error of ours, as they travel; called there."""
    try:
        return encode_capabilities(kitchen.backend().capabilities())
    except SandboxError as error:
        return encode_error(error)
