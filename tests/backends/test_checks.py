"""A host in trouble gives a typed error; an error of the caller's own listener stays what it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.soak_faults import without_descriptors
from sandbox_kernel.backends import async_bridge  # noqa: F401 - imported before descriptors are taken away
from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.checks import Listener, host_trouble
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.model import ExecRequest, Language


def test_an_error_of_the_operating_system_is_typed_and_quoted() -> None:
    with pytest.raises(BackendUnavailable, match="Too many open files"), host_trouble(None):
        raise OSError(24, "Too many open files")


def test_an_error_of_the_callers_listener_passes_as_it_is() -> None:
    def on_output(stream: str, text: str) -> None:
        raise BrokenPipeError("my own")

    backend = ProcessBackend(ProcessConfig(pool_size=0))
    with pytest.raises(BrokenPipeError, match="my own"):
        backend.run(ExecRequest(language=Language.PYTHON, code="print(1)", timeout=30), RunContext(on_output=on_output))
    listener = Listener(on_output)
    with pytest.raises(BackendUnavailable), host_trouble(listener):
        raise BrokenPipeError("not from the listener")


def test_a_host_without_descriptors_says_so_and_loses_none(nothing_left: None) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))
    request = ExecRequest(language=Language.PYTHON, code="print(1)", timeout=30)
    assert backend.run(request).ok
    told = []
    for left in range(0, 30, 2):
        with without_descriptors(left):
            try:
                assert backend.run(request).stdout == "1\n"
            except SandboxError as error:
                told.append(str(error))
    assert told
    assert [text for text in told if "Too many open files" not in text] == []
    assert backend.run(request).ok


def test_a_host_without_descriptors_says_so_for_wasm_too(nothing_left: None, tmp_path: Path, wat, say) -> None:
    backend = WasmBackend(store=WasmStore(str(tmp_path / "store")), pool_size=0)
    request = ExecRequest(language=Language.WASM, code=wat(say(3), "fd_write", data="hi\\n"), timeout=30)
    told = []
    for left in (0, 4, 8, 12, 40):
        with without_descriptors(left):
            try:
                assert backend.run(request).stdout == "hi\n"
            except SandboxError as error:
                told.append(str(error))
    assert told
    assert [text for text in told if "Too many open files" not in text] == []
    assert backend.run(request).stdout == "hi\n"


def test_a_full_store_is_an_error_with_a_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wat) -> None:
    def refuse(path: str, data: bytes, mode: int = 0o644) -> None:
        raise OSError(28, "No space left on device")

    backend = WasmBackend(store=WasmStore(str(tmp_path / "store")))
    monkeypatch.setattr(WasmStore, "_write", staticmethod(refuse))
    with pytest.raises(BackendUnavailable, match="No space left on device"):
        backend.run(ExecRequest(language=Language.WASM, code=wat(""), timeout=30))


def test_a_host_without_descriptors_says_so_before_a_thread_is_asked() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))

    async def ask() -> None:
        with without_descriptors(0):
            await backend.execute(ExecRequest(language=Language.PYTHON, code="print(1)", timeout=30))

    with pytest.raises(BackendUnavailable, match="Too many open files"):
        asyncio.run(ask())
