"""The addon that freezes Node.js: compiled once, or a reason why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel.session.opening import node_freeze
from sandbox_kernel.session.opening.node_freeze import freeze_addon


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    freeze_addon.cache_clear()
    yield
    freeze_addon.cache_clear()


def test_it_is_a_shared_object() -> None:
    program, problem = freeze_addon()
    assert problem == ""
    assert program.startswith(b"\x7fELF")
    assert b"napi_register_module_v1" in program


def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_freeze, "find_compiler", lambda: None)
    assert freeze_addon() == (b"", node_freeze.MISSING)


@pytest.mark.parametrize("compiler", [("/bin/false",), ("/no/such/compiler",)])
def test_a_compiler_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch, compiler: tuple[str, ...]) -> None:
    monkeypatch.setattr(node_freeze, "find_compiler", lambda: compiler)
    program, problem = freeze_addon()
    assert program == b""
    assert problem.startswith("the addon for JavaScript checkpoints could not be compiled")
