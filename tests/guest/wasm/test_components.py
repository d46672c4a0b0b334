"""What the pinned engine lacks for components, as docs/decisions says; when one of these fails, look at them again."""

from __future__ import annotations

import pytest
import wasmtime
from wasmtime import component

COMMAND = """(component {imports}
  (core module $m {core})
  (core instance $i (instantiate $m {given}))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))"""
EXIT = """(import "wasi:cli/exit@0.2.0" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $leave (canon lower (func $exit "exit-with-code")))"""


def run(core: str, imports: str = "", given: str = "") -> wasmtime.Store:
    """Run a command component as the Python API can, with fuel and a limit of memory."""
    config = wasmtime.Config()
    config.wasm_component_model = True
    config.consume_fuel = True
    engine = wasmtime.Engine(config)
    store, linker = wasmtime.Store(engine), component.Linker(engine)
    store.set_fuel(100_000)
    store.set_limits(memory_size=1 << 20)
    store.set_wasi(wasmtime.WasiConfig())
    linker.add_wasip2()
    text = COMMAND.format(imports=imports, core=core, given=given)
    instance = linker.instantiate(store, component.Component(engine, text))
    command = instance.get_export_index(store, "wasi:cli/run@0.2.0")
    function = instance.get_func(store, instance.get_export_index(store, "run", command))
    assert function is not None
    run.last = store  # type: ignore[attr-defined]
    function(store)
    return store


def test_a_trap_of_a_component_has_no_code() -> None:
    with pytest.raises(wasmtime.WasmtimeError) as caught:
        run('(func (export "run") (result i32) unreachable)')
    assert not isinstance(caught.value, wasmtime.Trap) and not hasattr(caught.value, "trap_code")


def test_a_component_shows_no_memory_so_a_refused_growth_is_not_counted() -> None:
    run('(memory 1) (func (export "run") (result i32) (i32.eq (memory.grow (i32.const 999)) (i32.const -1)))')
    shown = [name for name in dir(component.Instance) if not name.startswith("_")]
    assert shown == ["get_export_index", "get_func"]


def test_an_exit_code_and_spent_fuel_can_be_told() -> None:
    core = '(import "e" "leave" (func $leave (param i32))) (func (export "run") (result i32) (call $leave (i32.const 7)) i32.const 0)'
    with pytest.raises(wasmtime.ExitTrap) as left:
        run(core, EXIT, '(with "e" (instance (export "leave" (func $leave))))')
    assert left.value.code == 7
    with pytest.raises(wasmtime.WasmtimeError):
        run('(func (export "run") (result i32) (loop $again (br $again)) i32.const 0)')
    assert run.last.get_fuel() == 0  # type: ignore[attr-defined]


def test_fetches_of_a_component_cannot_be_given_to_the_host() -> None:
    hooks = [name for name in dir(wasmtime.WasiConfig) + dir(component.Linker) if "http" in name]
    assert hooks == ["add_wasi_http"]
