"""Measures what the wasm backend enforces here: programs that try to break each promise, each with a control."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sandbox_kernel.backends.base import EnforcedLimits, Enforcement
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status
from sandbox_kernel.policy import SandboxPolicy

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend

#: Called with the number of measured promises and of all.
OnMeasured = Callable[[int, int], None]

_WASI = "wasi_snapshot_preview1"
_NOTHING = '(module (func (export "_start")))'
_SPIN = '(module (func (export "_start") (loop $again (br $again))))'
_GROW = '(module (memory 1) (func (export "_start") (drop (memory.grow (i32.const 256)))))'
_PRINT = f"""(module
  (import "{_WASI}" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 4) (i32.const 4096))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"""
_WRITE = """(module
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2) (data (i32.const 64) "big")
  (func (export "_start")
    (drop (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 3) (i32.const 9)
      (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 32)))
    (i32.store (i32.const 0) (i32.const 65536)) (i32.store (i32.const 4) (i32.const 65536))
    (loop $again
      (br_if $again (i32.and (i32.const {goes_on}) (i32.eqz
        (call $write (i32.load (i32.const 32)) (i32.const 0) (i32.const 1) (i32.const 8))))))))"""
_FILL, _WRITE_ONCE = (_WRITE.replace("{goes_on}", number) for number in ("1", "0"))
#: Exit code: 1 if a file could be read, plus 2 if one could be made, plus 4 for each environment variable.
_REACH = """(module
  (import "{wasi}" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "{wasi}" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
  (import "{wasi}" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "{near}") (data (i32.const 128) "{far}") (data (i32.const 192) "{made}")
  (global $seen (mut i32) (i32.const 0))
  (func $try (param $fd i32) (param $path i32) (param $size i32) (param $flags i32) (param $rights i64) (param $bit i32)
    (if (i32.eqz (call $open (local.get $fd) (i32.const 1) (local.get $path) (local.get $size) (local.get $flags)
        (local.get $rights) (i64.const 0) (i32.const 0) (i32.const 32)))
      (then (global.set $seen (i32.or (global.get $seen) (local.get $bit))))))
  (func (export "_start") (local $fd i32)
    (local.set $fd (i32.const 3))
    (loop $next
      (call $try (local.get $fd) (i32.const 64) (i32.const {near_size}) (i32.const 0) (i64.const 2) (i32.const 1))
      (call $try (local.get $fd) (i32.const 128) (i32.const {far_size}) (i32.const 0) (i64.const 2) (i32.const 1))
      (call $try (local.get $fd) (i32.const 192) (i32.const {made_size}) (i32.const 9) (i64.const 64) (i32.const 2))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $fd) (i32.const 8))))
    (drop (call $environ (i32.const 0) (i32.const 4)))
    (call $exit (i32.add (global.get $seen) (i32.mul (i32.const 4) (i32.load (i32.const 0)))))))"""


def _reach(near: str, far: str, made: str) -> str:
    return _REACH.format(
        wasi=_WASI, near=near, far=far, made=made, near_size=len(near), far_size=len(far), made_size=len(made)
    )


_OUTSIDE = _reach("../etc/passwd", "/etc/passwd", "../escaped")
_INSIDE = _reach("own", "own", "made")
_PLAIN = ExecRequest(language=Language.WASM, code=_NOTHING, timeout=10.0, memory_limit_mb=64)


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """A limit, a module that exceeds it, one that stays below it, and descriptions of both."""

    over: ExecRequest
    below: ExecRequest
    kept: Callable[[ExecResult], bool]
    by: str
    what: str
    stays: str

    def __call__(self, backend: WasmBackend) -> Enforcement:
        over, below = backend.run(self.over), backend.run(self.below)
        limit = f", limit {over.limit}" if over.limit else ""
        evidence = f"{self.what}: {over.status}{limit}; {self.stays}: {below.status}"
        return Enforcement(self.kept(over) and below.ok and below.limit is None, self.by, evidence)


def _refused(backend: WasmBackend, *, module: str, name: str, by: str) -> Enforcement:
    control = backend.run(replace(_PLAIN, code=_PRINT))
    try:
        backend.run(replace(_PLAIN, code=f'(module (import "{module}" "{name}" (func)) (func (export "_start")))'))
    except InvalidRequest:
        evidence = f"a module that asks for {module}.{name} is refused before it runs; for {_WASI}.fd_write: "
        return Enforcement(control.ok, by, f"{evidence}{control.status}")
    return Enforcement(False, by, f"a module that asks for {module}.{name} was run")


def _reached(backend: WasmBackend, request: ExecRequest) -> int:
    """Return as bits what a module could reach; all bits when it did not exit normally."""
    code = backend.run(request).exit_code
    return 0xFF if code is None else code


def _files(backend: WasmBackend, *, bit: int, what: str, done: str, own: str) -> Enforcement:
    outside = bool(_reached(backend, replace(_PLAIN, code=_OUTSIDE)) & bit)
    inside = bool(_reached(backend, replace(_PLAIN, code=_INSIDE, files={"own": b"x"})) & bit)
    evidence = f"{what} {_was(outside)} {done} from any folder; {own} {_was(inside)}"
    return Enforcement(not outside and inside, "WASI folders inside the mounts of the jail", evidence)


def _was(done: bool) -> str:
    return "was" if done else "was not"


def _environment(backend: WasmBackend) -> Enforcement:
    given, request = len(backend.policy.env), replace(_PLAIN, code=_OUTSIDE)
    alone = _reached(backend, request) >> 2
    one_more = _reached(backend, replace(request, env={"CONTROL": "1"})) >> 2
    evidence = f"{alone} variables are seen, {given} were given; with one more: {one_more}"
    return Enforcement((alone, one_more) == (given, given + 1), "an environment of its own", evidence)


_TRIALS: dict[str, Callable[[WasmBackend], Enforcement]] = {
    "timeout": _Trial(
        over=replace(_PLAIN, code=_SPIN, timeout=0.3),
        below=_PLAIN,
        kept=lambda result: result.status is Status.TIMEOUT,
        by="the jail is killed",
        what="an endless loop with 0.3 s",
        stays="one that ends",
    ),
    "memory": _Trial(
        over=replace(_PLAIN, code=_GROW, memory_limit_mb=1),
        below=replace(_PLAIN, code=_GROW, memory_limit_mb=64),
        kept=lambda result: result.limit == "memory",
        by="the engine refuses, and the jail has a limit of its own",
        what="growing by 16 MB with 1 MB",
        stays="with 64 MB",
    ),
    "cpu": _Trial(
        over=replace(_PLAIN, code=_SPIN, limits=Limits(cpu_seconds=0.3)),
        below=_PLAIN,
        kept=lambda result: result.status is Status.CPU_LIMIT,
        by="the jail counts",
        what="an endless loop with 0.3 s of processor time",
        stays="one that ends",
    ),
    "processes": partial(
        _refused, module=_WASI, name="proc_fork", by="no such call exists, and the jail's filter denies it"
    ),
    "disk": _Trial(
        over=replace(_PLAIN, code=_FILL, limits=Limits(disk_mb=1)),
        below=replace(_PLAIN, code=_WRITE_ONCE, limits=Limits(disk_mb=1)),
        kept=lambda result: result.limit == "disk",
        by="size of the work folder",
        what="writing without end with 1 MB",
        stays="writing 64 KiB",
    ),
    "output": _Trial(
        over=replace(_PLAIN, code=_PRINT, limits=Limits(output_bytes=1024)),
        below=replace(_PLAIN, code=_PRINT),
        kept=lambda result: result.stdout_truncated,
        by="head and tail are kept",
        what="printing 4096 bytes with 1024",
        stays="with 1 MiB",
    ),
    "network_isolation": partial(
        _refused, module=_WASI, name="sock_open", by="no such call exists, and the jail has no network"
    ),
    "filesystem_read_isolation": partial(_files, bit=1, what="/etc/passwd", done="read", own="a file of its own"),
    "filesystem_write_isolation": partial(_files, bit=2, what="a file outside", done="made", own="one in its folder"),
    "environment_isolation": _environment,
    "syscall_filter": partial(
        _refused, module="env", name="syscall", by="a module cannot make system calls; seccomp refuses them too"
    ),
}


def _try(trial: Callable[[WasmBackend], Enforcement], backend: WasmBackend) -> Enforcement:
    try:
        return trial(backend)
    except SandboxError as error:
        return Enforcement(False, "none", f"could not be tried: {error}")


_lock = threading.Lock()
_found: dict[tuple[str, SandboxPolicy], EnforcedLimits] = {}


def measured(backend: WasmBackend, *, again: bool = False, on_progress: OnMeasured | None = None) -> EnforcedLimits:
    """Measure every promise, once a process for each kind of walls and policy. Calls ``on_progress`` on this thread."""
    key = (backend.enforcer.name, backend.policy)
    with _lock:
        if again or key not in _found:
            with ThreadPoolExecutor(max_workers=4, thread_name_prefix="sandbox-canary") as threads:
                tried = {name: threads.submit(_try, trial, backend) for name, trial in _TRIALS.items()}
                for number, _ in enumerate(as_completed(tried.values()), 1):
                    if on_progress is not None:
                        on_progress(number, len(tried))
            _found[key] = EnforcedLimits(**{name: promise.result() for name, promise in tried.items()})
        return _found[key]
