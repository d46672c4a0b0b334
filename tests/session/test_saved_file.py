import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.session.saved_file import ALIGNMENT, MAGIC, SavedHeader, State, read_saved, write_saved
from sandbox_kernel.workspace.transfer import FolderState
from sandbox_kernel.workspace.tree.walk import FILE, Entry

MEMORY = bytes(range(256)) * (2 * ALIGNMENT // 256)
FILES = {"a.txt": b"text", "sub/b.bin": b"\0\1\2", "empty": b""}


def header(**fields: object) -> SavedHeader:
    known = {
        "language": "javascript", "guest": "g" * 64, "guest_version": "QuickJS", "memory_mb": 512,
    }  # fmt: skip
    return SavedHeader(**{**known, **fields})  # type: ignore[arg-type]


def state(files: Mapping[str, bytes]) -> State:
    entries = {path: Entry(path, FILE, len(data), 0o600, data=data) for path, data in files.items()}
    return State(SealedMemory(MEMORY), 1.5, FolderState(entries))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_saved(str(tmp_path / "s.session"), header(), state(FILES))
    return tmp_path / "s.session"


def test_what_was_saved_is_read_again(saved: Path) -> None:
    found = read_saved(str(saved))
    assert dict(found.state.folder.files) == FILES
    assert os.pread(found.state.memory.fileno(), 2 * len(MEMORY), 0) == MEMORY
    assert (found.header.language, found.header.elapsed_s, found.header.memory_mb) == ("javascript", 1.5, 512)


def test_a_saved_session_is_private_and_leaves_nothing_beside_it(saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert sorted(path.name for path in saved.parent.iterdir()) == ["s.session"]


def test_a_file_that_is_changed_after_it_was_checked_changes_nothing(saved: Path) -> None:
    found = read_saved(str(saved))
    saved.write_bytes(bytes(saved.stat().st_size))
    assert os.pread(found.state.memory.fileno(), len(MEMORY), 0) == MEMORY


@pytest.mark.parametrize("place", [0, 30, 60, ALIGNMENT + 5, -1])
def test_a_changed_byte_is_noticed(saved: Path, place: int) -> None:
    data = bytearray(saved.read_bytes())
    data[place] ^= 0x20
    saved.write_bytes(data)
    with pytest.raises(InvalidRequest, match=r"damaged|not a saved session"):
        read_saved(str(saved))


@pytest.mark.parametrize("size", [0, 10, len(MAGIC), len(MAGIC) + 2, 200, ALIGNMENT, ALIGNMENT + 100])
def test_a_cut_file_is_refused(saved: Path, size: int) -> None:
    saved.write_bytes(saved.read_bytes()[:size])
    with pytest.raises(InvalidRequest, match=r"damaged|not a saved session|cut"):
        read_saved(str(saved))


def test_a_file_with_something_after_its_end_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes() + b"more")
    with pytest.raises(InvalidRequest, match="cut or damaged"):
        read_saved(str(saved))


def with_header(saved: Path, **fields: object) -> None:
    data = saved.read_bytes()
    start = len(MAGIC) + 4
    length = int.from_bytes(data[len(MAGIC) : start], "big")
    described = json.loads(data[start : start + length])
    fields["entries"] = [*described["entries"], *fields.get("entries", ())]  # type: ignore[misc]
    described |= fields
    text = json.dumps(described).encode()
    rest = data[-(-(start + length) // ALIGNMENT) * ALIGNMENT :]
    head = MAGIC + len(text).to_bytes(4, "big") + text
    saved.write_bytes(head + bytes(-len(head) % ALIGNMENT) + rest)


@pytest.mark.parametrize(
    "fields",
    [
        {"entries": [("../escape", "file")]},
        {"entries": [("/etc/passwd", "file")]},
        {"entries": [("a", "file", -1)]},
        {"entries": [("a", "file", 1 << 40)]},
        {"entries": [("a", "file", 1), ("b", "file", -1)]},
        {"entries": [("a", "directory", 1)]},
        {"entries": [("a", "file"), ("a", "file")]},
        {"files_sha256": "0" * 64},
        {"memory_bytes": -ALIGNMENT},
        {"memory_bytes": 5},
        {"memory_bytes": 1 << 50},
        {"memory_bytes": "many"},
        {"elapsed_s": None},
        {"entries": [("d",)]},
        {"entries": [("../escape", "directory", 0, 0o755, 0, 0)]},
        {"entries": [("/etc", "gone", 0, 0, 0, -1)]},
        {"entries": [("l", "symlink", 0, 0o777, 0, -1, 0, "/etc/passwd")]},
        {"entries": [("l", "symlink", 0, 0o777, 0, -1, 0, "../../etc/passwd")]},
        {"entries": [("d/up", "symlink", 0, 0o777, 0, -1, 0, ".."), ("l", "symlink", 0, 0o777, 0, -1, 0, "d/up/..")]},
        {"entries": [("sub", "symlink", 0, 0o777, 0, -1, 0, "a.txt")]},
        {"entries": [("a.txt", "symlink", 0, 0o777, 0, -1, 0, "sub")]},
        {"entries": [("a.txt/x", "directory", 0, 0o777, 0, -1)]},
        {"entries": [("a.txt/x", "file")]},
        {"entries": [("l", "symlink", 0, 0o777, 0, -1, 0, "x"), ("l/y", "directory", 0, 0o755, 0, -1)]},
        {"entries": [("d", "device", 0, 0o666, 0, -1)]},
        {"entries": [("d", "directory", 0, 0o4755, 0, -1)]},
        {"entries": [("d", "directory", 0, -1, 0, -1)]},
        {"entries": [("d", "directory", 0, 0o755, 0, 1 << 90)]},
        {"entries": [("d", "directory", 0, 0o755, 0, -5)]},
        {"entries": [("d", "directory", 0, True, 0, -1)]},
        {"entries": [("l", "symlink", 0, 0o777, 0, -1, 0, "x" * 5000)]},
        {"entries": [(f"{n}", "directory") for n in range(20_001)]},
        {"left_out": {str(n): "" for n in range(101)}},
        {"left_out": []},
        {"is_layer": 1},
        {"recipes": []},
        {"recipes": {"x": 1}},
        {"recipes": {f"x{n}": "1" for n in range(200_000)}},
        {"elapsed_s": float("nan")},
        {"elapsed_s": float("inf")},
        {"elapsed_s": -1},
        {"elapsed_s": 10**400},
        {"elapsed_s": True},
        {"memory_mb": True},
        {"memory_mb": -1},
        {"memory_mb": 1e30},
        {"memory_mb": "512"},
        {"memory_mb": 10**12},
        {"memory_bytes": 2.0 * ALIGNMENT},
        {"language": ["javascript"]},
        {"guest_version": "\x1b]0;title\x07"},
        {"guest_version": "x" * 1000},
        {"entries": [("a", "file", 1 << 29)]},
        {"more": [[]] * 400_000},
    ],
    ids=lambda fields: str(fields)[:60],
)
@pytest.mark.one_case
def test_a_hostile_header_is_refused(saved: Path, fields: dict[str, object]) -> None:
    with_header(saved, **fields)
    with pytest.raises(InvalidRequest, match=r"header cannot|sizes cannot|its files are not|memory limit|work folder"):
        read_saved(str(saved))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.binary(max_size=400))
def test_any_bytes_are_refused_and_nothing_else(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(MAGIC + data)
    with pytest.raises(InvalidRequest):
        read_saved(str(path))


def test_a_missing_file_and_a_folder_that_is_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read: No such file"):
        read_saved(str(tmp_path / "none"))
    with pytest.raises(SessionError, match="cannot be saved"):
        write_saved(str(tmp_path / "none" / "s"), header(), state({}))


def test_memory_beyond_the_sessions_own_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A file of a few kilobytes may say that it holds gigabytes of nothing."""
    path = tmp_path / "s"
    fields = {**vars(header()), "memory_bytes": 1 << 30}
    text = json.dumps(fields).encode()
    path.write_bytes(MAGIC + len(text).to_bytes(4, "big") + text)
    os.truncate(path, ALIGNMENT + (1 << 30))
    with pytest.raises(InvalidRequest, match="its sizes cannot be right"):
        read_saved(str(path))


def test_a_session_that_is_not_wanted_is_refused_before_its_memory_is_read(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SealedMemory, "of_file", lambda *_: pytest.fail("its memory was read"))

    def refuse(found: SavedHeader) -> None:
        raise InvalidRequest(f"no {found.language} here")

    with pytest.raises(InvalidRequest, match="no javascript here"):
        read_saved(str(saved), refuse)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_is_no_saved_session(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "s")
    with pytest.raises(InvalidRequest):
        read_saved(str(tmp_path / "s"))


@pytest.mark.parametrize("there", [b"#!/bin/sh\n", b"a,b\n1,2\n", b"sandbox-kernel session"])
def test_a_saved_session_replaces_no_other_file(saved: Path, there: bytes) -> None:
    theirs = saved.parent / "run.sh"
    theirs.write_bytes(there)
    (saved.parent / "link").symlink_to(theirs)
    (saved.parent / "folder").mkdir()
    for name in ("run.sh", "link", "folder"):
        with pytest.raises(InvalidRequest, match="is no saved session"):
            write_saved(str(saved.parent / name), header(), state(FILES))
    write_saved(str(saved), header(), state({}))
    assert theirs.read_bytes() == there and not read_saved(str(saved)).state.folder.files


def test_what_was_left_out_is_shown_without_the_characters_of_a_stranger(saved: Path) -> None:
    with_header(saved, left_out={"a\x1b]0;title\x07\n" + "b" * 999: "\x1b[31mwhy\nnot" * 99})
    ((path, why),) = read_saved(str(saved)).header.left_out.items()
    assert path.isprintable() and why.isprintable() and max(len(path), len(why)) < 210
