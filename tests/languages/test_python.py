"""Python: which interpreter, and which packages come with it."""

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox
from sandbox_kernel.jail import interpreter


def test_the_default_is_the_one_that_runs_this(box: Sandbox) -> None:
    result = box.run("import sys; print(sys.prefix, *sys.version_info[:3], sep=chr(10))", "python")
    assert result.stdout.splitlines() == [sys.prefix, *map(str, sys.version_info[:3])]


def test_the_facade_takes_another_interpreter_for_one_run(box: Sandbox, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    result = box.run("import sys; print(sys.prefix)", "python", python=str(tmp_path / "env"))
    assert result.stdout == f"{tmp_path}/env\n", result.stderr
    with pytest.raises(InvalidRequest, match="is for python, not for javascript"):
        box.run("1", "js", python="3.12")


def test_a_version_is_looked_for_on_the_path_and_where_tools_put_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    places = ["bin/python3.9", ".pyenv/versions/3.10.2/bin/python3", ".pyenv/versions/3.10.11/bin/python3"]
    places.append(".local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu/bin/python3")
    for place in places:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh")
        path.chmod(0o755)
    found = [interpreter._find_version(version) for version in ("3.9", "3.10", "3.10.2", "3.13", "3.8")]
    assert found == [
        str(tmp_path / places[0]),
        str(tmp_path / places[2]),
        str(tmp_path / places[1]),
        str(tmp_path / places[3]),
        None,
    ]


def test_the_cells_line_is_in_the_traceback_and_no_line_of_ours(box: Sandbox) -> None:
    result = box.run("def f():\n    raise ValueError('x')\nf()", "python")
    assert result.stderr.count("File ") == 2
    assert "File \"/cell/cell.py\", line 2, in f\n    raise ValueError('x')\n" in result.stderr
