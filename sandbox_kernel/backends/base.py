"""What a backend is: it runs one request and says what it can enforce."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from sandbox_kernel.backends.host_failures import check_listener
from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.jail.core.job import OnOutput as OnOutput
from sandbox_kernel.jail.meter.meter import OnUsage
from sandbox_kernel.jail.streams.asking import AnyOnInput, OnInput
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.languages.support.recipe import Availability
from sandbox_kernel.model import ExecRequest, ExecResult, Language
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.workspace.outcome import Keep

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True)
class Enforcement:
    """One promise: whether it is kept here, by what, and what was seen when it was tried. Truthy when kept."""

    enforced: bool
    mechanism: str = ""
    evidence: str = ""

    def __bool__(self) -> bool:
        return self.enforced


_NOT = Enforcement(False, "none", "no enforcer is active")


@dataclass(frozen=True, kw_only=True)
class EnforcedLimits:
    """Everything a policy or a limit may ask for, and whether it would be enforced here."""

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
        """Both reading and writing outside are stopped."""
        return bool(self.filesystem_read_isolation) and bool(self.filesystem_write_isolation)

    def items(self) -> list[tuple[str, Enforcement]]:
        """Each line by its name, in order."""
        return [(f.name, getattr(self, f.name)) for f in fields(self)]


@dataclass(frozen=True, kw_only=True)
class BackendCapabilities:
    """What a backend can do on this host."""

    supported_languages: tuple[Language, ...]
    isolation_class: str
    enforced_limits: EnforcedLimits
    languages: Mapping[Language, Availability] = field(default_factory=dict)


class SandboxBackend(ABC):
    """Runs requests, each in a sandbox of its own. Safe to use from several tasks and threads at once."""

    name: str

    @abstractmethod
    def capabilities(self) -> BackendCapabilities:
        """What is enforced here, measured; called by the report, the tool description and ``validate_policy``."""

    def available_languages(self) -> tuple[Language, ...]:
        """What runs here; called before a request is made. A backend that knows without measuring says so itself."""
        return self.capabilities().supported_languages

    @abstractmethod
    async def execute(
        self, request: ExecRequest, *, on_output: OnOutput | None = None, cancel: asyncio.Event | None = None
    ) -> ExecResult:
        """Run one request to its end.

        ``on_output(stream, text)`` is called on the caller's loop as output arrives, in order. Setting ``cancel`` ends
        the run with ``interrupted``. What happens inside is a result; an exception means it could not be run as asked.
        """


class BlockingBackend(SandboxBackend):
    """A backend whose work is a call that waits: ``run`` does it here, ``execute`` in a thread for an event loop."""

    @abstractmethod
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
        """Run a request on the calling thread; ``on_output`` is called on it too, and ``on_usage`` with its memory.

        ``keep`` is called with the work folder of the dead sandbox, before it is gone for good. ``stdin_from`` is a
        descriptor of the caller's from which standard input is read as it comes. Without it, and when the request has
        no input either, ``on_input(prompt, password)`` is asked for a line when a program reads and the backend can
        tell that it does (WebAssembly), on a thread of its own; the time that takes is not the program's. Elsewhere
        standard input is empty.
        """

    async def execute(
        self,
        request: ExecRequest,
        *,
        on_output: OnOutput | None = None,
        cancel: asyncio.Event | None = None,
        keep: Keep | None = None,
        on_usage: OnUsage | None = None,
        on_input: AnyOnInput | None = None,
    ) -> ExecResult:
        """See ``SandboxBackend``; ``keep`` and ``on_usage`` as in ``run``, on the thread that runs.

        ``on_input`` is asked as in ``run``, but on this loop, and may be a coroutine function.
        """
        # asyncio takes longer to import than a run
        from sandbox_kernel.backends.async_bridge import LoopBridge, in_thread, on_this_loop

        asked = on_this_loop(on_input)

        def work(bridge: LoopBridge) -> ExecResult:
            return self.run(
                request,
                on_output=bridge.on_loop(on_output),
                stop=bridge.stop,
                keep=keep,
                on_usage=on_usage,
                on_input=asked,
            )

        check_listener("on_output", on_output)
        return await in_thread(work, cancel)


def validate_policy(policy: SandboxPolicy, capabilities: BackendCapabilities) -> None:
    """Refuse, before anything runs, a policy that this backend would not enforce here; names what is missing."""
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
