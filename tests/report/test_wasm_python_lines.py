"""The lines that Python in WebAssembly adds to the report: measured where it is prepared, and believed with a control."""

from __future__ import annotations

import pytest

from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status
from sandbox_kernel.report import wasm_python_lines
from sandbox_kernel.report.wasm_python_lines import python_lines

pytestmark = pytest.mark.timeout(600)


@pytest.mark.slow
def test_every_line_holds_here() -> None:
    backend = WasmBackend()
    backend.make_ready(Language.PYTHON)
    lines = python_lines(backend)
    assert len(lines) == 8
    assert [line.name for line in lines if line.enforced is not True] == [], [line.evidence for line in lines]


class Broken(WasmBackend):
    """A backend whose programs all print the same."""

    told = "['name'] ['name'] ['name']"

    def is_ready(self, language: Language, *, session: bool = False) -> bool:
        return True

    def run(self, request: ExecRequest, **_: object) -> ExecResult:  # type: ignore[override]
        return ExecResult(status=Status.OK, stdout=self.told)


def test_a_backend_that_does_not_hold_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {key: measure for key, measure in wasm_python_lines._LINES.items() if key[0] != "limits"}
    monkeypatch.setattr(wasm_python_lines, "_LINES", lines)
    found = {line.name: line.enforced for line in python_lines(Broken())}
    assert found.pop("find the work folder as /, . and /box") is True
    assert set(found.values()) == {False}, found


def test_nothing_is_measured_and_nothing_waits_where_python_is_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = WasmBackend()
    monkeypatch.setattr(backend, "is_ready", lambda *_args, **_fields: False)
    lines = python_lines(backend)
    assert {line.enforced for line in lines} == {None}
    assert all("prepare python" in line.evidence for line in lines)
