from __future__ import annotations

import os
import threading

import pytest
import wasmtime

from sandbox_kernel.guest.wasm.wasi.quickjs_calls import plain_linker

WAT = """(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_get" (func $stat (param i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 64) "hello")
  (data (i32.const 0) "\\40\\00\\00\\00\\03\\00\\00\\00\\43\\00\\00\\00\\02\\00\\00\\00")
  (func (export "write") (param i32 i32 i32 i32) (result i32)
    (call $fd_write (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "clock") (param i32) (result i32) (call $clock (i32.const 0) (i64.const 1) (local.get 0)))
  (func (export "random") (param i32 i32) (result i32) (call $random (local.get 0) (local.get 1)))
  (func (export "stat") (param i32 i32) (result i32) (call $stat (local.get 0) (local.get 1))))"""


@pytest.fixture
def guest() -> tuple[wasmtime.Store, dict[str, object], list[tuple[int, bytes]]]:
    engine = wasmtime.Engine()
    store, written = wasmtime.Store(engine), []
    linker = plain_linker(engine, lambda stream, data: written.append((stream, data)))
    made = dict(linker.instantiate(store, wasmtime.Module(engine, WAT)).exports(store))
    return store, made, written


def test_vectors_are_written_in_one_piece(guest) -> None:
    store, made, written = guest
    assert made["write"](store, 1, 0, 2, 32) == 0
    assert written == [(1, b"hello")]
    assert bytes(made["memory"].read(store, 32, 36)) == (5).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((5, 0, 1, 32), 8), ((1, 0, -1, 32), 28), ((1, 65532, 1, 32), 21), ((1, 0, 1, -1), 21), ((1, 0, 5000, 32), 28)],
)
def test_absurd_arguments_are_errors_of_the_guest(guest, arguments: tuple[int, ...], code: int) -> None:
    store, made, written = guest
    assert made["write"](store, *arguments) == code
    assert written == []


def test_a_vector_that_leaves_the_memory_writes_nothing(guest) -> None:
    store, made, written = guest
    made["memory"].write(store, b"\xff\xff\xff\xff\xff\xff\xff\xff", 128)
    assert made["write"](store, 1, 128, 1, 32) == 21
    assert written == []


def test_clock_and_random_stay_in_bounds(guest) -> None:
    store, made, _ = guest
    assert (made["clock"](store, 200), made["clock"](store, 65530)) == (0, 21)
    assert (made["random"](store, 300, 8), made["random"](store, 65530, 100), made["random"](store, 0, -1)) == (
        0,
        21,
        21,
    )
    assert bytes(made["memory"].read(store, 300, 308)) != bytes(8)
    assert (made["stat"](store, 1, 400), made["stat"](store, 7, 400), made["stat"](store, 1, 65535)) == (0, 8, 21)


def test_no_thread_is_started(guest) -> None:
    store, made, _ = guest
    before = threading.active_count()
    tasks = len(os.listdir("/proc/self/task"))
    made["write"](store, 1, 0, 2, 32)
    assert (threading.active_count(), len(os.listdir("/proc/self/task"))) == (before, tasks)
