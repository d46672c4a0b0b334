from __future__ import annotations

import pytest
import wasmtime

from sandbox_kernel.guest.wasm.binary.format import Malformed
from sandbox_kernel.guest.wasm.binary.inspect_module import Caps, inspect
from sandbox_kernel.guest.wasm.binary.rewrite import MOST_REFUSALS, REFUSED, START, prepare


def rewritten(text: str) -> bytes:
    data = bytes(wasmtime.wat2wasm(text))
    return prepare(data, inspect(data, Caps()))


def instance(text: str, memory_bytes: int = 1 << 20) -> tuple[wasmtime.Store, dict[str, object]]:
    store = wasmtime.Store()
    store.set_limits(memory_size=memory_bytes)
    made = wasmtime.Instance(store, wasmtime.Module(store.engine, rewritten(text)), [])
    return store, dict(made.exports(store))


def test_a_module_without_growth_and_start_is_left_as_it_is() -> None:
    data = bytes(wasmtime.wat2wasm('(module (memory 1) (func (export "_start") (drop (i32.const 0x4000))))'))
    assert prepare(data, inspect(data, Caps())) == data


def test_growth_answers_as_before_and_refusals_are_counted() -> None:
    store, made = instance(
        """(module (memory (export "memory") 1)
        (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
        (func (export "twice") (result i32)
          (i32.add (memory.grow (i32.const 1)) (memory.grow (i32.const 99999)))))"""
    )
    grow, refused = made["grow"], made[REFUSED]
    assert (grow(store, 0), grow(store, 3), grow(store, 100), refused.value(store)) == (1, 1, -1, 1)
    assert (made["twice"](store), refused.value(store)) == (4 - 1, 2)
    assert made["memory"].size(store) == 5


def test_a_program_that_only_asks_is_ended_by_the_counter() -> None:
    store, made = instance('(module (memory 1) (func (export "f") (loop (drop (memory.grow (i32.const 99))) (br 0))))')
    with pytest.raises(wasmtime.Trap):
        made["f"](store)
    assert made[REFUSED].value(store) == MOST_REFUSALS + 1


def test_indices_names_and_other_functions_stay_right() -> None:
    text = """(module (type $t (func (result i32)))
      (global $base i32 (i32.const 40)) (global $n (mut i32) (i32.const 2))
      (memory 1) (table 2 funcref) (elem (i32.const 0) func $a $b)
      (func $a (result i32) (global.get $base))
      (func $b (result i32) (drop (memory.grow (i32.const 0))) (global.get $n))
      (func (export "sum") (result i32)
        (i32.add (call_indirect (type $t) (i32.const 0)) (call_indirect (type $t) (i32.const 1))))
      (func $boom (export "boom") unreachable))"""
    store, made = instance(text)
    assert made["sum"](store) == 42
    with pytest.raises(wasmtime.Trap) as trap:
        made["boom"](store)
    assert trap.value.frames[0].func_name == "boom"


def test_a_start_function_becomes_an_export_and_no_longer_runs_by_itself() -> None:
    text = """(module (global $x (export "x") (mut i32) (i32.const 0))
      (func $s (global.set $x (i32.const 9))) (start $s))"""
    store, made = instance(text)
    assert made["x"].value(store) == 0
    made[START](store)
    assert made["x"].value(store) == 9


def test_an_imported_start_function_is_exported_too() -> None:
    data = rewritten('(module (import "env" "s" (func $s)) (start $s))')
    assert [e.name for e in wasmtime.Module(wasmtime.Engine(), data).exports] == [START]


def test_vector_float_and_table_instructions_are_walked_over() -> None:
    text = """(module (memory 1) (table 4 funcref) (data $d "abc") (elem $e funcref (ref.null func))
      (func $many (export "f") (param i32) (result i32) (local v128)
        (local.set 1 (v128.const i64x2 0x4000400040004000 0x0040004000400040))
        (local.set 1 (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 (local.get 1) (local.get 1)))
        (drop (i32x4.extract_lane 1 (local.get 1)))
        (drop (v128.load8_lane offset=64 2 (i32.const 0) (local.get 1)))
        (drop (f64.add (f64.const 2.0) (f64.const 32.5))) (drop (i64.const 0x4000400040))
        (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1))
        (memory.copy (i32.const 0) (i32.const 1) (i32.const 1))
        (table.init $e (i32.const 0) (i32.const 0) (i32.const 1)) (drop (i32.trunc_sat_f64_s (f64.const 1)))
        (drop (select (result funcref) (ref.null func) (ref.null func) (i32.const 1)))
        (block (block (br_table 0 1 0 (local.get 0))))
        (memory.grow (i32.const 1))))"""
    store, made = instance(text)
    assert made["f"](store, 1) == 1
    assert made[REFUSED].value(store) == 0


def test_a_growth_with_a_long_index_is_counted_too() -> None:
    data = bytes(wasmtime.wat2wasm('(module (memory 1) (func (export "f") (drop (memory.grow (i32.const 99)))))'))
    assert data.count(b"\x40\x00") == 1
    body_before, body_after = b"\x40\x00", b"\x40\x80\x00"
    padded = data.replace(b"\x0a\x0a\x01\x08", b"\x0a\x0b\x01\x09").replace(body_before, body_after)
    assert padded != data
    facts = inspect(padded, Caps())
    assert REFUSED.encode() in prepare(padded, facts)


@pytest.mark.parametrize("name", [REFUSED, START])
def test_a_module_cannot_pose_as_prepared(name: str) -> None:
    with pytest.raises(Malformed, match="reserved"):
        rewritten(f'(module (func (export "{name}")))')
