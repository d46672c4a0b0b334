"""What cannot be run is refused before anything starts; a host in trouble gives a typed error."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak_faults import without_descriptors
from sandbox_kernel import Limits
from sandbox_kernel.backends import async_bridge  # noqa: F401 - imported before descriptors are taken away
from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.checks import check_files_fit, host_trouble, unless_terminal
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.backends.wasm.wheels import Wheels
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, SandboxError
from sandbox_kernel.model import ExecRequest, Language


def test_an_error_of_the_operating_system_is_typed_and_quoted() -> None:
    with pytest.raises(BackendUnavailable, match="Too many open files"), host_trouble():
        raise OSError(24, "Too many open files")


@pytest.mark.parametrize("name", ["on_output", "on_usage", "on_input"])
def test_an_error_of_a_callback_of_the_caller_passes_as_it_is(name: str) -> None:
    def callback(*given: object) -> str:
        raise BrokenPipeError("my own")

    backend = ProcessBackend(ProcessConfig(pool_size=0))
    request = ExecRequest(language=Language.PYTHON, code="print(1, flush=True); input()", timeout=30)
    with pytest.raises(BrokenPipeError, match="my own"):
        backend.run(request, RunContext(**{name: callback}))


@pytest.mark.parametrize("kind", ["process", "wasm"])
def test_a_host_without_descriptors_says_so_and_loses_none(
    kind: str, nothing_left: None, tmp_path: Path, wat, say
) -> None:
    backend: ProcessBackend | WasmBackend = ProcessBackend(ProcessConfig(pool_size=0))
    request = ExecRequest(language=Language.PYTHON, code="print('hi')", timeout=30)
    if kind == "wasm":
        backend = WasmBackend(store=WasmStore(str(tmp_path / "store")), pool_size=0)
        request = ExecRequest(language=Language.WASM, code=wat(say(3), "fd_write", data="hi\\n"), timeout=30)
    else:
        assert backend.run(request).ok
    told = []
    for left in range(0, 30, 2) if kind == "process" else (0, 4, 8, 12, 40):
        with without_descriptors(left):
            try:
                assert backend.run(request).stdout == "hi\n"
            except SandboxError as error:
                told.append(str(error))
    assert told
    assert [text for text in told if "Too many open files" not in text] == []
    assert backend.run(request).stdout == "hi\n"


def test_a_full_store_is_an_error_with_a_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    wheels = Wheels({"thing-1.0-py3-none-any.whl": b"PK"})
    backend = WasmBackend(store=WasmStore(str(tmp_path / "store")), wheels=wheels)
    monkeypatch.setattr(WasmStore, "_write", staticmethod(refuse))
    monkeypatch.setattr(backend, "ready", lambda *_: None)
    with pytest.raises(BackendUnavailable, match="No space left on device"):
        backend.run(ExecRequest(language=Language.PYTHON, code="1", timeout=30))


def test_a_host_without_descriptors_says_so_before_a_thread_is_asked() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))

    async def ask() -> None:
        with without_descriptors(0):
            await backend.execute(ExecRequest(language=Language.PYTHON, code="print(1)", timeout=30))

    with pytest.raises(BackendUnavailable, match="Too many open files"):
        asyncio.run(ask())


def request(size: int, language: Language = Language.PYTHON, memory_mb: int = 64) -> ExecRequest:
    code = "1" if language is Language.PYTHON else '(module (func (export "_start")))'
    return ExecRequest(
        language=language, code=code, timeout=5, memory_limit_mb=memory_mb, files={"a": bytes(size), "b": "x"}
    )


def test_files_up_to_the_size_of_the_folder_fit() -> None:
    check_files_fit(request((32 << 20) - 4096))


def test_every_file_takes_whole_pages_and_backends_say_so_instead_of_failing_inside() -> None:
    with pytest.raises(InvalidRequest, match="2 files of 33558528 bytes do not fit into the work folder"):
        check_files_fit(request(32 << 20))
    with pytest.raises(InvalidRequest, match="do not fit"):
        ProcessBackend(ProcessConfig(pool_size=0)).run(request(33 << 20))
    pytest.importorskip("wasmtime")
    with pytest.raises(InvalidRequest, match="do not fit"):
        WasmBackend().run(request(300 << 20, Language.WASM))


def test_the_disk_limit_counts_where_it_is_the_smaller_one() -> None:
    small = ExecRequest(
        language=Language.PYTHON, code="1", timeout=5, files={"a": bytes(2 << 20)}, limits=Limits(disk_mb=1)
    )
    with pytest.raises(InvalidRequest, match=r"limits\.disk_mb is 1"):
        check_files_fit(small)


@pytest.mark.parametrize("given", ["print(1)", None, {"code": "1"}])
def test_what_is_no_request_is_refused_with_an_example_of_one(given: Any) -> None:
    with pytest.raises(InvalidRequest, match="a backend runs an ExecRequest"):
        asyncio.run(ProcessBackend(ProcessConfig(pool_size=0)).execute(given))


@pytest.mark.parametrize("given", [{"node_path": None}, {"rustc_path": ""}, {"cc_path": "a\0"}, {"pool_size": -1}])
def test_a_configuration_that_names_no_program_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(given))):
        ProcessConfig(**given)
    with pytest.raises(InvalidRequest, match="config must be a ProcessConfig"):
        ProcessBackend(given)  # type: ignore[arg-type]


def test_a_terminal_is_not_read_and_everything_else_is(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    read, write = os.pipe()
    try:
        assert unless_terminal(theirs) is None
        assert unless_terminal(None) is None
        assert unless_terminal(read) == read
    finally:
        for fd in (ours, theirs, read, write):
            os.close(fd)
