from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel import Sandbox
from sandbox_kernel.backends.wasm import wasm_result
from sandbox_kernel.backends.wasm.wasm_result import ModuleDefect, WasmEnding, read_report, with_advice
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.guest.wasm.binary import Defect

WASI = "wasi_snapshot_preview1"


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def test_a_report_is_read() -> None:
    found = read_report(line(end="exit", code=3, message="m", fuel_used=5, memory_bytes=65536, refused=1))
    assert found == WasmEnding(end="exit", code=3, message="m", fuel_used=5, memory_bytes=65536, refused=1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"end": "exit", "code": 0}',
        b"nonsense\n",
        b"[1]\n",
        b"null\n",
        b"[" * 60000 + b"\n",
        line(end="victory"),
        line(end="exit"),
        line(end="exit", code="0"),
        line(end="exit", code=True),
        line(end="exit", code=1 << 70),
        line(end=["exit"], code=0),
    ],
)
def test_what_is_no_report_is_none(data: bytes) -> None:
    assert read_report(data) is None


def test_wrong_fields_are_left_out_and_long_texts_cut() -> None:
    found = read_report(line(end="trap", message="x" * 100_000, fuel_used="many", memory_bytes=-1.5, refused=[1]))
    assert found is not None
    assert (len(found.message), found.fuel_used, found.memory_bytes, found.refused) == (8000, None, None, 0)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_report_or_none(data: bytes) -> None:
    assert read_report(data + b"\n") is None or isinstance(read_report(data + b"\n"), WasmEnding)


def test_host_and_guest_know_the_same_defects() -> None:
    assert [defect.value for defect in ModuleDefect] == [defect.value for defect in Defect]


def test_every_defect_but_the_unknown_has_a_step_and_the_words_decide_nothing() -> None:
    assert set(wasm_result._STEPS) == set(ModuleDefect) - {ModuleDefect.OTHER}
    assert with_advice("unknown import, at most 3", ModuleDefect.OTHER) == "unknown import, at most 3"


@pytest.mark.parametrize(
    ("code", "step"),
    [
        ('(module (func (export "run")))', "export the function to run as _start"),
        ('(module (import "env" "f" (func)) (func (export "_start")))', "only wasi_snapshot_preview1"),
        (f'(module (import "{WASI}" "fd_write" (func)) (func (export "_start")))', "in another way than WASI"),
        ('(module (memory 1 1 shared) (func (export "_start")))', "without threads"),
        ('(module (table 9000000 funcref) (func (export "_start")))', "make it smaller"),
    ],
)
def test_a_refused_module_is_told_what_to_do_next(code: str, step: str) -> None:
    with Sandbox(backend="wasm") as box, pytest.raises(InvalidRequest, match=step):
        box.run(code, "wasm")
