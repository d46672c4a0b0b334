"""The interface of backends: run one request, and report what is enforced on this host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.model import AnyOnInput, Events, ExecRequest, ExecResult, Language, OnOutput, check_listener
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.changes import Keep

if TYPE_CHECKING:
    import asyncio

    from _typeshed import HasFileno

    from sandbox_kernel.backends.functions.host_function import HostFunctions
    from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder


@dataclass(frozen=True)
class Enforcement:
    """One promise of a backend. True in a boolean context when it is enforced.

    Args:
        enforced: Whether the promise holds on this host.
        mechanism: The part of the system that enforces it, for example ``cgroup v2``.
        evidence: What happened when a canary tried to break it.

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
    """What a backend can do on this host.

    Args:
        supported_languages: Languages that run here.
        isolation_class: The kind of isolation: ``process+sandbox``, ``process`` (no walls) or ``wasm``.
        enforced_limits: The promises and whether each is enforced, as measured here.
        languages: Version of each language, or why it is not available.

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
        """Return the languages that run here. Called before a request is made.

        A backend overrides this when it can answer without measuring.
        """
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

    Args:
        stop: When this is readable (a ``Stop`` that was set), the run ends with the status ``interrupted``.
        stdin_from: Open descriptor of the caller that is read as standard input while the program runs. ``on_input``
            is called only without it and without standard input in the request.
        keep: Takes changed files out of the work folder after the program has ended.
        here: The folder of the user that the program works on, copy-on-write; it keeps the changes itself.
        functions: Host functions that the program may call; None for none.
        loop: Where those of them run that are coroutine functions; None for a loop of our own.
        chosen: Why this backend runs it, for the result.

    """

    stop: HasFileno | None = None
    stdin_from: int | None = None
    keep: Keep | None = None
    here: HereFolder | None = None
    functions: HostFunctions | None = None
    loop: asyncio.AbstractEventLoop | None = None
    chosen: str = ""


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
        the rest of what the caller hears, on the thread that runs, and lends. Coroutine functions run on this loop.
        """
        # importing asyncio takes longer than a run
        import asyncio

        from sandbox_kernel.backends.async_bridge import LoopBridge, in_thread, on_this_loop

        check_listener("on_output", on_output)
        asked, loop = on_this_loop(on_input), asyncio.get_running_loop()

        def work(bridge: LoopBridge) -> ExecResult:
            heard = bridge.on_loop(on_output)
            return self.run(request, replace(context, on_output=heard, on_input=asked, stop=bridge.stop, loop=loop))

        return await in_thread(work, cancel)


def validate_policy(policy: SandboxPolicy, capabilities: BackendCapabilities) -> None:
    """Raise ``PolicyViolation`` for a policy that this backend cannot enforce here; the message names what is missing.

    Args:
        policy: The policy that is to be enforced.
        capabilities: The capabilities of the backend on this host.

    """
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
