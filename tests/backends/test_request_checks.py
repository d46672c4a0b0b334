"""Requests that cannot be run: refused before anything starts, by both backends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox_kernel import ExecRequest, InvalidRequest, Language, Limits, ProcessBackend, ProcessConfig, WasmBackend
from sandbox_kernel.backends.checks import check_files_fit


def request(size: int, language: Language = Language.PYTHON, memory_mb: int = 64) -> ExecRequest:
    code = "1" if language is Language.PYTHON else '(module (func (export "_start")))'
    return ExecRequest(
        language=language, code=code, timeout=5, memory_limit_mb=memory_mb, files={"a": bytes(size), "b": "x"}
    )


def test_files_up_to_the_size_of_the_folder_fit() -> None:
    check_files_fit(request((32 << 20) - 4096))


def test_every_file_takes_whole_pages() -> None:
    with pytest.raises(InvalidRequest, match="2 files of 33558528 bytes do not fit into the work folder"):
        check_files_fit(request(32 << 20))


def test_the_disk_limit_counts_where_it_is_the_smaller_one() -> None:
    small = ExecRequest(
        language=Language.PYTHON, code="1", timeout=5, files={"a": bytes(2 << 20)}, limits=Limits(disk_mb=1)
    )
    with pytest.raises(InvalidRequest, match=r"limits\.disk_mb is 1"):
        check_files_fit(small)


def test_the_process_backend_says_so_instead_of_failing_inside() -> None:
    with pytest.raises(InvalidRequest, match="do not fit"):
        ProcessBackend(ProcessConfig(pool_size=0)).run(request(33 << 20))


def test_the_wasm_backend_says_so_instead_of_failing_inside() -> None:
    pytest.importorskip("wasmtime")
    with pytest.raises(InvalidRequest, match="do not fit"):
        WasmBackend().run(request(300 << 20, Language.WASM))


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
