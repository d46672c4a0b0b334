"""Wheels are checked by name, read by the Python inside alone, and belong to one sandbox."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.backends.wasm import wheels as wheels_module
from sandbox_kernel.backends.wasm.wheels import read_wheels
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import Status
from tests.package_index import wheel

pytestmark = pytest.mark.timeout(600)


def made(folder: Path, files: dict[str, str | bytes], name: str = "thing-1.0-py3-none-any.whl") -> Path:
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, data in files.items():
            archive.writestr(inside, data)
    return folder / name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("numpy-2.0-cp312-cp312-manylinux_2_17_x86_64.whl", "prepare science"),
        ("thing-1.0-py2-none-any.whl", "only pure"),
        ("thing.zip", "no wheel"),
        ("thing-1.0-py3-none-any.whl.exe", "no wheel"),
    ],
)
def test_a_wheel_for_another_interpreter_is_refused_by_name(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        read_wheels([made(tmp_path, {"thing.py": ""}, name)])


def test_what_is_no_archive_too_large_or_called_alike_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thing-1.0-py3-none-any.whl").write_bytes(b"not a zip")
    with pytest.raises(InvalidRequest, match="no archive"):
        read_wheels([tmp_path])
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidRequest, match="called thing-1"):
        read_wheels([made(tmp_path, {"thing.py": "1"}), made(tmp_path / "other", {"thing.py": "2"})])
    monkeypatch.setattr(wheels_module, "MOST_BYTES", 100)
    with pytest.raises(InvalidRequest, match="more than"):
        read_wheels([made(tmp_path, {"thing.py": "1"})])


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_wheel_that_is_no_file_does_not_block(tmp_path: Path, make: Callable[[str], None]) -> None:
    path = tmp_path / "thing-1.0-py3-none-any.whl"
    make(str(path))
    with pytest.raises(InvalidRequest):
        read_wheels([path])


@pytest.mark.parametrize("wrong", ["one.whl", [3], [""], ["a\0b"], ["/nowhere/thing-1.0-py3-none-any.whl"]])
def test_wrong_arguments_are_typed_errors(wrong: object) -> None:
    with pytest.raises(InvalidRequest):
        Sandbox(backend="wasm", wheels=wrong)  # type: ignore[arg-type]


def test_wheels_are_for_the_backend_that_can_load_them(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="backend='wasm'"):
        Sandbox(wheels=[made(tmp_path, {"thing.py": ""})])


HOSTILE: dict[str, str | bytes] = {
    "../evil.py": "x = 1", "/box/evil.py": "x = 1", "evil.pth": "import os; os._exit(9)", "thing.so": b"\x7fELF",
}  # fmt: skip


@pytest.mark.slow
def test_runs_and_sessions_import_the_wheels_and_other_sandboxes_do_not(tmp_path: Path) -> None:
    (tmp_path / "tinything-1.0-py3-none-any.whl").write_bytes(wheel())
    made(tmp_path, {"lazy/__init__.py": "", "lazy/late.py": "x = 5", "lazy/words.txt": "data", "bad.py": "1 / 0",
                    "spaced/inner/deep.py": "y = 6"})  # fmt: skip
    made(tmp_path, HOSTILE, "hostile-1.0-py3-none-any.whl")
    (tmp_path / "broken-1.0-py3-none-any.whl").write_bytes(b"PK\3\4" + bytes(1000))
    code = (
        "import tinything, lazy.late, os, importlib.metadata as m, importlib.resources as r\n"
        "print(tinything.answer, lazy.late.x, m.version('tinything'), (r.files('lazy') / 'words.txt').read_text())\n"
        "print(tinything.__file__, os.listdir('/box'))"
    )
    with Sandbox(backend="wasm", wheels=[tmp_path]) as box:
        result = box.run(code)
        expected = "42 5 1.0 data\n/wheels/tinything-1.0-py3-none-any.whl/tinything/__init__.py []\n"
        assert (result.status, result.stdout) == (Status.OK, expected), result.stderr
        assert box.run("import spaced.inner.deep as deep; print(deep.y)").stdout == "6\n"
        assert "broken-1.0-py3-none-any.whl is damaged" in result.stderr
        assert box.run("import bad").status is Status.FAILED
        assert "ModuleNotFoundError" in box.run("import thing").stderr
        with box.session("python") as session:
            assert session.run(code).stdout == expected
            session.run("tinything.answer = 43")
            with session.fork() as other:
                assert other.run("print(tinything.answer)").stdout == "43\n"
            session.save(tmp_path / "saved")
        with box.load_session(tmp_path / "saved") as loaded:
            assert loaded.run("import lazy.late; print(tinything.answer, lazy.late.x)").stdout == "43 5\n"
        assert box.run("import tinything; print(tinything.answer)").stdout == "42\n"
        for name in ("x", "tinything-1.0-py3-none-any.whl"):
            assert box.run(f"open('/wheels/{name}', 'r+b' if {name != 'x'} else 'w')").status is Status.FAILED
    with Sandbox(backend="wasm") as other_box:
        assert "ModuleNotFoundError" in other_box.run("import tinything").stderr
        with pytest.raises(InvalidRequest, match="wheels"):
            other_box.load_session(tmp_path / "saved")
