"""The interface of backends: run one request, and report what is enforced on this host."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Self

from sandbox_kernel.backends.outcome import NetworkSigns, network_notes
from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.jail.enforcer import Enforcer
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.run_job import Job, JobOutcome, run_job
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.model import AnyOnInput, Events, ExecRequest, ExecResult, Language, Note, OnOutput, check_listener
from sandbox_kernel.policy import SandboxPolicy, check_policy
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.changes import Keep, files_left, leaves_files
from sandbox_kernel.workspace.given_grants import GivenGrants

if TYPE_CHECKING:
    import asyncio

    from _typeshed import HasFileno

    from sandbox_kernel.backends.functions.call_server import CallServer
    from sandbox_kernel.backends.functions.host_function import HostFunctions
    from sandbox_kernel.net.fetch_policy import FetchPolicy
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy
    from sandbox_kernel.workspace.overlay.layer import CopyTracker
    from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder


@dataclass(frozen=True)
class Enforcement:
    """One promise of a backend. True in a boolean context when it is enforced on this host.

    ``mechanism`` is what enforces it, for example ``cgroup v2``; ``evidence`` what a canary met that tried to break it.
    """

    enforced: bool
    mechanism: str = ""
    evidence: str = ""

    def __bool__(self) -> bool:
        return self.enforced


_NOT = Enforcement(False, "none", "no enforcer is active")


@dataclass(frozen=True, kw_only=True)
class EnforcedLimits:
    """Every promise that a policy or a limit may need, and whether it is enforced on this host.

    Args:
        timeout: A run ends at its wall-clock limit.
        memory: A run cannot use more memory than its limit.
        cpu: A run cannot use more CPU time than its limit.
        processes: A run cannot have more processes than its limit.
        disk: A run cannot write more than its disk limit.
        output: The captured output stays within its limit.
        network_isolation: A program reaches no network that the policy does not allow.
        filesystem_read_isolation: A program cannot read files of the host that the policy does not show.
        filesystem_write_isolation: A program cannot write files of the host that the policy does not allow.
        environment_isolation: A program does not see environment variables of the host.
        syscall_filter: System calls that reach beyond the sandbox are refused.
    """

    timeout: Enforcement = _NOT
    memory: Enforcement = _NOT
    cpu: Enforcement = _NOT
    processes: Enforcement = _NOT
    disk: Enforcement = _NOT
    output: Enforcement = _NOT
    network_isolation: Enforcement = _NOT
    filesystem_read_isolation: Enforcement = _NOT
    filesystem_write_isolation: Enforcement = _NOT
    environment_isolation: Enforcement = _NOT
    syscall_filter: Enforcement = _NOT

    @property
    def filesystem_isolation(self) -> bool:
        """Whether both reading and writing outside the sandbox are prevented."""
        return bool(self.filesystem_read_isolation) and bool(self.filesystem_write_isolation)

    def items(self) -> list[tuple[str, Enforcement]]:
        """Return name and value of each promise, in the order above."""
        return [(f.name, getattr(self, f.name)) for f in fields(self)]


@dataclass(frozen=True, kw_only=True)
class BackendCapabilities:
    """What a backend can do on this host: the languages that run here, and the promises, as they were measured.

    ``isolation_class`` is ``process+sandbox``, ``process`` (no walls) or ``wasm``. ``languages`` has the version of
    each language, or why it is not available.
    """

    supported_languages: tuple[Language, ...]
    isolation_class: str
    enforced_limits: EnforcedLimits
    languages: Mapping[Language, Availability] = field(default_factory=dict)


class SandboxBackend(ABC):
    """Runs requests, each in a sandbox of its own. Safe to use from several tasks and threads at the same time."""

    name: str

    @abstractmethod
    def capabilities(self) -> BackendCapabilities:
        """Return what is enforced here, as measured. Called by the report, ``SandboxTool`` and ``validate_policy``."""

    def available_languages(self) -> tuple[Language, ...]:
        """Return the languages that run here, for use before a request; overridden where that needs no measuring."""
        return self.capabilities().supported_languages

    @abstractmethod
    async def execute(
        self, request: ExecRequest, *, on_output: OnOutput | None = None, cancel: asyncio.Event | None = None
    ) -> ExecResult:
        """Run one request to its end and return its result.

        A failure of the program is a result. An exception means that the request could not be run.

        Args:
            request: The program, its input, files and limits.
            on_output: Called as ``on_output(stream, text)`` on the event loop of the caller, in order, while output
                arrives; ``stream`` is ``stdout`` or ``stderr``.
            cancel: Setting this event ends the run with the status ``interrupted``.
        """


@dataclass(frozen=True, kw_only=True)
class RunContext(Events):
    """How a run is tied to the process that asked for it: what that hears of it, and what it lends to the program.

    The run is interrupted when ``stop`` is readable. ``stdin_from`` is an open descriptor of the caller, read as input
    while the program runs; ``on_input`` is called only without it and without input in the request. ``keep`` takes
    changed files out of the work folder afterwards; ``here`` keeps the changes itself. Coroutines of ``functions`` run
    on ``loop``, or on one of our own. ``chosen`` is why this backend runs it, for the result.
    """

    stop: HasFileno | None = None
    stdin_from: int | None = None
    keep: Keep | None = None
    here: HereFolder | None = None
    functions: HostFunctions | None = None
    loop: asyncio.AbstractEventLoop | None = None
    chosen: str = ""

    @contextlib.contextmanager
    def served(self) -> Iterator[CallServer | None]:
        """Serve the host functions of the run inside the block; None without functions, as in most runs."""
        if self.functions is None:
            yield None
            return
        from sandbox_kernel.backends.functions.call_server import CallServer

        with contextlib.closing(CallServer(self.functions)) as server:
            server.begin(self.loop)
            yield server


#: A run that nobody hears of.
ALONE = RunContext()


class BlockingBackend(SandboxBackend):
    """A backend with a blocking ``run``; its ``execute`` calls ``run`` in a thread."""

    @abstractmethod
    def run(self, request: ExecRequest, context: RunContext = ALONE) -> ExecResult:
        """Run one request on the calling thread, which also calls ``on_output`` and ``on_usage``."""

    async def execute(
        self,
        request: ExecRequest,
        *,
        on_output: OnOutput | None = None,
        cancel: asyncio.Event | None = None,
        on_input: AnyOnInput | None = None,
        context: RunContext = ALONE,
    ) -> ExecResult:
        """Run one request in a thread; see ``SandboxBackend.execute``.

        ``on_input`` is as in ``Events``, but called on this event loop; it may be a coroutine function. ``context`` is
        what else the caller hears, on threads of the run, and lends. Coroutine functions run on this loop.
        """
        # importing asyncio takes longer than a run
        import asyncio

        from sandbox_kernel.backends.async_bridge import LoopBridge, in_thread, on_this_loop

        check_listener("on_output", on_output)
        asked, loop = on_this_loop(on_input) or context.on_input, asyncio.get_running_loop()

        def work(bridge: LoopBridge) -> ExecResult:
            heard = bridge.on_loop(on_output)
            return self.run(request, replace(context, on_output=heard, on_input=asked, stop=bridge.stop, loop=loop))

        return await in_thread(work, cancel)


@dataclass(frozen=True, kw_only=True)
class JailRun:
    """One request while it runs, what serves it, notes for its result, and what compilers took before its job began."""

    request: ExecRequest
    context: RunContext
    calls: CallServer | None
    proxy: EgressProxy | None = None
    notes: tuple[Note, ...] = ()
    spent_s: float = 0.0
    #: The user's folder in its jail, and the time before it was put there.
    tracker: CopyTracker | None = None
    began_ns: int = 0

    def filled(self, jail: Jail) -> Self:
        """Put the user's folder into a jail, if the program works on one; returns the run in that jail."""
        here, files, began_ns = self.context.here, self.request.files, time.time_ns()
        tracker = here.fill(jail.box_fd, jail.layer_fd, files, jail.walls.box_bytes) if here is not None else None
        return replace(self, tracker=tracker, began_ns=began_ns)

    def start(self, jail: Jail, job: Job) -> JobOutcome:
        """Run its job in a jail, to its end."""
        listen = self.proxy.start if self.proxy is not None else None
        return run_job(jail, job, self.context, on_listener=listen, stop=self.context.stop)


class JailBackend(BlockingBackend):
    """Runs each request in a jail of this machine. What ``proxy`` makes is a program's only way to the network."""

    def __init__(
        self,
        policy: SandboxPolicy | None,
        enforcer: Enforcer | None,
        proxy: Callable[[FetchPolicy], EgressProxy] | None,
        grants: GivenGrants | None,
    ) -> None:
        check_policy(policy)
        self.policy = policy if policy is not None else SandboxPolicy.preset("standard")
        self.grants = grants if grants is not None else GivenGrants(self.policy)
        self.enforcer = enforcer
        self._lets_out = self.policy.network or bool(self.policy.network_rules)
        self._proxy = proxy

    def check_network(self) -> None:
        """Raise ``PolicyViolation`` when the enforcer cannot enforce the network rules of the policy."""
        if self.enforcer is not None:
            self.enforcer.check_network(self.policy)

    def egress(self) -> contextlib.AbstractContextManager[EgressProxy | None]:
        """Return a proxy for one run or session; None inside the block without network or without walls."""
        if self.enforcer is None or not self._lets_out:
            return contextlib.nullcontext()
        from sandbox_kernel.net.fetch_policy import FetchPolicy

        return self.make_proxy(FetchPolicy.from_sandbox_policy(self.policy))

    def make_proxy(self, policy: FetchPolicy) -> EgressProxy:
        """Return a new proxy for one run or session, which lets programs reach the hosts of a policy."""
        from sandbox_kernel.net.proxy.egress_proxy import EgressProxy

        return (self._proxy or EgressProxy)(policy)

    def network_notes(
        self, signs: NetworkSigns, notes: Sequence[Note], policy: SandboxPolicy | None = None
    ) -> tuple[Note, ...]:
        """Return notes about the network for a result that has ``notes``; a session's ``policy`` may have grown."""
        if self.enforcer is None:
            return ()
        return network_notes(policy or self.policy, signs, notes, can_open=self.enforcer.allows_network)

    def _ended(self, run: JailRun, jail: Jail, result: ExecResult, signs: NetworkSigns) -> ExecResult:
        """Return the whole result of a run: with its calls, what its proxy saw, and the files that it left."""
        context, told = run.context, [*run.notes, *result.notes]
        calls = run.calls.finish() if run.calls is not None else ()
        violations = run.proxy.violations if run.proxy is not None else ()
        if run.proxy is not None:
            told += run.proxy.take_failures()
        told += self.network_notes(signs, told)
        kept = leaves_files(result.status, result.limit)
        if context.here is not None and run.tracker is not None:
            left = context.here.keep_run(run.tracker, run.began_ns, kept=kept)
        else:
            left = files_left(jail.box_fd, run.request.files, context.keep, kept=kept)
        return replace(
            result,
            calls=calls,
            violations=violations,
            changes=left.changes,
            here=left.here,
            notes=(*told, *left.notes),
            duration=result.duration + run.spent_s,
        )


def validate_policy(policy: SandboxPolicy, capabilities: BackendCapabilities) -> None:
    """Raise ``PolicyViolation`` for a policy that this backend cannot enforce here; it names what is missing."""
    limits = capabilities.enforced_limits
    wanted = [
        ("network", not policy.network, limits.network_isolation),
        ("reading outside", True, limits.filesystem_read_isolation),
        ("writing outside", True, limits.filesystem_write_isolation),
        ("the environment", True, limits.environment_isolation),
        ("starting processes", not policy.process_spawn, limits.syscall_filter),
        ("time", True, limits.timeout),
    ]
    missing = [f"{what} ({line.evidence or line.mechanism})" for what, asked, line in wanted if asked and not line]
    if missing:
        raise PolicyViolation(
            f"the policy restricts what the {capabilities.isolation_class!r} backend cannot enforce here: "
            f"{'; '.join(missing)}; use an enforcer (enforcer='auto') or run where one works"
        )
