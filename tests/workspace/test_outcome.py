"""What a finished run changed: told in full, at a cost that the run cannot choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel.workspace import changes as outcome
from sandbox_kernel.workspace.changes import RENAMES_READ_BYTES, changes_since
from sandbox_kernel.workspace.tree.rooted import Rooted


def read_so_far() -> int:
    """Bytes that this process has read through system calls."""
    rows = Path("/proc/self/io").read_text().splitlines()
    return int(next(row for row in rows if row.startswith("rchar")).split()[1])


def told(tmp_path: Path, given: dict[str, bytes]) -> set[tuple[str, str, str | None]]:
    with Rooted.at(tmp_path) as box:
        changes, notes = changes_since(box, given)
    assert notes == ()
    return {(change.path, change.kind, change.renamed_from) for change in changes}


@pytest.mark.attack("R12", "host")
def test_the_host_reads_little_of_files_of_holes_as_large_as_a_deleted_one(tmp_path: Path):
    size = 4 << 20
    for number in range(100):
        with open(tmp_path / f"f{number:03}", "wb") as file:
            file.truncate(size)
    before = read_so_far()
    changes = told(tmp_path, {"in.bin": b"x" * size})
    assert read_so_far() - before < RENAMES_READ_BYTES + (2 << 20)
    assert ("in.bin", "deleted", None) in changes
    assert len(changes) == 101


def test_a_rename_is_told_while_there_are_bytes_left_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outcome, "RENAMES_READ_BYTES", 5)
    (tmp_path / "one").write_bytes(b"1111")
    (tmp_path / "two").write_bytes(b"2222")
    assert told(tmp_path, {"a": b"1111", "b": b"2222"}) == {
        ("one", "renamed", "a"), ("two", "created", None), ("b", "deleted", None),
    }  # fmt: skip


def test_of_two_deleted_files_with_the_same_content_both_are_told(tmp_path: Path):
    assert told(tmp_path, {"a/__init__.py": b"", "b/__init__.py": b""}) == {
        ("a/__init__.py", "deleted", None), ("b/__init__.py", "deleted", None),
    }  # fmt: skip


def test_two_files_with_the_same_content_may_both_be_renamed(tmp_path: Path):
    for name in ("x", "y"):
        (tmp_path / name).write_bytes(b"same")
    kinds = {(path, kind) for path, kind, _ in told(tmp_path, {"a": b"same", "b": b"same"})}
    assert kinds == {("x", "renamed"), ("y", "renamed")}


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path):
    (tmp_path / "src").write_bytes(b"a file")
    assert told(tmp_path, {"src/tool.py": b"x = 1"}) == {("src", "created", None), ("src/tool.py", "deleted", None)}
