"""Runs requests on the workers of a Dask cluster, each behind the walls of the machine that it lands on.

The cluster brings no walls: a worker runs the request through the process backend of its own machine, and the result
says what was active there. Output comes back as events while the program runs, the files it made with the result.
"""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
import threading
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from sandbox_kernel.backends.base import BackendCapabilities, BlockingBackend, OnOutput
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.backends.standard_input import read_to_end, unless_terminal
from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.jail.meter.meter import OnUsage
from sandbox_kernel.jail.streams.asking import OnInput
from sandbox_kernel.jail.streams.readable import readable
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.languages.support.recipe import ProcessConfig
from sandbox_kernel.model import ExecRequest, ExecResult
from sandbox_kernel.policy import SandboxPolicy, check_policy
from sandbox_kernel.workspace.outcome import Keep
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE

if TYPE_CHECKING:
    from distributed import Client, Future

Answer = TypeVar("Answer")

#: What a run may bring back in files; more stays behind, and the result says so.
MAX_FILES_BYTES = 64 << 20
_REMEDY = (
    "start a cluster and connect to it (from distributed import Client; Client('tcp://…')), or name it in "
    "DASK_SCHEDULER_ADDRESS"
)


@dataclass(frozen=True)
class Delivery:
    """What a worker sends back. ``pieces`` is how many pieces of output it sent before."""

    result: ExecResult
    files: dict[str, bytes]
    pieces: int


@dataclass(frozen=True)
class Kitchen:
    """How a worker is to run requests."""

    config: ProcessConfig
    policy: SandboxPolicy
    enforcer: str | None

    def backend(self) -> ProcessBackend:
        """The backend of the machine that this is called on."""
        return ProcessBackend(self.config, enforcer=self.enforcer, policy=self.policy)


class DaskBackend(BlockingBackend):
    """Spreads runs over a cluster; ``client`` is one of ``distributed``, else the one that is connected already."""

    name = "dask"

    def __init__(
        self,
        client: Client | None = None,
        config: ProcessConfig | None = None,
        policy: SandboxPolicy | None = None,
        *,
        enforcer: str | None = "auto",
    ) -> None:
        self.client = client if client is not None else connected_client()
        check_policy(policy)
        standard = policy if policy is not None else SandboxPolicy.preset("standard")
        self._kitchen = Kitchen(config or ProcessConfig(), standard, enforcer)

    def capabilities(self) -> BackendCapabilities:
        """See ``SandboxBackend``; measured on one worker: a cluster of unlike machines is not described by it."""
        future = self.client.submit(measure_on_worker, self._kitchen, pure=False)
        return _answer(future)

    def run(
        self,
        request: ExecRequest,
        *,
        on_output: OnOutput | None = None,
        stop: Stop | None = None,
        keep: Keep | None = None,
        on_usage: OnUsage | None = None,
        on_input: OnInput | None = None,
        stdin_from: int | None = None,
    ) -> ExecResult:
        """See ``BlockingBackend``; ``on_output`` is called on a thread of the client, ``on_usage``, ``on_input`` never.

        What ``stdin_from`` holds travels with the request, so that it is read to its end first, and no terminal is.
        """
        source = unless_terminal(stdin_from)
        request = request if source is None else replace(request, stdin=read_to_end(source))
        name = f"sandbox-{uuid.uuid4().hex}"
        heard = _Heard(on_output)
        if on_output is not None:
            self.client.subscribe_topic(name, heard.hear)
        done = os.eventfd(0, os.EFD_CLOEXEC)
        try:
            future = self.client.submit(
                run_on_worker, self._kitchen, request, name, on_output is not None, keep is not None, pure=False
            )
            future.add_done_callback(lambda _: os.eventfd_write(done, 1))
            either = select.poll()
            for fd in (done,) if stop is None else (done, stop.fileno()):
                either.register(fd, select.POLLIN)
            while done not in dict(either.poll()):
                # Asked again and again: a run that waits for its turn on a worker begins later.
                self.client.run(stop_on_worker, name)
                if readable(done, 0.2):
                    break
            delivery = _answer(future)
            heard.wait_for(delivery.pieces)
        finally:
            if on_output is not None:
                self.client.unsubscribe_topic(name)
            os.close(done)
        result = replace(delivery.result, backend=self.name)
        return result if keep is None else _kept(result, delivery.files, keep)


def connected_client() -> Client:
    """The client that the program has connected already, or one to the cluster that the environment names."""
    try:
        import dask
        import distributed
    except ImportError:
        remedy = "pip install 'sandbox-kernel[dask]'"
        raise BackendUnavailable(f"backend 'dask' needs the package distributed; {remedy}") from None
    with contextlib.suppress(ValueError):
        found: Client = distributed.default_client()
        return found
    address = dask.config.get("scheduler-address", None)
    if address is None:
        raise BackendUnavailable(f"backend 'dask' found no cluster; {_REMEDY}")
    try:
        return distributed.Client(address, timeout="10s")
    except OSError as error:
        raise BackendUnavailable(f"backend 'dask' cannot reach the cluster at {address}: {error}; {_REMEDY}") from None


class _Heard:
    """Output as it arrives, counted, so that the last piece is not lost behind the result."""

    def __init__(self, on_output: OnOutput | None) -> None:
        self._on_output = on_output
        self._pieces = 0
        self._more = threading.Condition()

    def hear(self, event: tuple[float, tuple[str, str]]) -> None:
        """Called by the client, in order."""
        stream, text = event[1]
        if self._on_output is not None:
            self._on_output(stream, text)
        with self._more:
            self._pieces += 1
            self._more.notify_all()

    def wait_for(self, pieces: int) -> None:
        """Events travel beside the result; a connection that broke loses them, so nobody waits for ever."""
        with self._more:
            self._more.wait_for(lambda: self._pieces >= pieces, timeout=10.0)


def _answer(future: Future[Answer]) -> Answer:
    """What a worker answered; our own errors as they are, the cluster's as a backend that is not there."""
    try:
        return future.result()
    except SandboxError:
        raise
    except Exception as error:
        said = str(error) or type(error).__name__
        raise BackendUnavailable(f"the Dask cluster did not finish the run: {said}; is it alive?") from error


def _kept(result: ExecResult, files: dict[str, bytes], keep: Keep) -> ExecResult:
    """Hand over the files as the caller would have found them here."""
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-dask-") as folder:
        with Rooted.at(folder) as rooted:
            for change in result.changes:
                if change.type == DIRECTORY and change.kind != "deleted":
                    rooted.make_folder(change.path)
            for path, data in files.items():
                rooted.write(path, data)
            return keep(rooted, result)


#: Runs of this worker that can be stopped, and those that were stopped before they began.
_running: dict[str, Stop] = {}
_stopped: set[str] = set()
_lock = threading.Lock()


def run_on_worker(kitchen: Kitchen, request: ExecRequest, name: str, tell: bool, bring_files: bool) -> Delivery:
    """Run on the machine of a worker; called there."""
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
                    return replace(result, notes=(*result.notes, f"{change.path} and later files stayed on the worker"))
                files[change.path] = box.read(change.path, max_bytes=left)
                left -= len(files[change.path])
        return result

    stop = Stop()
    with _lock:
        _running[name] = stop
        if name in _stopped:
            stop.set()
    try:
        result = kitchen.backend().run(
            request, on_output=say if tell else None, stop=stop, keep=take if bring_files else None
        )
        return Delivery(result, files, pieces)
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


def measure_on_worker(kitchen: Kitchen) -> BackendCapabilities:
    """What the machine of a worker enforces; called there."""
    return kitchen.backend().capabilities()
