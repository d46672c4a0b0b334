"""The wasm backend: programs inside WebAssembly, and the engine itself behind the walls of a jail.

Two walls, one inside the other. The engine never runs in this process, and a module reaches it in two steps, each a
jailed child of its own: compile (checked, under limits, its outcome sealed in the private store), then run. Both share
the request's clock. Languages run on interpreters that are such modules (``languages/guests.toml``), made ready once.
"""

from __future__ import annotations

import contextlib
import importlib.resources
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.base import BackendCapabilities, BlockingBackend, EnforcedLimits, OnOutput
from sandbox_kernel.backends.host_failures import Listener, check_listener, host_trouble
from sandbox_kernel.backends.measured.wasm_canaries import OnMeasured, measured
from sandbox_kernel.backends.network_notes import network_notes
from sandbox_kernel.backends.process import shared_pool
from sandbox_kernel.backends.request_checks import check_files_fit, check_request
from sandbox_kernel.backends.standard_input import unless_terminal
from sandbox_kernel.backends.wasm.cell_modules import CellModules
from sandbox_kernel.backends.wasm.module_key import PLAIN, EngineSwitches
from sandbox_kernel.backends.wasm.native import build
from sandbox_kernel.backends.wasm.prepare import OnProgress, switches_of
from sandbox_kernel.backends.wasm.source import WasmSource, read_source
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.toolchains import find_toolchain
from sandbox_kernel.backends.wasm.wasm_job import COMPILED, HANDLES, RUNTIME_MB, GuestRun, make_walls, run_job_of
from sandbox_kernel.backends.wasm.wasm_languages import WasmLanguages
from sandbox_kernel.backends.wasm.wasm_result import unfinished, wasm_result
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.core.job import SpareGone
from sandbox_kernel.jail.core.walls import CELL, Walls
from sandbox_kernel.jail.enforcer import get_enforcer
from sandbox_kernel.jail.meter.meter import OnUsage
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run.run_job import run_job
from sandbox_kernel.jail.streams.asking import OnInput
from sandbox_kernel.jail.streams.sealed_memory import SealedMemory
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.languages.support.guest_catalogue import WasmLanguage
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Limit, Status
from sandbox_kernel.policy import Grant, SandboxPolicy, check_policy
from sandbox_kernel.workspace.outcome import Keep, with_changes

if TYPE_CHECKING:
    from sandbox_kernel.net.client.safe_client import SafeClient
    from sandbox_kernel.net.guest_fetch.fetch_server import FetchBridge
    from sandbox_kernel.net.rules.fetch_policy import FetchPolicy


@dataclass(frozen=True)
class _Ears:
    """Who hears of a run, and who may stop it; see ``BlockingBackend.run``."""

    on_output: OnOutput | None
    stop: Stop | None
    keep: Keep | None
    on_usage: OnUsage | None
    on_input: OnInput | None
    stdin_from: int | None


class WasmBackend(WasmLanguages, BlockingBackend):
    """Runs WebAssembly modules, and languages whose interpreters or programs are such modules.

    A language that is not ready is made ready by its first request, before that request's clock starts;
    ``on_progress`` is told how far it is, on the thread that waits.
    """

    name = "wasm"
    isolation_class = "wasm"

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        enforcer: str = "auto",
        store: WasmStore | None = None,
        pool_size: int = 2,
        check_types: bool = False,
        on_progress: OnProgress | None = None,
        client: Callable[[FetchPolicy], SafeClient] | None = None,
    ) -> None:
        check_policy(policy)
        self.policy = policy if policy is not None else SandboxPolicy.preset("standard")
        self.enforcer = get_enforcer(enforcer)
        own = store if store is not None else WasmStore()
        super().__init__(own, self.enforcer.name, check_types=check_types, on_progress=on_progress)
        self._client = client
        self.pool: Pool = shared_pool(pool_size)
        self._modules = CellModules(self.store, self.pool, self.enforcer.name)

    def capabilities(self) -> BackendCapabilities:
        """See ``SandboxBackend``; each limit was tried once."""
        languages = self._languages()
        return BackendCapabilities(
            supported_languages=tuple(name for name, found in languages.items() if found.available),
            isolation_class=self.isolation_class,
            enforced_limits=self.measure(),
            languages=languages,
        )

    def measure(self, *, again: bool = False, on_progress: OnMeasured | None = None) -> EnforcedLimits:
        """What is enforced here: tried once a process for these walls and policy, or again. Called by the report."""
        return measured(self, again=again, on_progress=on_progress)

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
        """See ``BlockingBackend``; the memory that is told includes the engine's own. No terminal is read from."""
        self.check_network()
        check_request(request)
        check_files_fit(request, RUNTIME_MB)
        listener = Listener(on_output) if on_output is not None else None
        check_listener("on_input", on_input)
        source = unless_terminal(stdin_from)
        asked = on_input if request.stdin is None and source is None else None
        with host_trouble(listener):
            try:
                return self._run(request, _Ears(listener, stop, keep, on_usage, asked, source))
            finally:
                # Last of all: whoever makes the next jail takes the interpreter from us at our next system call.
                self.pool.done()

    def _run(self, request: ExecRequest, ears: _Ears) -> ExecResult:
        if request.language is Language.WASM:
            return self._run_module(request, read_source(request.code), "cell.wasm", 0.0, ears)
        guest = self._guest(request.language)
        if request.memory_mb < guest.memory_mb:
            raise InvalidRequest(
                f"a memory limit of {request.memory_mb} MB is below what {request.language} in WebAssembly needs to "
                f"start; give at least {guest.memory_mb} MB"
            )
        if guest.is_compiled:
            return self._run_compiled(request, guest, ears)
        switches = switches_of(guest, fuel=request.limits.fuel is not None)
        entry = self.ready(guest, switches)
        return self._run_guest(request, self._interpreter(request, guest, switches, entry), 0.0, ears)

    def check_network(self) -> None:
        """Refuse, before anything runs, a network that the enforcer cannot hold."""
        self.enforcer.check_network(self.policy)

    def egress(self) -> AbstractContextManager[FetchBridge | None]:
        """What fetches for one guest, when the policy allows any network; the guest itself has no socket."""
        if not self.policy.network and not self.policy.network_rules:
            return contextlib.nullcontext()
        from sandbox_kernel.net.client.safe_client import SafeClient
        from sandbox_kernel.net.guest_fetch.fetch_server import FetchBridge, guest_rules
        from sandbox_kernel.net.rules.fetch_policy import FetchPolicy

        return FetchBridge((self._client or SafeClient)(guest_rules(FetchPolicy.from_sandbox_policy(self.policy))))

    def _interpreter(
        self, request: ExecRequest, guest: WasmLanguage, switches: EngineSwitches, entry: StoreEntry
    ) -> GuestRun:
        """The program as a file beside the helpers of its interpreter."""
        folder = importlib.resources.files("sandbox_kernel") / "guest"
        helpers = {name: (folder / ours).read_bytes() for name, ours in guest.helpers.items()}
        image = guest.entry == "quickjs"
        return GuestRun(
            module=entry.file(COMPILED),
            argv=(*(("quickjs",) if image else guest.argv), *request.args),
            env={**guest.env, **self.policy.env, **request.env},
            switches=switches,
            files={guest.script: request.source, **helpers},
            sees_cell=True,
            runtime=(Grant(entry.path, entry.path, False),),
            program=f"{CELL}/{guest.script}" if image else None,
            handles=entry.file(HANDLES) if image else None,
            translate=guest.translate,
            memory_exit=guest.memory_exit,
        )

    def _run_compiled(
        self,
        request: ExecRequest,
        guest: WasmLanguage,
        ears: _Ears,
    ) -> ExecResult:
        find_toolchain(request.language).warm()
        built = build(request, guest.script, self.pool, self.enforcer.name, ears.stop)
        if isinstance(built, ExecResult):
            return built
        source = WasmSource(built.module, text=False)
        result = self._run_module(request, source, guest.argv[0], built.seconds, ears)
        messages = built.messages.decode("utf-8", "replace")
        return replace(result, stderr=messages + result.stderr, stderr_bytes=result.stderr_bytes + len(built.messages))

    def _run_module(
        self,
        request: ExecRequest,
        source: WasmSource,
        name: str,
        spent_s: float,
        ears: _Ears,
    ) -> ExecResult:
        switches = EngineSwitches(fuel=request.limits.fuel is not None)
        left = request.timeout - spent_s
        if left <= 0:
            return unfinished(request, Status.TIMEOUT, Limit.TIMEOUT, spent_s)
        made = self._modules.get(request, source, switches, left, ears.stop)
        if isinstance(made, ExecResult):
            return replace(made, duration=made.duration + spent_s)
        guest = GuestRun(
            argv=(name, *request.args),
            env={**self.policy.env, **request.env},
            switches=switches,
            module=SealedMemory(made.code),
        )
        return self._run_guest(request, guest, spent_s + made.seconds, ears)

    def _run_guest(
        self,
        request: ExecRequest,
        guest: GuestRun,
        spent_s: float,
        ears: _Ears,
    ) -> ExecResult:
        left = request.timeout - spent_s
        if left <= 0:
            return unfinished(request, Status.TIMEOUT, Limit.TIMEOUT, spent_s)
        ahead = guest.module if isinstance(guest.module, str) and guest.switches == PLAIN else None
        walls = make_walls(request.limits, request.memory_mb, self.policy, self.enforcer.name, guest.runtime, ahead)
        try:
            return self._run_in_jail(request, guest, walls, spent_s, ears)
        except SpareGone:
            return self._run_in_jail(request, guest, walls, spent_s, ears)

    def _run_in_jail(
        self, request: ExecRequest, guest: GuestRun, walls: Walls, spent_s: float, ears: _Ears
    ) -> ExecResult:
        left = request.timeout - spent_s
        with self.egress() as bridge:
            jail = self.pool.take(walls)
            try:
                job = run_job_of(request, guest, jail, left, asks=ears.on_input is not None)
                job = replace(job, stdin_from=ears.stdin_from)
                listen = bridge.start if bridge is not None else None
                outcome = run_job(
                    jail,
                    job,
                    on_output=ears.on_output,
                    on_listener=listen,
                    stop=ears.stop,
                    on_usage=ears.on_usage,
                    on_input=ears.on_input,
                )
                result = wasm_result(request, outcome, job, backend=self.name, isolation=self.isolation_class)
                result = replace(result, duration=result.duration + spent_s, compile_duration=spent_s)
                if bridge is not None:
                    notes = (*result.notes, *network_notes(self.policy, "", ()))
                    result = replace(result, violations=bridge.violations, notes=notes)
                return with_changes(result, jail.box_fd, request, ears.keep)
            finally:
                jail.destroy()
                jail.forget()
