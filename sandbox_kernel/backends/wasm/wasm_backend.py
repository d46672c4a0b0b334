"""The wasm backend: runs programs in a WebAssembly engine, and the engine in a jail, never in the host's process.

A module takes two steps, each in a jail of its own: compile (checked, limited, the result kept in a private folder),
then run. Both count against the time limit of the request. Languages run on interpreters that are modules too
(``languages/guests.toml``) and are prepared once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib.resources
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.base import ALONE, BackendCapabilities, JailBackend, JailRun, RunContext
from sandbox_kernel.backends.checks import check_files_fit, check_request, host_trouble, unless_terminal
from sandbox_kernel.backends.functions.inside import with_functions
from sandbox_kernel.backends.outcome import NetworkSigns
from sandbox_kernel.backends.probes.wasm_canaries import measured
from sandbox_kernel.backends.process import shared_pool
from sandbox_kernel.backends.wasm.prepare import OnProgress, WasmLanguages, compiled_name, switches_of
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.toolchains import build, find_toolchain
from sandbox_kernel.backends.wasm.wasm_job import (
    COMPILE_CPU_S,
    COMPILE_MEMORY_MB,
    COMPILED,
    FACTS,
    MOST_COMPILED_BYTES,
    RUNTIME_MB,
    WHEELS,
    EngineSwitches,
    GuestEnd,
    GuestRun,
    check_mounts,
    make_walls,
    making_job,
    read_file,
    read_report,
    run_job_of,
    taken,
    unfinished,
    wasm_result,
)
from sandbox_kernel.backends.wasm.wheels import Wheels, kept_wheels
from sandbox_kernel.errors import BackendUnavailable, EnforcerFailed, InvalidRequest
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.enforcer import Enforcer, get_enforcer
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.pool import SPARES, Pool
from sandbox_kernel.jail.run_job import JobOutcome, SpareGone, run_job
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.jail.streams import ListenerFailed, guarded
from sandbox_kernel.jail.walls import CELL, Walls
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled
from sandbox_kernel.languages.guest_catalogue import WasmLanguage
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Limit, Status
from sandbox_kernel.model.notes import not_booted
from sandbox_kernel.policy import Grant, SandboxPolicy
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.given_grants import GivenGrants

if TYPE_CHECKING:
    from sandbox_kernel.net.fetch_policy import FetchPolicy
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy


class WasmBackend(WasmLanguages, JailBackend):
    """Runs WebAssembly modules, and languages whose interpreters or programs are such modules.

    The first request of a language prepares it if needed, before the time limit of that request starts.

    Args:
        policy: What programs may read, write and reach; None for the preset ``standard``.
        enforcer: The tool that builds the walls around the engine: ``auto``, ``bubblewrap`` or ``landlock``.
        store: Folder of compiled modules; None for the store of the user.
        pool_size: Number of spare jails that wait for runs.
        on_progress: Called with the progress of a preparation, on the thread that waits for it.
        proxy: Function that makes the proxy of a run for a ``FetchPolicy``; None for ``EgressProxy``.
        wheels: Packages that Python programs can import, loaded in advance; None for none.
        grants: The opened paths of the policy, where another backend has them already; None opens them.
    """

    name = "wasm"
    isolation_class = "wasm"
    enforcer: Enforcer

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        enforcer: str = "auto",
        store: WasmStore | None = None,
        pool_size: int = SPARES,
        on_progress: OnProgress | None = None,
        proxy: Callable[[FetchPolicy], EgressProxy] | None = None,
        wheels: Wheels | None = None,
        grants: GivenGrants | None = None,
    ) -> None:
        super().__init__(policy, get_enforcer(enforcer), proxy, grants)
        self.store = store if store is not None else WasmStore()
        self.on_progress = on_progress
        self.wheels = wheels
        self.pool: Pool = shared_pool(pool_size)

    def capabilities(self) -> BackendCapabilities:
        """See ``SandboxBackend``; each limit is measured once."""
        languages = self._languages()
        return BackendCapabilities(
            supported_languages=tuple(name for name, found in languages.items() if found.available),
            isolation_class=self.isolation_class,
            enforced_limits=measured(self),
            languages=languages,
        )

    def run(self, request: ExecRequest, context: RunContext = ALONE) -> ExecResult:
        """See ``BlockingBackend``; ``on_usage`` includes the memory of the engine, and a terminal is not read.

        Python, JavaScript, TypeScript and the shell can call ``functions``; programs in other languages cannot.
        """
        self.check_network()
        check_request(request)
        check_files_fit(request, RUNTIME_MB)
        source = unless_terminal(context.stdin_from)
        asked = context.on_input if request.stdin is None and source is None else None
        context = replace(context, on_output=guarded(context.on_output), on_input=asked, stdin_from=source)
        try:
            with host_trouble(), context.served() as calls:
                return self._run(_WasmRun(request=request, context=context, calls=calls))
        except ListenerFailed as error:
            raise error.reason from None
        finally:
            # Last: making the next spare competes with this thread for the Python interpreter.
            self.pool.done()

    def _run(self, run: _WasmRun) -> ExecResult:
        request = run.request
        if request.language is Language.WASM:
            return self._run_module(run, read_source(request.code), "cell.wasm")
        guest = self._guest(request.language)
        self.check_mounts(guest)
        if request.memory_mb < guest.memory_mb:
            raise InvalidRequest(
                f"a memory limit of {request.memory_mb} MB is below what {request.language} in WebAssembly needs to "
                f"start; give at least {guest.memory_mb} MB"
            )
        if guest.is_compiled:
            find_toolchain(request.language).runtime()
            found = build(request, guest.script, self.pool, self.enforcer.name, run.context.stop, run.context.here)
            if isinstance(found, ExecResult):
                return run.ended_early(found)
            built, seconds = found
            source = WasmSource(built.program, text=False)
            return self._run_module(replace(run, spent_s=seconds, messages=built.messages), source, guest.argv[0])
        switches = switches_of(guest, fuel=request.limits.fuel is not None)
        program = self._interpreter(request, guest, switches, self.ready(guest, switches))
        unread = [name for name in program.env if name.startswith("PYTHON") and name != "PYTHONPATH"]
        told = (not_booted(", ".join(unread)),) if unread and guest.image else ()
        return self._run_guest(replace(run, notes=told), program)

    def check_mounts(self, guest: WasmLanguage) -> None:
        """Raise ``PolicyViolation`` for mounts of the policy that a language cannot have."""
        check_mounts(self.policy, self.grants.now(root=True), guest, wheels=self.wheels is not None)

    def wheels_for(self, guest: WasmLanguage) -> list[StoreEntry]:
        """Return the files of the wheels of this backend for a Python that is an image; nothing for other guests."""
        if self.wheels is None or guest.language is not Language.PYTHON or not guest.image:
            return []
        return [kept_wheels(self.store, self.wheels)]

    def _interpreter(
        self, request: ExecRequest, guest: WasmLanguage, switches: EngineSwitches, entry: StoreEntry
    ) -> GuestRun:
        folder = importlib.resources.files("sandbox_kernel") / "guest"
        helpers = {name: (folder / ours).read_bytes() for name, ours in guest.helpers.items()}
        argv, env = (*guest.argv, *request.args), {**guest.env, **self.policy.env, **request.env}
        entered: dict[str, object] = {"booted": bool(guest.image)}
        if guest.entry == "quickjs":
            argv = ("quickjs", *request.args)
            entered = {"program": f"{CELL}/{guest.script}", "facts": entry.file(FACTS), "translate": guest.translate}
        wheels = self.wheels_for(guest)
        return GuestRun(
            module=entry.file(COMPILED),
            argv=argv,
            env=env,
            switches=switches,
            files={guest.script: request.source, **helpers},
            sees_cell=True,
            runtime=[Grant(found.path, found.path, False) for found in (entry, *wheels)],
            folders=[{"host": found.path, "guest": WHEELS, "writable": False} for found in wheels],
            entered=entered,
        )

    def _run_module(self, run: _WasmRun, source: WasmSource, name: str) -> ExecResult:
        request = run.request
        switches: EngineSwitches = {"fuel": request.limits.fuel is not None}
        if run.left_s <= 0:
            return run.ended_early(unfinished(request, Status.TIMEOUT, Limit.TIMEOUT))
        made = self._compiled(run, source, switches)
        if isinstance(made, ExecResult):
            return run.ended_early(made)
        code, seconds = made
        guest = GuestRun(
            argv=(name, *request.args),
            env={**self.policy.env, **request.env},
            switches=switches,
            module=SealedMemory(code),
        )
        return self._run_guest(replace(run, spent_s=run.spent_s + seconds), guest)

    def _compiled(
        self, run: _WasmRun, source: WasmSource, switches: EngineSwitches
    ) -> tuple[bytes, float] | ExecResult:
        """Return the machine code of a module and the seconds that compiling took, or how it ended the run."""
        kind = b"wat\0" if source.text else b"wasm\0"
        key = compiled_name("", hashlib.sha256(kind + source.data).hexdigest(), switches)
        kept = CompileCache(os.path.join(self.store.folder, "cells"))
        known = kept.get(key)
        if known is not None:
            return known.program, 0.0
        walls = make_walls(Limits(), DEFAULT_MEMORY_MB, SandboxPolicy(), self.enforcer.name)
        with taken(self.pool, walls) as jail:
            plan = {
                "task": "compile",
                "source": f"{jail.places.cell}/module",
                "out": f"{jail.places.work}/{COMPILED}",
                "text": source.text,
                "switches": switches,
            }
            given = [JobFile(root=jail.places.cell, name="module", data=source.data)]
            job = making_job(
                jail, plan, given, timeout_s=run.left_s, memory_mb=COMPILE_MEMORY_MB, cpu_seconds=COMPILE_CPU_S
            )
            outcome = run_job(jail, job, stop=run.context.stop)
            failed = _failure(run.request, outcome)
            if failed is not None:
                return failed
            code = read_file(jail.box_fd, COMPILED)
        if len(code) > MOST_COMPILED_BYTES:
            raise InvalidRequest(
                f"the module compiles to {len(code)} bytes of machine code; at most {MOST_COMPILED_BYTES} are run"
            )
        kept.put(key, Compiled(code, b""))
        return code, outcome.duration_s

    def _run_guest(self, run: _WasmRun, guest: GuestRun) -> ExecResult:
        request = run.request
        if run.left_s <= 0:
            return run.ended_early(unfinished(request, Status.TIMEOUT, Limit.TIMEOUT))
        ahead = (guest.module, guest.switches) if isinstance(guest.module, str) else None
        limits, memory_mb, enforcer = request.limits, request.memory_mb, self.enforcer.name
        walls = make_walls(limits, memory_mb, self.policy, enforcer, guest.runtime, ahead, self.grants)
        try:
            return self._run_in_jail(run, guest, walls)
        except SpareGone:
            return self._run_in_jail(run, guest, walls)

    def _run_in_jail(self, run: _WasmRun, guest: GuestRun, walls: Walls) -> ExecResult:
        request, context = run.request, run.context
        with self.egress() as proxy, taken(self.pool, walls) as jail:
            run = replace(run, proxy=proxy).filled(jail)
            given = request if context.here is None else replace(request, files={})
            job = run_job_of(given, guest, jail, run.left_s, asks=context.on_input is not None)
            job = replace(job, stdin_from=context.stdin_from, preamble=run.messages)
            if run.calls is not None:
                job = with_functions(job, run.calls)
            outcome = run.start(jail, job)
            result = replace(wasm_result(request, outcome, job, context.chosen), compile_duration=run.spent_s)
            return self._ended(run, jail, result, NetworkSigns())


@dataclass(frozen=True, kw_only=True)
class _WasmRun(JailRun):
    """One request while it runs, and what compilers said."""

    messages: bytes = b""

    @property
    def left_s(self) -> float:
        """What is left of the time limit."""
        return self.request.timeout - self.spent_s

    def ended_early(self, result: ExecResult) -> ExecResult:
        """Return the whole result of a run that ended before its guest began."""
        return replace(
            result,
            duration=result.duration + self.spent_s,
            compile_duration=(result.compile_duration or 0.0) + self.spent_s,
            chosen=self.context.chosen,
            here="" if self.context.here is None else "copy",
        )


MAGIC = b"\0asm"
_ACCEPTED = "give WAT text beginning with '(', the bytes of a .wasm file, or those bytes as base64"


@dataclass(frozen=True)
class WasmSource:
    """The input of the compile step: WAT as UTF-8 when ``text`` is true, else the bytes of a module."""

    data: bytes
    text: bool


def read_source(code: str | bytes) -> WasmSource:
    """Recognise the form of ``code``; the content of a file is given as bytes."""
    if isinstance(code, bytes):
        if code.startswith(MAGIC):
            return WasmSource(code, text=False)
        if code.startswith(b"\x7fELF"):
            raise InvalidRequest(
                "this is native code (a precompiled .cwasm or an ELF program), which is never loaded from outside; "
                "give the .wasm it was made from"
            )
        begin = code[:4].hex(" ")
        try:
            code = code.decode()
        except UnicodeDecodeError:
            code = "\0"
        if "\0" in code:
            raise InvalidRequest(f"bytes that begin with {begin} are not WebAssembly: {_ACCEPTED}")
    stripped = code.strip()
    # WAT may begin with a comment: ;; or (; …
    if stripped.startswith(("(", ";;")):
        return WasmSource(code.encode(), text=True)
    compact = "".join(stripped.removeprefix("data:application/wasm;base64,").split())
    if not compact.startswith("AGFzb"):
        raise InvalidRequest(f"{stripped[:40]!r}… is not WebAssembly: {_ACCEPTED}")
    plain = compact.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return WasmSource(base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True), text=False)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"the base64 of the module is damaged: {error}; encode the file again") from None


def _failure(request: ExecRequest, outcome: JobOutcome) -> ExecResult | None:
    """Return the result of a run whose compilation was stopped; None if it succeeded. Raises ``InvalidRequest``."""
    ending = read_report(outcome.report)
    if outcome.stopped_by is Ending.TIMEOUT:
        return unfinished(request, Status.TIMEOUT, Limit.TIMEOUT, outcome.duration_s)
    if outcome.stopped_by is Ending.CANCEL:
        return unfinished(request, Status.INTERRUPTED, None, outcome.duration_s)
    if outcome.stopped_by is not None or outcome.reading.memory_exceeded:
        raise InvalidRequest(
            f"the module is too costly to compile: stopped at {COMPILE_CPU_S:g} s of processor time or "
            f"{COMPILE_MEMORY_MB} MB of memory; make its functions fewer or simpler"
        )
    if ending is None:
        words = outcome.stderr.text.strip().splitlines()
        if "ModuleNotFoundError" in outcome.stderr.text:
            raise BackendUnavailable(f"the engine cannot start inside the sandbox: {words[-1]}; pip install wasmtime")
        raise EnforcerFailed("compiler", f"it died on this module: {words[-1] if words else outcome.exits}")
    if ending.end is GuestEnd.INVALID:
        reason = ending.message.replace("--> <anon>:", "--> cell.wat:")
        raise InvalidRequest(f"the module cannot be run: {reason}")
    return None
