"""Modules that cannot be booted are refused, and it is said why; booted ones are in the backend's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import wasmtime

from sandbox_kernel.guest.wasm.binary import Caps, Malformed, inspect
from sandbox_kernel.guest.wasm.boot_python import make_booted
from sandbox_kernel.guest.wasm.plan import BootPlan, read_plan
from sandbox_kernel.guest.wasm.rewrite import StartShim, exposed, shim_code, with_start

MODULE = """(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1) (table 2 funcref) (global (mut i32) (i32.const 4096))
  (func (export "_start") (call $exit (i32.const {code}))))"""


def plan(tmp_path: Path, source: bytes) -> BootPlan:
    (tmp_path / "m.wasm").write_bytes(source)
    fields = {"task": "boot", "source": f"{tmp_path}/m.wasm", "out": f"{tmp_path}/m.cwasm"}
    numbers = {"spares": 1, "spare_bytes": 20, "buffer_bytes": 4096}
    made = read_plan({**fields, "facts": f"{tmp_path}/facts", "programs": {}, "places": ["/", "/box"], **numbers})
    assert isinstance(made, BootPlan)
    return made


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (MODULE.format(code=3), "ended with 3, not in its exit handler"),
        (MODULE.format(code=77), "boot.json"),
        (MODULE.format(code=0).replace("(global (mut i32) (i32.const 4096))", ""), "0 globals"),
    ],
)
def test_a_module_that_is_not_cpython_is_refused_and_it_is_said_why(tmp_path: Path, source: str, why: str) -> None:
    ending = make_booted(plan(tmp_path, bytes(wasmtime.wat2wasm(source))))
    assert ending.end == "invalid" and why in ending.message


def test_a_broken_module_is_invalid(tmp_path: Path) -> None:
    assert make_booted(plan(tmp_path, b"\0asm\1\0\0\0\x01\x50")).end == "invalid"


WORLD = """(module (type $call (func (param i32 i32 i32 i32) (result i32)))
  (import "w" "args_sizes_get" (func (param i32 i32) (result i32)))
  (import "w" "args_get" (func (param i32 i32) (result i32)))
  (import "w" "environ_sizes_get" (func (param i32 i32) (result i32)))
  (import "w" "environ_get" (func (param i32 i32) (result i32)))
  (import "w" "fd_prestat_get" (func (param i32 i32) (result i32)))
  (import "w" "fd_prestat_dir_name" (func (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (table 3 funcref) (elem (i32.const 2) $f) (global (mut i32) (i32.const 4096))
  (func (export "_start")) (func $f (type $call) (i32.store (i32.const 100) (local.get 0)) (i32.const 1)))"""


def started(sizes: tuple[int, int], name: bytes) -> bytes:
    """Run the shim in a world with these sizes and this folder as descriptor 5; returns the memory."""
    module = exposed(bytes(wasmtime.wat2wasm(WORLD)), inspect(bytes(wasmtime.wat2wasm(WORLD)), Caps()))
    shim = StartShim(program=77, index=2, buffer=1024, buffer_bytes=8192, spares=((5, 200), (6, 300)), spare_bytes=20)
    facts = inspect(module, Caps())
    engine = wasmtime.Engine()
    linker, store, i32 = wasmtime.Linker(engine), wasmtime.Store(engine), wasmtime.ValType.i32()
    memory: list[wasmtime.Memory] = []

    def put(at: int, data: bytes) -> int:
        memory[0].write(store, data, at)
        return 0

    def sizes_get(count: int, size: int) -> int:
        return put(count, sizes[0].to_bytes(4, "little")) or put(size, sizes[1].to_bytes(4, "little"))

    calls = {
        "args_sizes_get": (2, sizes_get),
        "environ_sizes_get": (2, sizes_get),
        "args_get": (2, lambda _table, data: put(data, b"arg\0")),
        "environ_get": (2, lambda _table, data: put(data, b"A=b\0")),
        "fd_prestat_get": (2, lambda fd, at: put(at, bytes(4) + len(name).to_bytes(4, "little")) if fd == 5 else 8),
        "fd_prestat_dir_name": (3, lambda _fd, at, size: put(at, name[:size])),
    }
    for call, (count, function) in calls.items():
        linker.define_func("w", call, wasmtime.FuncType([i32] * count, [i32]), function)
    image = with_start(module, facts, shim_code(shim, module, facts), 60_000)
    exports = linker.instantiate(store, wasmtime.Module(engine, image)).exports(store)
    found = exports["memory"]
    assert isinstance(found, wasmtime.Memory)
    memory.append(found)
    exports["_start"](store)  # type: ignore[operator]
    return bytes(found.read(store, 0, 65536))


def test_the_new_start_takes_over_arguments_and_folders_and_calls_the_function() -> None:
    memory = started((1, 4), b"/data/x")
    assert memory[100] == 77 and memory[1040:1048] == b"arg\0A=b\0"
    assert memory[200:207] == b"data/x\0" and memory[300:310] == bytes(10)


@pytest.mark.parametrize(("sizes", "name"), [((1, 1 << 20), b"/d"), ((1 << 16, 4), b"/d"), ((1, 4), b"/" + b"d" * 20)])
def test_what_is_too_long_for_its_place_traps(sizes: tuple[int, int], name: bytes) -> None:
    with pytest.raises(wasmtime.Trap, match="unreachable"):
        started(sizes, name)


def test_a_module_without_the_calls_is_refused() -> None:
    module = bytes(wasmtime.wat2wasm(MODULE.format(code=0)))
    shim = StartShim(program=1, index=1, buffer=1, buffer_bytes=4096, spares=(), spare_bytes=20)
    with pytest.raises(Malformed, match="does not import args_sizes_get"):
        shim_code(shim, module, inspect(module, Caps()))
