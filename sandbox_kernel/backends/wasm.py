"""The wasm backend: programs inside WebAssembly, and the engine itself behind the walls of a jail.

Two walls, one inside the other. The engine never runs in this process, and a module reaches it in two steps, each a
jailed child of its own: compile (checked, under limits, its outcome sealed in the private store), then run. Both share
the request's clock.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections import OrderedDict
from dataclasses import replace

from sandbox_kernel.backends.base import BackendCapabilities, OnOutput, SandboxBackend
from sandbox_kernel.backends.process import in_thread, shared_pool
from sandbox_kernel.backends.wasm_canaries import measure
from sandbox_kernel.backends.wasm_job import (
    COMPILE_CPU_S,
    COMPILE_MEMORY_MB,
    COMPILED,
    MOST_COMPILED_BYTES,
    GuestRun,
    compile_job,
    make_walls,
    run_job_of,
)
from sandbox_kernel.backends.wasm_key import Switches, compiled_name, engine_version
from sandbox_kernel.backends.wasm_report import read_report, wasm_result
from sandbox_kernel.backends.wasm_source import WasmSource, read_source
from sandbox_kernel.backends.wasm_store import WasmStore
from sandbox_kernel.errors import BackendUnavailable, EnforcerFailed, InvalidRequest
from sandbox_kernel.jail.control import JobFile
from sandbox_kernel.jail.enforcer import get_enforcer
from sandbox_kernel.jail.job import Outcome, Stop, run_job
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.walls import CELL
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.workspace.outcome import with_changes

#: Compiled modules of cells that are kept on disk, and those kept in memory.
_DISK_BYTES, _MEMORY_BYTES = 512 << 20, 64 << 20
_CELL = "cell-"


class WasmBackend(SandboxBackend):
    """Runs WebAssembly modules, and languages whose interpreters or programs are such modules."""

    name = "wasm"
    isolation_class = "wasm"

    def __init__(
        self, policy: SandboxPolicy | None = None, *, store: WasmStore | None = None, pool_size: int = 2
    ) -> None:
        self.policy = policy if policy is not None else SandboxPolicy.preset("standard")
        get_enforcer("auto")
        self.store = store if store is not None else WasmStore()
        self._pool: Pool = shared_pool(pool_size)
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def capabilities(self) -> BackendCapabilities:
        """See ``SandboxBackend``."""
        languages = {Language.WASM: Availability(available=True, version=engine_version(), origin="wasmtime")}
        return BackendCapabilities(
            supported_languages=tuple(languages),
            isolation_class=self.isolation_class,
            enforced_limits=measure(self),
            languages=languages,
        )

    async def execute(
        self, request: ExecRequest, *, on_output: OnOutput | None = None, cancel: asyncio.Event | None = None
    ) -> ExecResult:
        """See ``SandboxBackend``."""
        return await in_thread(lambda emit, stop: self.run(request, on_output=emit, stop=stop), on_output, cancel)

    def run(self, request: ExecRequest, *, on_output: OnOutput | None = None, stop: Stop | None = None) -> ExecResult:
        """Run a request on the calling thread; ``on_output`` is called on it too."""
        if request.language is not Language.WASM:
            raise InvalidRequest(f"the wasm backend does not run {request.language}; use backend='process'")
        source = read_source(request.code)
        switches = Switches(fuel=request.limits.fuel is not None)
        made = self._compiled(request, source, switches, stop)
        if isinstance(made, ExecResult):
            return made
        compiled, compile_s = made
        guest = GuestRun(
            module=f"{CELL}/{COMPILED}",
            argv=("cell.wasm", *request.args),
            env={**self.policy.env, **request.env},
            switches=switches,
            files=(JobFile(root=CELL, name=COMPILED, data=compiled),),
        )
        return self._run_guest(request, guest, compile_s, on_output, stop)

    def _run_guest(
        self, request: ExecRequest, guest: GuestRun, compile_s: float, on_output: OnOutput | None, stop: Stop | None
    ) -> ExecResult:
        left = request.timeout - compile_s
        if left <= 0:
            return self._unfinished(request, Status.TIMEOUT, "timeout", compile_s)
        walls = make_walls(request.limits, request.memory_mb, self.policy)
        job = run_job_of(request, guest, walls.grants, left)
        jail = self._pool.take(walls)
        try:
            outcome = run_job(jail, job, on_output=on_output, stop=stop)
            result = wasm_result(request, outcome, job, backend=self.name, isolation=self.isolation_class)
            result = replace(result, duration=result.duration + compile_s, compile_duration=compile_s)
            return with_changes(result, jail.box_fd, request)
        finally:
            jail.forget()

    def _compiled(
        self, request: ExecRequest, source: WasmSource, switches: Switches, stop: Stop | None
    ) -> tuple[bytes, float] | ExecResult:
        """The compiled module, from memory, from the store, or made now, and how long that took.

        A result when the run ends here.
        """
        kind = b"wat\0" if source.text else b"wasm\0"
        digest = hashlib.sha256(kind + source.data).hexdigest()
        key = compiled_name(_CELL, digest, switches)
        with self._lock:
            known = self._recent.get(key)
            if known is not None:
                self._recent.move_to_end(key)
                return known, 0.0
        entry = self.store.find(key)
        if entry is not None:
            self.store.touch(key)
            return self._remember(key, entry.read(COMPILED)), 0.0
        walls = make_walls(Limits(), request.memory_mb, SandboxPolicy())
        job = compile_job(
            source.data,
            text=source.text,
            switches=switches,
            timeout_s=request.timeout,
            memory_bytes=request.memory_mb * MIB,
        )
        jail = self._pool.take(walls)
        try:
            outcome = run_job(jail, job, stop=stop)
            failed = self._compile_failure(request, outcome)
            if failed is not None:
                return failed
            compiled = _read_file(jail.box_fd, COMPILED)
        finally:
            jail.forget()
        if len(compiled) > MOST_COMPILED_BYTES:
            raise InvalidRequest(
                f"the module compiles to {len(compiled)} bytes of machine code; at most {MOST_COMPILED_BYTES} are run"
            )
        self.store.prune(_CELL, _DISK_BYTES)
        self.store.add(key, {COMPILED: compiled})
        return self._remember(key, compiled), outcome.duration_s

    def _remember(self, key: str, compiled: bytes) -> bytes:
        with self._lock:
            self._recent[key] = compiled
            while sum(map(len, self._recent.values())) > _MEMORY_BYTES and len(self._recent) > 1:
                self._recent.popitem(last=False)
        return compiled

    def _compile_failure(self, request: ExecRequest, outcome: Outcome) -> ExecResult | None:
        """What a compilation that gave no module means: an error of the request, or a limit of the request."""
        ending = read_report(outcome.report)
        if outcome.stopped_by == "timeout":
            return self._unfinished(request, Status.TIMEOUT, "timeout", outcome.duration_s)
        if outcome.stopped_by == "cancel":
            return self._unfinished(request, Status.INTERRUPTED, None, outcome.duration_s)
        if outcome.stopped_by is not None or outcome.reading.memory_exceeded:
            raise InvalidRequest(
                f"the module is too costly to compile: stopped at {COMPILE_CPU_S:g} s of processor time or "
                f"{COMPILE_MEMORY_MB} MB of memory; make its functions fewer or simpler"
            )
        if ending is None:
            words = outcome.stderr.text.strip().splitlines()
            if "ModuleNotFoundError" in outcome.stderr.text:
                raise BackendUnavailable(
                    f"the engine cannot start inside the sandbox: {words[-1]}; pip install wasmtime"
                )
            raise EnforcerFailed("compiler", f"it died on this module: {words[-1] if words else outcome.exits}")
        if ending.end == "invalid":
            raise InvalidRequest(f"the module cannot be run: {ending.message}")
        if ending.end == "memory":
            result = self._unfinished(request, Status.MEMORY_EXCEEDED, "memory", outcome.duration_s)
            return replace(result, stderr=ending.message + "\n", stderr_bytes=len(ending.message.encode()) + 1)
        return None

    def _unfinished(self, request: ExecRequest, status: Status, limit: str | None, compile_s: float) -> ExecResult:
        return ExecResult(
            status=status,
            limit=limit,
            duration=compile_s,
            compile_duration=compile_s,
            language=str(request.language),
            backend=self.name,
            isolation=self.isolation_class,
            timeout=request.timeout,
            memory_limit_mb=request.memory_mb,
        )


def _read_file(folder: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
