"""Headers of tars: those of ``tarfile`` are understood alike, and no header costs more than it is long."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.workspace.archive import Member, read_headers, restore
from sandbox_kernel.workspace.tree.rooted import Rooted

END = bytes(1024)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=120)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


def read(data: bytes) -> list[Member]:
    fd = os.memfd_create("tar")
    try:
        os.write(fd, data)
        return list(read_headers(fd))
    finally:
        os.close(fd)


def header(name: str = "f", size: int = 0, kind: bytes = b"0") -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.USTAR_FORMAT)


def extended(content: bytes, kind: bytes = b"x") -> bytes:
    return header("pax", len(content), kind) + content + bytes(-len(content) % 512)


def record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    while len(b"%d %s=%s\n" % (length, key, value)) != length:
        length += 1
    return b"%d %s=%s\n" % (length, key, value)


@given(
    st.lists(st.tuples(paths, st.binary(max_size=1500), st.integers(0, 0o777), st.integers(0, 1 << 34)), max_size=4),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_what_tarfile_writes_is_understood_as_it_understands_it(
    files: list[tuple[str, bytes, int, int]], form: int
) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as tar:
        for name, content, mode, mtime in files:
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), mode, mtime
            tar.addfile(info, io.BytesIO(content))
    data = made.getvalue()
    found = read(data)
    assert [(entry.path, entry.mode, entry.mtime_ns) for entry, _ in found] == [
        (name, mode, time * 10**9) for name, _, mode, time in files
    ]
    assert [data[offset : offset + entry.size] for entry, offset in found] == [content for _, content, _, _ in files]
    assert {entry.type for entry, _ in found} <= {"file"}


@given(st.binary(max_size=2000) | st.binary(max_size=512).map(lambda junk: extended(junk) + header() + END))
def test_any_bytes_are_headers_or_a_value_error(data: bytes) -> None:
    try:
        assert all(entry.size >= 0 for entry, _ in read(data))
    except (ValueError, OverflowError, OSError):
        return


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(extended(b"7" * 300_000) + header() + END, id="digits"),
        pytest.param(extended(record(b"path", b"a")) + END, id="no member"),
        pytest.param(extended(record(b"path", b"a"), b"g") + header() + END, id="one path for all"),
        pytest.param(extended(record(b"size", b"0"), b"g") + header() + END, id="one size for all"),
        pytest.param(extended(b"99999999999999999999 a=b\n") + header() + END, id="length"),
        pytest.param(extended(b"0 a=b\n") + header() + END, id="length zero"),
        pytest.param(extended(record(b"size", b"-5")) + header() + END, id="negative size"),
        pytest.param(extended(record(b"size", b"5_0")) + header() + END, id="size with an underscore"),
        pytest.param(header()[:124] + b"\xff" * 12 + header()[136:] + END, id="negative binary size"),
        pytest.param(header("pax", 2 << 20, b"x") + END, id="megabytes"),
    ],
)
def test_a_header_that_is_unclear_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|ends"):
        read(data)


def restored(tmp_path: Path, data: bytes) -> Callable[[], None]:
    archive, target = tmp_path / "a.tar", tmp_path / "out"
    archive.write_bytes(data)
    target.mkdir()

    def act() -> None:
        with Rooted.at(target) as root:
            restore(archive, root)

    return act


def steps(act: Callable[[], None]) -> int:
    """How many lines of Python something takes: the same on every machine, unlike its time."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def test_a_global_header_is_not_copied_for_each_member(tmp_path: Path) -> None:
    told = extended(b"".join(record(b"%x" % number, b"") for number in range(1000)), b"g")
    members = b"".join(header(f"d{number}/", kind=b"5") for number in range(20))
    (tmp_path / "plain").mkdir()
    (tmp_path / "told").mkdir()
    plain = steps(restored(tmp_path / "plain", members + END))
    assert steps(restored(tmp_path / "told", told + members + END)) < plain + 20 * 1000


def test_thousands_of_headers_before_a_header_fill_no_stack(tmp_path: Path) -> None:
    restored(tmp_path, extended(record(b"comment", b"x")) * 3000 + header("a") + END)()
    assert os.listdir(tmp_path / "out") == ["a"]


@pytest.mark.slow
def test_folders_on_the_way_to_a_member_count(tmp_path: Path) -> None:
    deep = "/".join(["d"] * 250)
    members = (extended(record(b"path", f"{number}/{deep}/f".encode())) + header() for number in range(450))
    with pytest.raises(InvalidRequest, match="100000 files and folders"):
        restored(tmp_path, b"".join(members) + END)()
    assert os.listdir(tmp_path / "out") == []


def test_a_member_deeper_than_any_sandbox_takes_is_refused(tmp_path: Path) -> None:
    path = "/".join(["d"] * 300).encode()
    with pytest.raises(InvalidRequest, match="256 folders deep"):
        restored(tmp_path, extended(record(b"path", path)) + header() + END)()
    assert os.listdir(tmp_path / "out") == []
