"""Compiled modules of cells: from memory, from the store, or compiled in a jail within the request's time limit.

``read_source`` recognises the form of a module (text, binary or base64); it runs and compiles nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from sandbox_kernel.backends.wasm.guest_images import EngineSwitches, compiled_name
from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_job import (
    COMPILE_CPU_S,
    COMPILE_MEMORY_MB,
    COMPILED,
    MOST_COMPILED_BYTES,
    compile_job,
    make_walls,
)
from sandbox_kernel.backends.wasm.wasm_result import GuestEnd, read_file, read_report, unfinished
from sandbox_kernel.errors import BackendUnavailable, EnforcerFailed, InvalidRequest
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run_job import JobOutcome, run_job
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, MIB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Limit, Status
from sandbox_kernel.policy import SandboxPolicy

MAGIC = b"\0asm"
_ELF = b"\x7fELF"
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}\Z")
_ACCEPTED = "give WAT text beginning with '(', the bytes of a .wasm file, or those bytes as base64"


@dataclass(frozen=True)
class WasmSource:
    """The input of the compile step: WAT as UTF-8 when ``text`` is true, else the bytes of a module."""

    data: bytes
    text: bool


def read_source(code: str | bytes) -> WasmSource:
    """Recognise the form of ``code``; the content of a file is given as bytes."""
    if isinstance(code, bytes):
        return _from_bytes(code)
    stripped = code.strip()
    # WAT may begin with a comment: ;; or (; …
    if stripped.startswith(("(", ";;")):
        return WasmSource(code.encode(), text=True)
    compact = "".join(stripped.removeprefix("data:application/wasm;base64,").split())
    if compact.startswith("AGFzb") and _BASE64.match(compact):
        return WasmSource(_decode(compact), text=False)
    if compact.startswith("AGFzb"):
        raise InvalidRequest(f"the base64 of the module holds characters that base64 does not have; {_ACCEPTED}")
    raise InvalidRequest(f"{stripped[:40]!r}… is not WebAssembly: {_ACCEPTED}")


def _from_bytes(code: bytes) -> WasmSource:
    if code.startswith(MAGIC):
        return WasmSource(code, text=False)
    if code.startswith(_ELF):
        raise InvalidRequest(
            "this is native code (a precompiled .cwasm or an ELF program), which is never loaded from outside; "
            "give the .wasm it was made from"
        )
    try:
        text = code.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"bytes that begin with {code[:4].hex(' ')} are not WebAssembly: {_ACCEPTED}") from None
    if "\0" in text:
        raise InvalidRequest(f"bytes that begin with {code[:4].hex(' ')} are not WebAssembly: {_ACCEPTED}")
    return read_source(text)


def _decode(compact: str) -> bytes:
    plain = compact.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"the base64 of the module is damaged: {error}; encode the file again") from None


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
        reason = ending.message.replace("--> <anon>:", "--> cell.wat:")
        raise InvalidRequest(f"the module cannot be run: {reason}")
    if ending.end is GuestEnd.MEMORY:
        result = unfinished(request, Status.MEMORY_EXCEEDED, Limit.MEMORY, outcome.duration_s)
        message = f"{ending.message}; give it more (--memory 256M, memory_mb=256) or let it start with less\n"
        return replace(result, stderr=message, stderr_bytes=len(message.encode()))
    return None
