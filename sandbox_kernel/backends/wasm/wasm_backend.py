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

from sandbox_kernel.backends.base import ALONE, BackendCapabilities, BlockingBackend, EnforcedLimits, RunContext
from sandbox_kernel.backends.checks import Listener, check_files_fit, check_request, host_trouble, unless_terminal
from sandbox_kernel.backends.functions.inside import served, typescript_files, wasm_python_files, with_functions
from sandbox_kernel.backends.measured.wasm_canaries import OnMeasured, measured
from sandbox_kernel.backends.outcome import NetworkSigns, make_result, network_notes
from sandbox_kernel.backends.process import shared_pool
from sandbox_kernel.backends.wasm.cell_modules import CellModules, WasmSource, read_source
from sandbox_kernel.backends.wasm.guest_images import EngineSwitches, why_not_image
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
from sandbox_kernel.backends.wasm.wasm_result import unfinished, wasm_facts
from sandbox_kernel.backends.wasm.wheels import MEMORY, PLACE, LoadedWheels, Wheels, load_wheels
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.enforcer import get_enforcer
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run_job import SpareGone, run_job
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.jail.walls import CELL, Walls
from sandbox_kernel.languages.guest_catalogue import WasmLanguage
from sandbox_kernel.model import (
    ExecRequest,
    ExecResult,
    Language,
    Limit,
    Note,
    Status,
)
from sandbox_kernel.model.notes import not_booted
from sandbox_kernel.policy import Grant, SandboxPolicy, check_policy
from sandbox_kernel.workspace.changes import files_left, leaves_files
from sandbox_kernel.workspace.given_grants import GivenGrants

if TYPE_CHECKING:
    from sandbox_kernel.backends.functions.call_server import CallServer
    from sandbox_kernel.net.fetch_policy import FetchPolicy
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy


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

    def run(self, request: ExecRequest, context: RunContext = ALONE) -> ExecResult:
        """See ``BlockingBackend``; ``on_usage`` includes the memory of the engine, and a terminal is not read.

        Python, JavaScript, TypeScript and the shell can call ``functions``; programs in other languages cannot.
        """
        self.check_network()
        check_request(request)
        check_files_fit(request, RUNTIME_MB)
        source = unless_terminal(context.stdin_from)
        asked = context.on_input if request.stdin is None and source is None else None
        listener = Listener(context.on_output) if context.on_output is not None else None
        context = replace(context, on_output=listener, on_input=asked, stdin_from=source)
        with host_trouble(listener), served(context.functions, context.loop) as calls:
            try:
                return self._run(_WasmRun(request=request, context=context, calls=calls))
            finally:
                # Last: making the next spare competes with this thread for the Python interpreter.
                self.pool.done()

    def _run(self, run: _WasmRun) -> ExecResult:
        request, calls = run.request, run.calls
        if request.language is Language.WASM:
            return self._run_module(run, read_source(request.code), "cell.wasm")
        guest = self._guest(request.language)
        check_mounts(self.policy, guest)
        if request.memory_mb < guest.memory_mb:
            raise InvalidRequest(
                f"a memory limit of {request.memory_mb} MB is below what {request.language} in WebAssembly needs to "
                f"start; give at least {guest.memory_mb} MB"
            )
        if guest.is_compiled:
            return self._run_compiled(run, guest)
        switches = switches_of(guest, fuel=request.limits.fuel is not None)
        why = self._why_not_image(request, guest)
        if why is not None and self.wheels is not None and request.language is Language.PYTHON:
            raise InvalidRequest(f"{why}, and wheels are part of an image of Python that has started; leave out one")
        guest = replace(guest, image={}) if why is not None else guest
        entry = self.ready(guest, switches)
        program = self._interpreter(request, guest, switches, entry)
        if calls is not None and request.language is Language.PYTHON:
            program = replace(program, files={**program.files, **wasm_python_files()})
        if calls is not None and self.check_types and request.language is Language.TYPESCRIPT:
            program = replace(program, files={**program.files, **typescript_files(calls.functions)})
        told = (not_booted(str(guest.language), why),) if why else ()
        return self._run_guest(replace(run, notes=told), program)

    def _why_not_image(self, request: ExecRequest, guest: WasmLanguage) -> str | None:
        """Return why a request needs its interpreter to start from nothing; None when it need not."""
        if not guest.image:
            return None
        env = {**self.policy.env, **request.env}
        return why_not_image(self.grants.now(root=True), (*guest.argv, *request.args), env)

    def loaded_wheels(self, guest: WasmLanguage, switches: EngineSwitches, entry: StoreEntry) -> LoadedWheels | None:
        """Return the wheels of this backend, loaded into the image of a Python; None for another guest."""
        if self.wheels is None or guest.language is not Language.PYTHON or not guest.image:
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

    def _run_compiled(self, run: _WasmRun, guest: WasmLanguage) -> ExecResult:
        request, context = run.request, run.context
        find_toolchain(request.language).warm()
        built = build(request, guest.script, self.pool, self.enforcer.name, context.stop, context.here)
        if isinstance(built, ExecResult):
            return run.ended_early(built)
        source = WasmSource(built.module, text=False)
        return self._run_module(replace(run, spent_s=built.seconds, messages=built.messages), source, guest.argv[0])

    def _run_module(self, run: _WasmRun, source: WasmSource, name: str) -> ExecResult:
        request = run.request
        switches = EngineSwitches(fuel=request.limits.fuel is not None)
        if run.left_s <= 0:
            return run.ended_early(unfinished(request, Status.TIMEOUT, Limit.TIMEOUT, 0.0))
        made = self._modules.get(request, source, switches, run.left_s, run.context.stop)
        if isinstance(made, ExecResult):
            return run.ended_early(made)
        guest = GuestRun(
            argv=(name, *request.args),
            env={**self.policy.env, **request.env},
            switches=switches,
            module=SealedMemory(made.code),
        )
        return self._run_guest(replace(run, spent_s=run.spent_s + made.seconds), guest)

    def _run_guest(self, run: _WasmRun, guest: GuestRun) -> ExecResult:
        request = run.request
        if run.left_s <= 0:
            return run.ended_early(unfinished(request, Status.TIMEOUT, Limit.TIMEOUT, 0.0))
        ahead = (guest.module, guest.switches) if isinstance(guest.module, str) else None
        limits, memory_mb, enforcer = request.limits, request.memory_mb, self.enforcer.name
        walls = make_walls(limits, memory_mb, self.policy, enforcer, guest.runtime, ahead, self.grants)
        try:
            return self._run_in_jail(run, guest, walls)
        except SpareGone:
            return self._run_in_jail(run, guest, walls)

    def _run_in_jail(self, run: _WasmRun, guest: GuestRun, walls: Walls) -> ExecResult:
        request, context, here = run.request, run.context, run.context.here
        with self.egress() as proxy:
            jail = self.pool.take(walls)
            try:
                began_ns = time.time_ns()
                look = here.fill_copy(jail.box_fd, request.files, walls.box_bytes) if here is not None else None
                given = request if look is None else replace(request, files={})
                job = run_job_of(given, guest, jail, run.left_s, asks=context.on_input is not None)
                job = replace(job, stdin_from=context.stdin_from, preamble=run.messages)
                if run.calls is not None:
                    job = with_functions(job, run.calls)
                listen = proxy.start if proxy is not None else None
                outcome = run_job(jail, job, context, on_listener=listen, stop=context.stop)
                facts = wasm_facts(outcome, job, context.chosen)
                facts.spent_s = facts.compile_s = run.spent_s
                told = [*facts.notes, *run.notes]
                if run.calls is not None:
                    facts.calls = run.calls.finish()
                if proxy is not None:
                    facts.violations = proxy.violations
                    told += (*network_notes(self.policy, NetworkSigns(), ()), *proxy.take_failures())
                kept = leaves_files(facts.status, facts.limit)
                if here is not None and look is not None:
                    left = here.keep_run(look, began_ns, kept=kept)
                else:
                    left = files_left(jail.box_fd, request.files, context.keep, kept=kept)
                facts.changes, facts.here, facts.notes = left.changes, left.here, (*told, *left.notes)
                return make_result(request, outcome, facts)
            finally:
                jail.destroy()
                jail.forget()


@dataclass(frozen=True, kw_only=True)
class _WasmRun:
    """One request while it runs: the time that compilers took, what they said, and notes for its result."""

    request: ExecRequest
    context: RunContext
    calls: CallServer | None
    spent_s: float = 0.0
    messages: bytes = b""
    notes: tuple[Note, ...] = ()

    @property
    def left_s(self) -> float:
        """What is left of the time limit."""
        return self.request.timeout - self.spent_s

    def ended_early(self, result: ExecResult) -> ExecResult:
        """Return the result of a run that ended before its guest began."""
        return replace(
            result,
            duration=result.duration + self.spent_s,
            compile_duration=(result.compile_duration or 0.0) + self.spent_s,
            chosen=self.context.chosen,
            here="" if self.context.here is None else "copy",
        )
