"""Runs requests on the workers of a Dask cluster, each behind the walls of the worker's machine.

Dask itself builds no walls: a worker runs the request with the process backend of its machine, and the result says what
was enforced there. Output arrives as events while the program runs; files arrive with the result.
Messages of Dask are pickles, so each member of a cluster can run code on every other member, this host included:
scheduler and workers are trusted. Programs that run there are not.
"""

from __future__ import annotations

import contextlib
import select
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox_kernel.backends.base import ALONE, BackendCapabilities, BlockingBackend, RunContext
from sandbox_kernel.backends.checks import unless_terminal
from sandbox_kernel.backends.outcome import make_result
from sandbox_kernel.backends.process import ProcessConfig, ProcessSetup
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, SandboxError, install_line
from sandbox_kernel.jail.streams import Stop, readable
from sandbox_kernel.model import ExecRequest, ExecResult, FsChange, Note, OnOutput, Status, notes
from sandbox_kernel.policy import SandboxPolicy, check_policy
from sandbox_kernel.util.wire import BadMessage, check
from sandbox_kernel.workspace.changes import MAX_CHANGES, leaves_files
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE

if TYPE_CHECKING:
    from _typeshed import HasFileno
    from distributed import Client, Future

#: Seconds that a run may take beyond its time limit after it began: to start, to end, to send its files.
PATIENCE_S = 120.0
#: Seconds that a worker has to answer after it was asked to stop a run.
STOP_S = 30.0
_REMEDY = (
    "start a cluster and connect to it (from distributed import Client; Client('tcp://…')), or name it in "
    "DASK_SCHEDULER_ADDRESS"
)


class DaskBackend(BlockingBackend):
    """Runs requests on the workers of a Dask cluster.

    Args:
        client: A ``distributed.Client``. None uses the client that is already connected, or one for the cluster that
            ``DASK_SCHEDULER_ADDRESS`` names.
        config: Interpreters and compilers on the workers; None for the defaults.
        policy: What programs may read, write, reach and start; None for the preset ``standard``.
        enforcer: The tool that builds the walls on the workers: ``auto``, ``bubblewrap`` or ``landlock``. None runs
            programs without walls.
    """

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
        self._setup = ProcessSetup(config or ProcessConfig(), standard, enforcer)

    def capabilities(self) -> BackendCapabilities:
        """See ``SandboxBackend``; measured on one worker. Other machines of the cluster may differ."""
        future = self.client.submit(measure_on_worker, self._setup, pure=False)
        return _answer(future, BackendCapabilities)

    def run(self, request: ExecRequest, context: RunContext = ALONE) -> ExecResult:
        """See ``BlockingBackend``; ``on_output`` runs on a thread of the client. A file is read, to be sent whole."""
        if context.functions is not None:
            raise InvalidRequest(
                "host functions live in this process, and backend='dask' runs programs on other machines; "
                "use backend='process', or leave functions out"
            )
        if context.here is not None:
            raise InvalidRequest(
                f"the folder {context.here.path!r} is on this machine, and backend='dask' runs programs on others; "
                "give them files (files=..., box.write_file), or use backend='process'"
            )
        on_output, keep, stop = context.on_output, context.keep, context.stop
        source = unless_terminal(context.stdin_from)
        if source is not None:
            with open(source, "rb", closefd=False) as file:
                request = replace(request, stdin=file.read())
        name = f"sandbox-{uuid.uuid4().hex}"
        events = _OutputEvents(on_output)
        self.client.subscribe_topic(name, events.receive)
        done = Stop()
        try:
            future = self.client.submit(
                run_on_worker, self._setup, request, name, on_output is not None, keep is not None, pure=False
            )
            future.add_done_callback(lambda _: done.set())
            if not self._wait(name, request, events, done, stop):
                future.cancel()
                lost = (notes.output_lost(STOP_S),)
                stopped = make_result(request, Status.INTERRUPTED)
                return replace(stopped, backend=self.name, notes=lost, chosen=context.chosen)
            delivery = _answer(future, Delivery)
            if on_output is not None:
                events.wait_for(delivery.pieces)
        finally:
            self.client.unsubscribe_topic(name)
            done.close()
        result = delivery.result
        missing: Sequence[Note] = ()
        if keep is not None and result.changes and leaves_files(result.status, result.limit):
            with tempfile.TemporaryDirectory(prefix="sandbox-kernel-dask-") as folder, Rooted.at(folder) as rooted:
                for change in result.changes:
                    if change.type == DIRECTORY and change.kind != "deleted":
                        rooted.make_folder(change.path)
                for path, data in delivery.files.items():
                    rooted.write(path, data)
                missing = keep(rooted, result.changes)
        return replace(result, backend=self.name, notes=(*result.notes, *missing), chosen=context.chosen)

    def _wait(self, name: str, request: ExecRequest, events: _OutputEvents, done: Stop, stop: HasFileno | None) -> bool:
        """Wait for the run; False when it was stopped and its worker is silent. Raises when its limit is long over."""
        either = select.poll()
        for one in (done,) if stop is None else (done, stop):
            either.register(one, select.POLLIN)
        asked_at: float | None = None
        asking: threading.Thread | None = None

        def stop_everywhere() -> None:
            with contextlib.suppress(Exception):
                self.client.run(stop_on_worker, name, on_error="ignore")

        while done.fileno() not in (ready := dict(either.poll(1000))):
            now = time.monotonic()
            if ready:
                asked_at = asked_at or now
                # Repeated, because a run that waits for a free worker begins later; in a thread, because one may hang.
                if asking is None or not asking.is_alive():
                    asking = threading.Thread(target=stop_everywhere, daemon=True)
                    asking.start()
                if readable(done.fileno(), 0.2):
                    return True
                if now > asked_at + STOP_S:
                    return False
            if events.began_at is not None and now > events.began_at + request.timeout + PATIENCE_S:
                raise BackendUnavailable(
                    f"the Dask cluster did not finish the run: a worker began it {now - events.began_at:.0f} s ago, "
                    f"its limit is {request.timeout:g} s, and nothing came back; look at that worker, then run it again"
                )
        return True


def connected_client() -> Client:
    """Return the client that is already connected, or a new one for the cluster that the environment names."""
    try:
        import dask
        import distributed
    except ImportError:
        raise BackendUnavailable(f"backend 'dask' needs the package distributed; {install_line('dask')}") from None
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


class _OutputEvents:
    """Receives the output events of a run and counts them, so that no piece is missing when the result arrives."""

    def __init__(self, on_output: OnOutput | None) -> None:
        self._on_output = on_output
        self._pieces = 0
        self._more = threading.Condition()
        #: Time at which a worker reported that the run began.
        self.began_at: float | None = None

    def receive(self, event: object) -> None:
        """Handle one event; ignores events of other kinds. Called by the client, in order."""
        try:
            _, (stream, text) = check(event, tuple[object, tuple[str, str]])
        except BadMessage:
            return
        if stream == BEGAN:
            self.began_at = time.monotonic()
        if stream not in ("stdout", "stderr"):
            return
        if self._on_output is not None:
            self._on_output(stream, text)
        with self._more:
            self._pieces += 1
            self._more.notify_all()

    def wait_for(self, pieces: int) -> None:
        """Wait until this many pieces have arrived, for a limited time: a broken connection loses events."""
        with self._more:
            self._more.wait_for(lambda: self._pieces >= pieces, timeout=10.0)


_T = TypeVar("_T")


def _answer(future: Future[Any], kind: type[_T]) -> _T:
    """Return the answer of a worker, or raise the error that it returned; ``BackendUnavailable`` for anything else."""
    try:
        found = future.result()
    except Exception as error:
        said = str(error) or type(error).__name__
        raise BackendUnavailable(
            f"the Dask cluster did not finish the run: {said}; check that it runs, with the same sandbox-kernel as here"
        ) from error
    if isinstance(found, SandboxError):
        raise found
    if not isinstance(found, kind):
        raise BackendUnavailable(
            f"a worker of the Dask cluster sent an invalid answer (a {type(found).__name__}); "
            "install the same sandbox-kernel on the workers as here"
        )
    return found


# What runs on the workers.

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
