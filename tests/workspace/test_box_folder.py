"""The sandbox's own folder on a host without room: an error with a type, and no finished run is lost by it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.errors import BackendUnavailable


def refuse(prefix: str) -> str:
    raise OSError(28, "No space left on device")


def test_a_folder_that_cannot_be_made_is_an_error_with_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as box:
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "mkdtemp", refuse)
            with pytest.raises(BackendUnavailable, match="No space left on device"):
                box.write_file("a", b"")
            with pytest.raises(BackendUnavailable, match="TMPDIR"):
                box.list_dir()
        box.write_file("a", b"x")
        assert box.read_file("a") == b"x"


def test_a_run_whose_files_have_no_place_keeps_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as box:
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "mkdtemp", refuse)
            result = box.run("open('f', 'w').close(); print('ran')", "python", timeout=30)
        assert (result.ok, result.stdout) == (True, "ran\n")
        assert "were not kept" in result.notes[-1]
        assert "No space left on device" in result.notes[-1]


def test_a_folder_that_was_made_and_not_opened_is_not_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cannot(path: str) -> object:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("sandbox_kernel.workspace.box_folder.Rooted.at", cannot)
    with Sandbox() as box, pytest.raises(BackendUnavailable, match="Too many open files"):
        box.list_dir()
    assert list(tmp_path.iterdir()) == []
