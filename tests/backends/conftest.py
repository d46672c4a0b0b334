"""WebAssembly programs for tests, written as text, and a backend with a store of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language

SIGNATURES = {
    "fd_write": "(param i32 i32 i32 i32) (result i32)",
    "fd_read": "(param i32 i32 i32 i32) (result i32)",
    "proc_exit": "(param i32)",
    "poll_oneoff": "(param i32 i32 i32 i32) (result i32)",
    "environ_sizes_get": "(param i32 i32) (result i32)",
    "environ_get": "(param i32 i32) (result i32)",
    "args_sizes_get": "(param i32 i32) (result i32)",
    "args_get": "(param i32 i32) (result i32)",
    "clock_time_get": "(param i32 i64 i32) (result i32)",
    "random_get": "(param i32 i32) (result i32)",
    "path_open": "(param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)",
    "path_create_directory": "(param i32 i32 i32) (result i32)",
    "fd_filestat_set_size": "(param i32 i64) (result i32)",
}


@pytest.fixture(scope="session")
def wat() -> Callable[..., str]:
    """A WAT program: WASI calls by name, one memory, data at 16, and the body of _start."""

    def build(body: str, *imports: str, memory: str = "1", extra: str = "", data: str = "") -> str:
        wanted = " ".join(
            f'(import "wasi_snapshot_preview1" "{name}" (func ${name} {SIGNATURES[name]}))' for name in imports
        )
        placed = f'(data (i32.const 16) "{data}")' if data else ""
        return (
            f'(module {wanted} (memory (export "memory") {memory}) {placed} {extra} '
            f'(func $main (export "_start") {body}))'
        )

    return build


@pytest.fixture(scope="session")
def say() -> Callable[..., str]:
    """Instructions that write ``size`` bytes from ``at`` to a stream."""

    def build(size: int, at: int = 16, stream: int = 1) -> str:
        return f"""(i32.store (i32.const 0) (i32.const {at})) (i32.store (i32.const 4) (i32.const {size}))
          (drop (call $fd_write (i32.const {stream}) (i32.const 0) (i32.const 1) (i32.const 8)))"""

    return build


@pytest.fixture(scope="session")
def wasm_store(tmp_path_factory: pytest.TempPathFactory) -> WasmStore:
    return WasmStore(str(Path(tmp_path_factory.mktemp("wasm")) / "store"))


@pytest.fixture(scope="session")
def wasm_backend(wasm_store: WasmStore) -> Iterator[WasmBackend]:
    yield WasmBackend(store=wasm_store)


@pytest.fixture(scope="session")
def run_wasm(wasm_backend: WasmBackend) -> Callable[..., ExecResult]:
    def run(code: str | bytes, *, timeout: float = 20, limits: Limits | None = None, **fields: object) -> ExecResult:
        request = ExecRequest(
            language=Language.WASM,
            code=code,
            timeout=timeout,
            limits=limits or Limits(),
            **fields,  # type: ignore[arg-type]
        )
        return wasm_backend.run(request)

    return run


@pytest.fixture(scope="session")
def guest_backend() -> WasmBackend:
    """A backend on this user's own store: languages are made ready once on a machine, not once a test run."""
    return WasmBackend()


class User:
    """Answers with these lines, and notes what it was asked and what was shown when it was."""

    def __init__(self, *lines: str) -> None:
        self.lines, self.shown, self.seen = list(lines), "", []

    def hear(self, _stream: str, text: str) -> None:
        self.shown += text

    def ask(self, prompt: str, password: bool) -> str:
        self.seen.append((prompt, self.shown))
        if not self.lines:
            raise EOFError("nobody is there")
        return self.lines.pop(0)
