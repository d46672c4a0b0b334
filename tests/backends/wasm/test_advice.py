"""Refusals end with the next step for their kind, which the checker in the jail reports as a type."""

from __future__ import annotations

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.backends.wasm import advice
from sandbox_kernel.backends.wasm.advice import ModuleDefect, with_advice
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.guest.wasm.binary import format as guest_format

WASI = "wasi_snapshot_preview1"


def test_host_and_guest_know_the_same_defects() -> None:
    assert [defect.value for defect in ModuleDefect] == [defect.value for defect in guest_format.Defect]


def test_every_defect_but_the_unknown_has_a_step_and_the_words_decide_nothing() -> None:
    assert set(advice._STEPS) == set(ModuleDefect) - {ModuleDefect.OTHER}
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
@pytest.mark.one_case
def test_a_refused_module_is_told_what_to_do_next(code: str, step: str) -> None:
    with Sandbox(backend="wasm") as box, pytest.raises(InvalidRequest, match=step):
        box.run(code, "wasm")
