"""The programs of the soaks: programs of every language that succeed, and programs that fail in known ways."""

from __future__ import annotations

from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, Language, Status

#: A program that prints its token, by language.
GOOD = {
    "python": "print('@')",
    "javascript": "console.log('@')",
    "typescript": "const said: string = '@'; console.log(said)",
    "command": "echo @",
    "c": '#include <stdio.h>\nint main(){puts("@");}',
    "cpp": '#include <iostream>\nint main(){std::cout << "@\\n";}',
    "rust": 'fn main() { println!("@"); }',
    "ruby": "puts '@'",
    "perl": 'print "@\\n"',
    "php": '<?php echo "@\\n";',
    "lua": "print('@')",
}
#: Programs that fail: Python code, the expected statuses, and the limits of the run.
BAD: dict[str, tuple[str, tuple[Status, ...], Limits]] = {
    "fails": ("print('@'); raise SystemExit(3)", (Status.FAILED,), Limits()),
    "dies": ("import os; print('@', flush=True); os.kill(os.getpid(), 9)", (Status.KILLED,), Limits()),
    "crashes": ("import ctypes; print('@', flush=True); ctypes.string_at(0)", (Status.FAILED, Status.KILLED), Limits()),
    "hogs memory": ("print('@', flush=True); x = b'1' * (1 << 30)", (Status.MEMORY_EXCEEDED,), Limits()),
    "fills the disk": (
        "print('@', flush=True); open('f', 'wb').write(bytes(64 << 20))", (Status.FAILED,), Limits(disk_mb=8),
    ),
    "burns": ("print('@', flush=True)\nwhile True: pass", (Status.CPU_LIMIT,), Limits(cpu_seconds=0.2)),
    "hangs": ("import time; print('@', flush=True); time.sleep(60)", (Status.TIMEOUT,), Limits()),
    "floods": ("print('@')\nfor _ in range(200): print('x' * 65536)", (Status.OK,), Limits(output_bytes=4096)),
    "forks": (
        "import os; print('@', flush=True)\nwhile True: os.fork()",
        (Status.FAILED, Status.TIMEOUT, Status.KILLED), Limits(processes=8),
    ),
}  # fmt: skip


def backend_with(cache: str) -> ProcessBackend:
    """Return the backend of this soak, with its own pool and cache."""
    return ProcessBackend(ProcessConfig(pool_size=2, cache_dir=cache))


def program(language: str, token: str) -> tuple[ExecRequest, str]:
    """Return a program that succeeds, and its expected output."""
    code = GOOD[language].replace("@", token)
    return ExecRequest(language=Language.parse(language), code=code, timeout=120), f"{token}\n"


def module(token: str) -> str:
    """Return the text of a wasm module that prints a token."""
    return (
        '(module (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))'
        f' (memory (export "memory") 1) (data (i32.const 16) "{token}\\n")'
        ' (func (export "_start") (i32.store (i32.const 0) (i32.const 16))'
        f" (i32.store (i32.const 4) (i32.const {len(token) + 1}))"
        " (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"
    )
