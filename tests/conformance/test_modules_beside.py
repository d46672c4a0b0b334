"""Modules beside a notebook, which anybody may have written, are not imported by the kernel's own process."""

import subprocess
import sys

import pytest

from tests.conformance.conftest import ROOT, Client

#: Modules that the kernel imports at its start, of the standard library and of others.
NAMES = ("secrets", "zmq", "h11", "json", "sandbox_kernel")


def leave_modules(folder):
    """Write modules that say so when they are imported; returns the file in which they say it."""
    told = folder / "imported"
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(told)!r}, 'a').write({name!r} + ' ')\n")
    return told


def test_the_sandbox_kernel_imports_nothing_from_the_folder_of_the_notebook(tmp_path, monkeypatch):
    told = leave_modules(tmp_path)
    monkeypatch.chdir(tmp_path)
    client = Client()
    try:
        assert client.text("print(1)") == "1\n"
    finally:
        client.close()
    assert not told.exists()


@pytest.mark.slow
def test_without_the_flag_or_with_an_empty_part_of_pythonpath_only_what_is_named_like_the_package_is(
    tmp_path, monkeypatch
):
    told = leave_modules(tmp_path)
    (tmp_path / "sandbox_kernel.py").unlink()
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:")
    # A wrapped kernel without the arguments of its kernelspec says so and ends with 2.
    for words, code in (("sandbox_kernel --version", 0), ("sandbox_kernel.wrapped --help", 2)):
        done = subprocess.run([sys.executable, "-m", *words.split()], cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode == code, done.stderr
    assert not told.exists()
