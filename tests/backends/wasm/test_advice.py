"""Refusals end with the next step, and a step that is there already is not doubled."""

from __future__ import annotations

from sandbox_kernel.backends.wasm.advice import with_advice


def test_a_known_reason_gets_its_step() -> None:
    assert with_advice("300000 functions; at most 60000 are compiled").endswith("or split it")


def test_a_reason_that_names_the_step_itself_stays_as_it_is() -> None:
    said = "a WebAssembly component, not a core module; build it for wasm32-wasip1 (preview 1)"
    assert with_advice(said) == said


def test_what_shows_the_source_ends_with_it() -> None:
    said = "unknown operator\n   |\n 1 | (i32.cnst 1)\n   |  ^"
    assert with_advice(said) == said
