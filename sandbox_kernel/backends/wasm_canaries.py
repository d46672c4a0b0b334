"""What the wasm backend really enforces on this host: small programs that try, and what became of them.

Measured once a process, on the very path that runs requests, because a promise that nobody tried is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

from sandbox_kernel.backends.base import EnforcedLimits, Enforcement
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status
from sandbox_kernel.policy import SandboxPolicy


class Runs(Protocol):
    """A backend that runs a request on this thread."""

    policy: SandboxPolicy

    def run(self, request: ExecRequest) -> ExecResult:
        """See ``SandboxBackend``."""


_WASI = "wasi_snapshot_preview1"
_SPIN = '(module (func (export "_start") (loop $again (br $again))))'
_GROW = '(module (memory 1) (func (export "_start") (drop (memory.grow (i32.const 256)))))'
_PRINT = f"""(module
  (import "{_WASI}" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 4) (i32.const 4096))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"""
_FILL = f"""(module
  (import "{_WASI}" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "{_WASI}" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2) (data (i32.const 64) "big")
  (func (export "_start")
    (drop (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 3) (i32.const 9)
      (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 32)))
    (i32.store (i32.const 0) (i32.const 65536)) (i32.store (i32.const 4) (i32.const 65536))
    (loop $again
      (br_if $again (i32.eqz
        (call $write (i32.load (i32.const 32)) (i32.const 0) (i32.const 1) (i32.const 8)))))))"""
#: Leaves with 1 if a host file could be read, plus 2 if one could be made, plus 4 for each environment variable.
_ESCAPE = f"""(module
  (import "{_WASI}" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "{_WASI}" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
  (import "{_WASI}" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "../etc/passwd") (data (i32.const 128) "/etc/passwd") (data (i32.const 192) "../escaped")
  (global $seen (mut i32) (i32.const 0))
  (func $try (param $fd i32) (param $path i32) (param $size i32) (param $flags i32) (param $rights i64) (param $bit i32)
    (if (i32.eqz (call $open (local.get $fd) (i32.const 1) (local.get $path) (local.get $size) (local.get $flags)
        (local.get $rights) (i64.const 0) (i32.const 0) (i32.const 32)))
      (then (global.set $seen (i32.or (global.get $seen) (local.get $bit))))))
  (func (export "_start") (local $fd i32)
    (local.set $fd (i32.const 3))
    (loop $next
      (call $try (local.get $fd) (i32.const 64) (i32.const 13) (i32.const 0) (i64.const 2) (i32.const 1))
      (call $try (local.get $fd) (i32.const 128) (i32.const 11) (i32.const 0) (i64.const 2) (i32.const 1))
      (call $try (local.get $fd) (i32.const 192) (i32.const 10) (i32.const 9) (i64.const 64) (i32.const 2))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $fd) (i32.const 8))))
    (drop (call $environ (i32.const 0) (i32.const 4)))
    (call $exit (i32.add (global.get $seen) (i32.mul (i32.const 4) (i32.load (i32.const 0)))))))"""
_WANTS = '(module (import "{module}" "{name}" (func)) (func (export "_start")))'


def _request(code: str, *, timeout: float = 10.0, memory_mb: int = 64, limits: Limits | None = None) -> ExecRequest:
    return ExecRequest(
        language=Language.WASM, code=code, timeout=timeout, memory_limit_mb=memory_mb, limits=limits or Limits()
    )


def _tried(backend: Runs, request: ExecRequest, kept: Callable[[ExecResult], bool], by: str, what: str) -> Enforcement:
    try:
        result = backend.run(request)
    except SandboxError as error:
        return Enforcement(False, by, f"could not be tried: {error}")
    limit = f", limit {result.limit}" if result.limit else ""
    return Enforcement(kept(result), by, f"{what}: {result.status}{limit}")


def _refused(backend: Runs, module: str, name: str, by: str) -> Enforcement:
    try:
        backend.run(_request(_WANTS.format(module=module, name=name)))
    except InvalidRequest:
        return Enforcement(True, by, f"a module that asks for {module}.{name} is refused before it runs")
    except SandboxError as error:
        return Enforcement(False, by, f"could not be tried: {error}")
    return Enforcement(False, by, f"a module that asks for {module}.{name} was run")


@functools.lru_cache(maxsize=4)
def measure(backend: Runs) -> EnforcedLimits:
    """Try every limit once."""
    files = "WASI folders inside the mounts of the jail"
    code = backend.run(_request(_ESCAPE)).exit_code
    seen = 0xFF if code is None else code
    variables = seen >> 2

    return EnforcedLimits(
        timeout=_tried(
            backend,
            _request(_SPIN, timeout=0.3),
            lambda r: r.status is Status.TIMEOUT,
            "the jail is killed",
            "an endless loop with 0.3 s",
        ),
        memory=_tried(
            backend,
            _request(_GROW, memory_mb=1),
            lambda r: r.limit == "memory",
            "the engine refuses, and the jail's own limit stands behind it",
            "growing by 16 MB with 1 MB",
        ),
        cpu=_tried(
            backend,
            _request(_SPIN, limits=Limits(cpu_seconds=0.3)),
            lambda r: r.status is Status.CPU_LIMIT,
            "the jail counts",
            "an endless loop with 0.3 s of processor time",
        ),
        processes=_refused(backend, _WASI, "proc_fork", "no such call exists, and the jail's filter denies it"),
        disk=_tried(
            backend,
            _request(_FILL, limits=Limits(disk_mb=1)),
            lambda r: r.limit == "disk",
            "size of the work folder",
            "writing without end with 1 MB",
        ),
        output=_tried(
            backend,
            _request(_PRINT, limits=Limits(output_bytes=1024)),
            lambda r: r.stdout_truncated,
            "head and tail are kept",
            "printing 4096 bytes with 1024",
        ),
        network_isolation=_refused(backend, _WASI, "sock_open", "no such call exists, and the jail has no network"),
        filesystem_read_isolation=Enforcement(
            not seen & 1, files, f"/etc/passwd {'was' if seen & 1 else 'was not'} readable from any folder"
        ),
        filesystem_write_isolation=Enforcement(
            not seen & 2, files, f"a file outside {'was' if seen & 2 else 'was not'} made from any folder"
        ),
        environment_isolation=Enforcement(
            variables == len(backend.policy.env),
            "an environment of its own",
            f"{variables} variables are seen, {len(backend.policy.env)} were given",
        ),
        syscall_filter=_refused(backend, "env", "syscall", "no system call can be expressed; seccomp stands behind"),
    )
