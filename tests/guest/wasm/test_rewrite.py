import pytest
import wasmtime

from sandbox_kernel.guest.wasm.binary import Caps, Malformed, inspect
from sandbox_kernel.guest.wasm.rewrite import MOST_REFUSALS, REFUSED, START, bake, prepare


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


COUNTER = bytes(
    wasmtime.wat2wasm(
        """(module (memory (export "memory") 1) (data (i32.const 8) "first")
        (func $s (i32.store (i32.const 0) (i32.const 100))) (start $s)
        (func (export "next") (result i32)
          (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1))) (i32.load (i32.const 0)))
        (func (export "grow") (drop (memory.grow (i32.const 2))) (i32.store (i32.const 150000) (i32.const 7)))
        (func (export "far") (result i32) (i32.load (i32.const 150000))))"""
    )
)


def start(module: bytes) -> tuple[wasmtime.Store, dict[str, object]]:
    store = wasmtime.Store()
    return store, dict(wasmtime.Instance(store, wasmtime.Module(store.engine, module), []).exports(store))


def memory_of(store: wasmtime.Store, made: dict[str, object]) -> bytes:
    memory = made["memory"]
    assert isinstance(memory, wasmtime.Memory)
    return bytes(memory.read(store, 0, memory.data_len(store)))


def test_an_image_goes_on_where_the_memory_was() -> None:
    store, made = start(COUNTER)
    assert [made["next"](store), made["next"](store)] == [101, 102]
    made["grow"](store)
    store, again = start(bake(COUNTER, memory_of(store, made)))
    assert (again["next"](store), again["far"](store)) == (103, 7)
    assert memory_of(store, again)[8:13] == b"first"


def test_images_of_images_and_two_from_one_are_apart() -> None:
    store, made = start(COUNTER)
    made["next"](store)
    image = bake(COUNTER, memory_of(store, made))
    first, one = start(image)
    second, two = start(image)
    assert (one["next"](first), one["next"](first), two["next"](second)) == (102, 103, 102)
    third, three = start(bake(image, memory_of(first, one)))
    assert three["next"](third) == 104


def test_an_empty_memory_is_an_image_too() -> None:
    module = bytes(wasmtime.wat2wasm('(module (memory (export "memory") 1) (data (i32.const 5) "x"))'))
    store, made = start(bake(module, bytes(65536)))
    assert memory_of(store, made) == bytes(65536)


def test_what_cannot_be_an_image_is_refused() -> None:
    with pytest.raises(Malformed, match="whole pages"):
        bake(COUNTER, bytes(100))
