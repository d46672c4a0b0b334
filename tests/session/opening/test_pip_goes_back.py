"""``%pip`` in WebAssembly takes older versions where the newest do not fit, and gives up after a bounded search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import SandboxPolicy
from sandbox_kernel.session.opening.open_wasm import WasmSession, open_wasm_session
from tests.session.opening.test_light_python import LightBackend
from tests.session.opening.test_pip_in_wasm import FROM, PATIENCE_S, put_wheel, refusal

pytestmark = pytest.mark.timeout(600)
#: Name and version, and what each needs; ``Python`` is the interpreter.
WHEELS = {
    "low-1.0": (), "low-1.5": (), "low-2.0": (),
    "app-1.0": ("low<2",), "app-2.0": ("low>=3",), "app-3.0": ("low>=2", "low<2"),
    "left-1.0": ("low<2",), "left-2.0": ("low>=2",), "right-1.0": ("low<2",),
    "mixed-1.0": (), "mixed-2.0": ("fast",), "extra-1.0": ("low<2; extra == 'more'",),
    "extra-2.0": ("fast; extra == 'more'",),
}  # fmt: skip


@pytest.fixture
def session(tmp_path: Path) -> Iterator[WasmSession]:
    for file, needs in WHEELS.items():
        put_wheel(tmp_path, f"{file}-py3-none-any.whl", {f"{file.partition('-')[0]}.py": ""}, needs=needs)
    put_wheel(tmp_path, "fast-1.0-cp312-cp312-manylinux_2_17_x86_64.whl", {"fast.so": b"\x7fELF"})
    put_wheel(tmp_path, "modern-1.0-py3-none-any.whl", {"modern.py": ""})
    for name in ("modern-2.0", "future-1.0"):
        put_wheel(tmp_path, f"{name}-py3-none-any.whl", {"modern.py": ""}, python=">=3.99")
    for number in range(230):
        put_wheel(tmp_path, f"many-{number}-py3-none-any.whl", {}, needs=(f"low=={number + 5}",))
    backend = LightBackend(SandboxPolicy().mount(tmp_path, "/wheelhouse"))
    with open_wasm_session(backend, "python") as opened:
        yield opened


TAKEN = [
    ("app", "app-1.0 low-1.5"),
    ("left right", "left-1.0 right-1.0 low-1.5"),
    ("mixed", "mixed-1.0"),
    ("modern", "modern-1.0"),
    ("extra", "extra-2.0"),
    ("extra[more]", "extra-1.0 low-1.5"),
]


@pytest.mark.slow
def test_an_older_version_is_taken_where_the_newest_does_not_fit(session: WasmSession) -> None:
    for names, told in TAKEN:
        done = session.run(f"%pip install {FROM} {names}", timeout=PATIENCE_S)
        said = done.stdout.partition("Successfully installed ")[2].split()
        assert sorted(said) == sorted(told.split()), (names, done.stdout, done.stderr)
        session.undo()


@pytest.mark.slow
def test_a_search_without_an_end_is_given_up_and_says_what_to_do(session: WasmSession) -> None:
    assert "ask for exact versions" in refusal(session, f"%pip install {FROM} many")[1]
    assert "future 1.0 needs Python >=3.99; this is Python 3." in refusal(session, f"%pip install {FROM} future")[1]
    ename, said = refusal(session, f"%pip install {FROM} 'mixed>1'")
    assert (ename, "fast (by mixed 2.0)" in said) == ("NativePackage", True), said
