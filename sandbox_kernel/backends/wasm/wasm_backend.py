"""The wasm backend: runs programs in a WebAssembly engine, and the engine in a jail.

A program is behind two walls, the engine and the jail. The engine never runs in the process of the host. A module takes
two steps, each in a jail of its own: compile (checked, limited, the result sealed in the private store), then run. Both
count against the time limit of the request. Languages run on interpreters that are modules too
(``languages/guests.toml``) and are prepared once.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.base import BackendCapabilities, BlockingBackend, EnforcedLimits
from sandbox_kernel.backends.functions.inside import typescript_files, wasm_python_files
from sandbox_kernel.backends.functions.served_run import served, with_functions
from sandbox_kernel.backends.measured.wasm_canaries import OnMeasured, measured
from sandbox_kernel.backends.process import shared_pool
from sandbox_kernel.backends.requests.request_checks import check_files_fit, check_request
from sandbox_kernel.backends.requests.standard_input import unless_terminal
from sandbox_kernel.backends.results.host_failures import Listener, host_trouble
from sandbox_kernel.backends.results.network_notes import NetworkSigns, network_notes
from sandbox_kernel.backends.wasm.cell_modules import CellModules, WasmSource, read_source
from sandbox_kernel.backends.wasm.guest_images import EngineSwitches, image_facts, why_not_image
from sandbox_kernel.backends.wasm.prepare import OnProgress, WasmLanguages, switches_of
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.toolchains import build, find_toolchain
from sandbox_kernel.backends.wasm.wasm_job import (
    COMPILED,
    HANDLES,
    RUNTIME_MB,
    GuestRun,
    check_mounts,
    check_place_is_free,
    make_walls,
    run_job_of,
)
from sandbox_kernel.backends.wasm.wasm_result import unfinished, wasm_result
from sandbox_kernel.backends.wasm.wheels import MEMORY, PLACE, LoadedWheels, Wheels, load_wheels
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.enforcer import get_enforcer
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run_job import SpareGone, run_job
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.jail.walls import CELL, Walls
from sandbox_kernel.languages.guest_catalogue import WasmLanguage
from sandbox_kernel.model import (
    ExecRequest,
    ExecResult,
    Language,
    Limit,
    OnInput,
    OnOutput,
    OnUsage,
    Status,
    check_listener,
)
from sandbox_kernel.model.notes import not_booted
from sandbox_kernel.policy import Grant, SandboxPolicy, check_policy
from sandbox_kernel.workspace.given_grants import GivenGrants
from sandbox_kernel.workspace.here.here_folder import HereFolder
from sandbox_kernel.workspace.outcome import Keep, with_changes

if TYPE_CHECKING:
    import asyncio

    from sandbox_kernel.backends.functions.call_server import CallServer
    from sandbox_kernel.backends.functions.host_function import HostFunctions
    from sandbox_kernel.net.fetch_policy import FetchPolicy
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy


@dataclass(frozen=True)
class _RunCallbacks:
    """Callbacks, stop signal and input of a run; see ``BlockingBackend.run``."""

    on_output: OnOutput | None
    stop: Stop | None
    keep: Keep | None
    on_usage: OnUsage | None
    on_input: OnInput | None
    stdin_from: int | None
    calls: CallServer | None = None
    over: HereFolder | None = None


class WasmBackend(WasmLanguages, BlockingBackend):
    """Runs WebAssembly modules, and languages whose interpreters or programs are such modules.

    The first request of a language prepares it if needed, before the time limit of that request starts.

    Args:
        policy: What programs may read, write and reach; None for the preset ``standard``.
        enforcer: The tool that builds the walls around the engine: ``auto``, ``bubblewrap`` or ``landlock``.
        store: Folder of compiled modules; None for the store of the user.
        pool_size: Number of spare jails that wait for runs.
        check_types: Check the types of TypeScript before a run.
        on_progress: Called with the progress of a preparation, on the thread that waits for it.
        proxy: Function that makes the proxy of a run for a ``FetchPolicy``; None for ``EgressProxy``.
        wheels: Packages that Python programs can import, loaded in advance; None for none.
        grants: The opened paths of the policy, where another backend has them already; None opens them.

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
        proxy: Callable[[FetchPolicy], EgressProxy] | None = None,
        wheels: Wheels | None = None,
        grants: GivenGrants | None = None,
    ) -> None:
        check_policy(policy)
        self.policy = policy if policy is not None else SandboxPolicy.preset("standard")
        self.grants = grants if grants is not None else GivenGrants(self.policy)
        self.enforcer = get_enforcer(enforcer)
        own = store if store is not None else WasmStore()
        super().__init__(own, self.enforcer.name, check_types=check_types, on_progress=on_progress)
        self._proxy = proxy
        self.wheels = wheels
        if wheels is not None:
            check_place_is_free(self.policy, PLACE, "the files of wheels=…")
        self.pool: Pool = shared_pool(pool_size)
        self._modules = CellModules(self.store, self.pool, self.enforcer.name)

    def capabilities(self) -> BackendCapabilities:
        """See ``SandboxBackend``; each limit is measured once."""
        languages = self._languages()
        return BackendCapabilities(
            supported_languages=tuple(name for name, found in languages.items() if found.available),
            isolation_class=self.isolation_class,
            enforced_limits=self.measure(),
            languages=languages,
        )

    def measure(self, *, again: bool = False, on_progress: OnMeasured | None = None) -> EnforcedLimits:
        """Return what is enforced here. Called by ``capabilities`` and the report.

        Args:
            again: Measure again, instead of using the measurement of this process for these walls and this policy.
            on_progress: Called with the number of finished measurements and of all.

        """
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
        over: HereFolder | None = None,
        functions: HostFunctions | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> ExecResult:
        """See ``BlockingBackend``; ``on_usage`` includes the memory of the engine, and a terminal is not read.

        Python, JavaScript, TypeScript and the shell can call ``functions``; programs in other languages cannot.
        """
        self.check_network()
        check_request(request)
        check_files_fit(request, RUNTIME_MB)
        listener = Listener(on_output) if on_output is not None else None
        check_listener("on_input", on_input)
        source = unless_terminal(stdin_from)
        asked = on_input if request.stdin is None and source is None else None
        with host_trouble(listener), served(functions, loop) as calls:
            try:
                return self._run(request, _RunCallbacks(listener, stop, keep, on_usage, asked, source, calls, over))
            finally:
                # Last: making the next spare competes with this thread for the Python interpreter.
                self.pool.done()

    def _run(self, request: ExecRequest, callbacks: _RunCallbacks) -> ExecResult:
        if request.language is Language.WASM:
            return self._run_module(request, read_source(request.code), "cell.wasm", 0.0, callbacks)
        guest = self._guest(request.language)
        check_mounts(self.policy, guest)
        if request.memory_mb < guest.memory_mb:
            raise InvalidRequest(
                f"a memory limit of {request.memory_mb} MB is below what {request.language} in WebAssembly needs to "
                f"start; give at least {guest.memory_mb} MB"
            )
        if guest.is_compiled:
            return self._run_compiled(request, guest, callbacks)
        switches = switches_of(guest, fuel=request.limits.fuel is not None)
        why = self._why_not_image(request, guest)
        if why is not None and self.wheels is not None and request.language is Language.PYTHON:
            raise InvalidRequest(f"{why}, and wheels are part of an image of Python that has started; leave out one")
        guest = replace(guest, image={}) if why is not None else guest
        entry = self.ready(guest, switches)
        why = why or image_facts(entry).reason
        run = self._interpreter(request, guest, switches, entry)
        if callbacks.calls is not None and request.language is Language.PYTHON:
            run = replace(run, files={**run.files, **wasm_python_files()})
        if callbacks.calls is not None and self.check_types and request.language is Language.TYPESCRIPT:
            run = replace(run, files={**run.files, **typescript_files(callbacks.calls.functions)})
        result = self._run_guest(request, run, 0.0, callbacks)
        return replace(result, notes=(*result.notes, not_booted(str(guest.language), why))) if why else result

    def _why_not_image(self, request: ExecRequest, guest: WasmLanguage) -> str | None:
        """Return why a request needs its interpreter to start from nothing; None when it need not."""
        if not guest.image:
            return None
        env = {**self.policy.env, **request.env}
        return why_not_image(self.grants.now(root=True), (*guest.argv, *request.args), env)

    def loaded_wheels(self, guest: WasmLanguage, switches: EngineSwitches, entry: StoreEntry) -> LoadedWheels | None:
        """Return the wheels of this backend, loaded into the image of a Python; None for another guest."""
        if self.wheels is None or guest.language is not Language.PYTHON or not image_facts(entry).booted:
            return None
        return load_wheels(self.store, self.enforcer.name, self.wheels, entry, switches)

    def check_network(self) -> None:
        """Raise ``PolicyViolation`` when the enforcer cannot enforce the network rules of the policy."""
        self.enforcer.check_network(self.policy)

    def egress(self) -> AbstractContextManager[EgressProxy | None]:
        """Return the proxy of one run or session; None inside the block when the policy allows no network."""
        if not self.policy.network and not self.policy.network_rules:
            return contextlib.nullcontext()
        from sandbox_kernel.net.fetch_policy import FetchPolicy
        from sandbox_kernel.net.proxy.egress_proxy import EgressProxy

        return (self._proxy or EgressProxy)(FetchPolicy.from_sandbox_policy(self.policy))

    def _interpreter(
        self, request: ExecRequest, guest: WasmLanguage, switches: EngineSwitches, entry: StoreEntry
    ) -> GuestRun:
        """Return the run of an interpreter with the program as a file."""
        wheels = self.loaded_wheels(guest, switches, entry)
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
            runtime=tuple(Grant(path, path, False) for path in (entry.path, *(wheels.paths if wheels else ()))),
            memory=wheels.memory.file(MEMORY) if wheels is not None else None,
            folder=next(iter(wheels.preopens), None) if wheels is not None else None,
            program=f"{CELL}/{guest.script}" if image else None,
            handles=entry.file(HANDLES) if image else None,
            translate=guest.translate,
            memory_exit=guest.memory_exit,
        )

    def _run_compiled(
        self,
        request: ExecRequest,
        guest: WasmLanguage,
        callbacks: _RunCallbacks,
    ) -> ExecResult:
        find_toolchain(request.language).warm()
        built = build(request, guest.script, self.pool, self.enforcer.name, callbacks.stop, callbacks.over)
        if isinstance(built, ExecResult):
            return built
        source = WasmSource(built.module, text=False)
        result = self._run_module(request, source, guest.argv[0], built.seconds, callbacks)
        messages = built.messages.decode("utf-8", "replace")
        return replace(result, stderr=messages + result.stderr, stderr_bytes=result.stderr_bytes + len(built.messages))

    def _run_module(
        self,
        request: ExecRequest,
        source: WasmSource,
        name: str,
        spent_s: float,
        callbacks: _RunCallbacks,
    ) -> ExecResult:
        switches = EngineSwitches(fuel=request.limits.fuel is not None)
        left = request.timeout - spent_s
        if left <= 0:
            return unfinished(request, Status.TIMEOUT, Limit.TIMEOUT, spent_s)
        made = self._modules.get(request, source, switches, left, callbacks.stop)
        if isinstance(made, ExecResult):
            return replace(made, duration=made.duration + spent_s)
        guest = GuestRun(
            argv=(name, *request.args),
            env={**self.policy.env, **request.env},
            switches=switches,
            module=SealedMemory(made.code),
        )
        return self._run_guest(request, guest, spent_s + made.seconds, callbacks)

    def _run_guest(
        self,
        request: ExecRequest,
        guest: GuestRun,
        spent_s: float,
        callbacks: _RunCallbacks,
    ) -> ExecResult:
        left = request.timeout - spent_s
        if left <= 0:
            return unfinished(request, Status.TIMEOUT, Limit.TIMEOUT, spent_s)
        ahead = (guest.module, guest.switches) if isinstance(guest.module, str) else None
        limits, memory_mb, enforcer = request.limits, request.memory_mb, self.enforcer.name
        walls = make_walls(limits, memory_mb, self.policy, enforcer, guest.runtime, ahead, self.grants)
        try:
            return self._run_in_jail(request, guest, walls, spent_s, callbacks)
        except SpareGone:
            return self._run_in_jail(request, guest, walls, spent_s, callbacks)

    def _run_in_jail(
        self, request: ExecRequest, guest: GuestRun, walls: Walls, spent_s: float, callbacks: _RunCallbacks
    ) -> ExecResult:
        left = request.timeout - spent_s
        with self.egress() as proxy:
            jail = self.pool.take(walls)
            try:
                over, began_ns = callbacks.over, time.time_ns()
                look = over.fill_copy(jail.box_fd, request.files, walls.box_bytes) if over is not None else None
                given = request if look is None else replace(request, files={})
                job = run_job_of(given, guest, jail, left, asks=callbacks.on_input is not None)
                job = replace(job, stdin_from=callbacks.stdin_from)
                if callbacks.calls is not None:
                    job = with_functions(job, callbacks.calls)
                listen = proxy.start if proxy is not None else None
                outcome = run_job(
                    jail,
                    job,
                    on_output=callbacks.on_output,
                    on_listener=listen,
                    stop=callbacks.stop,
                    on_usage=callbacks.on_usage,
                    on_input=callbacks.on_input,
                )
                result = wasm_result(request, outcome, job, backend=self.name, isolation=self.isolation_class)
                made = callbacks.calls.finish() if callbacks.calls is not None else ()
                result = replace(result, duration=result.duration + spent_s, compile_duration=spent_s, calls=made)
                if proxy is not None:
                    notes = (*result.notes, *network_notes(self.policy, NetworkSigns(), ()), *proxy.take_failures())
                    result = replace(result, violations=proxy.violations, notes=notes)
                if over is not None and look is not None:
                    return over.keep_run(result, look, began_ns)
                return with_changes(result, jail.box_fd, request, callbacks.keep)
            finally:
                jail.destroy()
                jail.forget()
