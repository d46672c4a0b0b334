"""Compiled modules of cells: from memory, from the store, or compiled in a jail within the request's time limit."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from sandbox_kernel.backends.wasm.advice import with_advice
from sandbox_kernel.backends.wasm.module_key import EngineSwitches, compiled_name
from sandbox_kernel.backends.wasm.prepare import read_file
from sandbox_kernel.backends.wasm.source import WasmSource
from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_job import (
    COMPILE_CPU_S,
    COMPILE_MEMORY_MB,
    COMPILED,
    MOST_COMPILED_BYTES,
    compile_job,
    make_walls,
)
from sandbox_kernel.backends.wasm.wasm_result import GuestEnd, read_report, unfinished
from sandbox_kernel.errors import BackendUnavailable, EnforcerFailed, InvalidRequest
from sandbox_kernel.jail.core.job import JobOutcome
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run.ending import Ending
from sandbox_kernel.jail.run.run_job import run_job
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, MIB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Limit, Status
from sandbox_kernel.policy import SandboxPolicy

#: Most bytes of compiled cell modules on disk and in memory.
_DISK_BYTES, _MEMORY_BYTES = 512 << 20, 64 << 20
_CELL = "cell-"


@dataclass(frozen=True)
class CompiledModule:
    """Machine code of a module, and the seconds that this compilation took."""

    code: bytes
    seconds: float


class CellModules:
    """The compiled modules of cells. Safe for several threads."""

    def __init__(self, store: WasmStore, pool: Pool, enforcer: str) -> None:
        self._store = store
        self._pool = pool
        self._enforcer = enforcer
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, request: ExecRequest, source: WasmSource, switches: EngineSwitches, timeout_s: float, stop: Stop | None
    ) -> CompiledModule | ExecResult:
        """Return the compiled module, or the result of the run when compiling met a limit or was interrupted."""
        kind = b"wat\0" if source.text else b"wasm\0"
        key = compiled_name(_CELL, hashlib.sha256(kind + source.data).hexdigest(), switches)
        with self._lock:
            known = self._recent.get(key)
            if known is not None:
                self._recent.move_to_end(key)
                return CompiledModule(known, 0.0)
        entry = self._store.find(key)
        if entry is not None:
            self._store.touch(key)
            return CompiledModule(self._remember(key, entry.read(COMPILED)), 0.0)
        walls = make_walls(Limits(), DEFAULT_MEMORY_MB, SandboxPolicy(), self._enforcer)
        jail = self._pool.take(walls)
        try:
            job = compile_job(
                jail,
                source.data,
                text=source.text,
                switches=switches,
                timeout_s=timeout_s,
                memory_bytes=request.memory_mb * MIB,
            )
            outcome = run_job(jail, job, stop=stop)
            failed = _failure(request, outcome)
            if failed is not None:
                return failed
            code = read_file(jail.box_fd, COMPILED)
        finally:
            jail.destroy()
            jail.forget()
        if len(code) > MOST_COMPILED_BYTES:
            raise InvalidRequest(
                f"the module compiles to {len(code)} bytes of machine code; at most {MOST_COMPILED_BYTES} are run"
            )
        self._store.prune(_CELL, _DISK_BYTES)
        self._store.add(key, {COMPILED: code})
        return CompiledModule(self._remember(key, code), outcome.duration_s)

    def _remember(self, key: str, code: bytes) -> bytes:
        with self._lock:
            self._recent[key] = code
            while sum(map(len, self._recent.values())) > _MEMORY_BYTES and len(self._recent) > 1:
                self._recent.popitem(last=False)
        return code


def _failure(request: ExecRequest, outcome: JobOutcome) -> ExecResult | None:
    """Return the result of a run whose compilation was stopped; None when it succeeded.

    Raises ``InvalidRequest`` for a module that cannot be compiled.
    """
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
        reason = with_advice(ending.message, ending.defect).replace("--> <anon>:", "--> cell.wat:")
        raise InvalidRequest(f"the module cannot be run: {reason}")
    if ending.end is GuestEnd.MEMORY:
        result = unfinished(request, Status.MEMORY_EXCEEDED, Limit.MEMORY, outcome.duration_s)
        message = f"{ending.message}; give it more (--memory 256M, memory_mb=256) or let it start with less\n"
        return replace(result, stderr=message, stderr_bytes=len(message.encode()))
    return None
