"""Modules that cannot be booted are refused, and it is said why; booted ones are in the backend's tests."""

from pathlib import Path

import pytest
import wasmtime

from sandbox_kernel.guest.wasm.plan import BootPlan, read_plan

MODULE = """(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1) (table 2 funcref) (global (mut i32) (i32.const 4096))
  (func (export "_start") (call $exit (i32.const {code}))))"""


def plan(tmp_path: Path, source: bytes) -> BootPlan:
    (tmp_path / "m.wasm").write_bytes(source)
    fields = {"task": "boot", "source": f"{tmp_path}/m.wasm", "out": f"{tmp_path}/m.cwasm"}
    made = read_plan({**fields, "programs": {}})
    assert isinstance(made, BootPlan)
    return made


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (MODULE.format(code=3), "ended with 3, not in its exit handler"),
        (MODULE.format(code=0).replace("(global (mut i32) (i32.const 4096))", ""), "0 globals"),
    ],
)
def test_a_module_that_is_not_cpython_is_refused_and_it_is_said_why(tmp_path: Path, source: str, why: str) -> None:
    from sandbox_kernel.guest.wasm.run import make

    ending = make(plan(tmp_path, bytes(wasmtime.wat2wasm(source))))
    assert ending.end == "invalid" and why in ending.message
