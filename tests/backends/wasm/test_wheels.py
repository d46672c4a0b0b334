"""Wheels are checked before anything runs, loaded once by their content, and belong to one sandbox."""

from __future__ import annotations

import os
import stat
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


def test_modules_are_found_and_the_content_alone_makes_the_digest(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "thing/__init__.py": "", "thing/sub.py": "", "one.py": "", "thing-1.0.dist-info/RECORD": "",
        "thing-1.0.data/purelib/extra.py": "", "thing-1.0.data/scripts/run": "#!python", "evil.pth": "import os",
    }  # fmt: skip
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = read_wheels([made(tmp_path / "a", files)])
    again = read_wheels([made(tmp_path / "b", dict(reversed(files.items())), "other-2.0-py2.py3-none-any.whl")])
    assert first is not None and again is not None
    assert first.modules == ("extra", "one", "thing")
    assert first.digest == again.digest
    assert set(first.files) == {
        "thing/__init__.py", "thing/sub.py", "one.py", "thing-1.0.dist-info/RECORD", "extra.py"
    }  # fmt: skip


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


@pytest.mark.parametrize(
    "inside", ["../evil.py", "/etc/evil.py", "a/../../b.py", "a//b.py", "C:\\evil.py", "a\\b.py", "a/./b.py", "n\nl.py"]
)
def test_a_name_that_leads_out_of_its_folder_is_refused(tmp_path: Path, inside: str) -> None:
    with pytest.raises(InvalidRequest, match="would not stay in its folder"):
        read_wheels([made(tmp_path, {inside: "x = 1"})])


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        member = zipfile.ZipInfo("thing.py")
        member.external_attr = (kind | 0o777) << 16
        archive.writestr(member, "/etc/passwd")
    with pytest.raises(InvalidRequest, match="no plain file"):
        read_wheels([path])


def test_native_code_twins_and_damage_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="native code"):
        read_wheels([made(tmp_path, {"thing/fast.cpython-312.so": b"\x7fELF"})])
    path = made(tmp_path, {"thing.py": "x = 1" * 100})
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InvalidRequest, match="damaged"):
        read_wheels([path])
    path.write_bytes(b"not a zip")
    with pytest.raises(InvalidRequest, match="damaged"):
        read_wheels([path])
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing.py", "1")
        archive.writestr("thing.py", "2")
    with pytest.raises(InvalidRequest, match="twice"):
        read_wheels([path])


def test_two_wheels_that_differ_in_one_file_are_refused(tmp_path: Path) -> None:
    one = made(tmp_path, {"thing.py": "1"}, "one-1.0-py3-none-any.whl")
    two = made(tmp_path, {"thing.py": "2"}, "two-1.0-py3-none-any.whl")
    with pytest.raises(InvalidRequest, match=r"two-1.* and one-1.* both have thing\.py"):
        read_wheels([one, two])


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels_module, "MOST_BYTES", 1 << 20)
    bomb = made(tmp_path, {"thing.py": bytes(2 << 20)})
    assert bomb.stat().st_size < 10_000
    with pytest.raises(InvalidRequest, match="too large"):
        read_wheels([bomb])
    half = [made(tmp_path, {f"t{n}.py": bytes(700_000)}, f"t{n}-1.0-py3-none-any.whl") for n in range(2)]
    with pytest.raises(InvalidRequest, match="give fewer"):
        read_wheels(half)
    monkeypatch.setattr(wheels_module, "MOST_FILES", 10)
    with pytest.raises(InvalidRequest, match="lists 11 files"):
        read_wheels([made(tmp_path, {f"{n}.py": "" for n in range(11)})])


def test_a_file_that_says_it_is_smaller_than_it_is_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, {"thing.py": b"x" * 5000})
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x01\x02")
    data[place + 24 : place + 28] = (10).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    with pytest.raises(InvalidRequest, match=r"thing-1\.0"):
        read_wheels([path])


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


@pytest.mark.slow
def test_runs_and_sessions_have_the_wheels_loaded_and_other_sandboxes_do_not(tmp_path: Path) -> None:
    (tmp_path / "tinything-1.0-py3-none-any.whl").write_bytes(wheel())
    lazy = {
        "lazy/__init__.py": "import sys; early = 'pytest' in sys.modules",
        "lazy/late.py": "x = 5",
        "lazy/data/words.txt": "by path",
        "bad.py": "1 / 0",
    }
    made(tmp_path, dict(lazy))
    by_path = (
        "import lazy, os, importlib.resources as r; print(open(os.path.join(lazy.__path__[0], 'data/words.txt')).read(),"
        " (r.files('lazy') / 'data' / 'words.txt').read_text())"
    )
    code = (
        "import sys; print('tinything' in sys.modules, 'lazy.late' in sys.modules, 'bad' in sys.modules)\n"
        "import tinything, lazy.late, importlib.metadata as m\n"
        "print(tinything.answer, lazy.late.x, m.version('tinything'), tinything.__file__)"
    )
    with Sandbox(backend="wasm", wheels=[tmp_path]) as box:
        result = box.run(code)
        expected = "True False False\n42 5 1.0 /wheels/tinything/__init__.py\n"
        assert (result.status, result.stdout) == (Status.OK, expected), result.stderr
        assert box.run("import bad").status is Status.FAILED
        assert box.run(by_path).stdout == "by path by path\n"
        with box.session("python") as session:
            assert session.run(code).stdout == expected
            assert session.run(by_path).stdout == "by path by path\n"
            session.run("tinything.answer = 43")
            with session.fork() as other:
                assert other.run("print(tinything.answer)").stdout == "43\n"
            session.save(tmp_path / "saved")
        with box.load_session(tmp_path / "saved") as loaded:
            assert loaded.run("import lazy.late; print(tinything.answer, lazy.late.x)").stdout == "43 5\n"
        assert box.run("import tinything; print(tinything.answer)").stdout == "42\n"
        for write in ("open('/wheels/x', 'w')", "open('/wheels/lazy/late.py', 'r+b')"):
            assert box.run(write).status is Status.FAILED
    with Sandbox(backend="wasm") as other_box:
        assert "ModuleNotFoundError" in other_box.run("import tinything").stderr
        with pytest.raises(InvalidRequest, match="wheels"):
            other_box.load_session(tmp_path / "saved")


def test_a_wheel_that_ends_python_is_refused_and_named(tmp_path: Path) -> None:
    with Sandbox(backend="wasm", wheels=[made(tmp_path, {"thing.py": "import os; os._exit(3)"})]) as box:
        with pytest.raises(InvalidRequest, match=r"thing-1\.0.*ended Python with 3"):
            box.run("print(1)")
