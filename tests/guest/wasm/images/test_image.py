from __future__ import annotations

import pytest
import wasmtime

from sandbox_kernel.guest.wasm.binary.format import Malformed
from sandbox_kernel.guest.wasm.images.image import bake

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
