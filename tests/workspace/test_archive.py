from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import InvalidRequest, PathTraversal, SandboxError
from sandbox_kernel.workspace import archive as archive_module
from sandbox_kernel.workspace.archive import Member, read_headers, restore, save
from sandbox_kernel.workspace.tree.rooted import Rooted

Members = list[tuple[tarfile.TarInfo, bytes]]


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, **fields: object) -> Members:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return [(info, content)]


@pytest.fixture
def tar(tmp_path: Path) -> Callable[..., Path]:
    def make(*members: Members) -> Path:
        path = tmp_path / "hostile.tar"
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for info, content in (pair for group in members for pair in group):
                archive.addfile(info, io.BytesIO(content))
        return path

    return make


def test_snapshot_creates_a_private_tar_and_lists_the_links_and_fifos_that_it_leaves_out(
    rooted: Rooted, folder: Path, tmp_path: Path, outside: Path
) -> None:
    (folder / "a").write_text("x")
    (folder / "link").symlink_to(outside / "secret.txt")
    os.mkfifo(folder / "pipe")
    left = save(rooted, tmp_path / "s.tar")
    assert [(item.path, item.type) for item in left] == [("link", "symlink"), ("pipe", "fifo")]
    with tarfile.open(tmp_path / "s.tar") as archive:
        assert archive.getnames() == ["a"]
    assert stat.S_IMODE((tmp_path / "s.tar").stat().st_mode) == 0o600


def test_resume_restores_the_workspace_with_modes_times_and_hostile_names(
    rooted: Rooted, folder: Path, tmp_path: Path
) -> None:
    names = ["plain", "-rf", "a\nb", "\x1b[2J", "..\\up", "\\abs", "C:x", "\udcff", "caf\u00e9", "a" * 255]
    for name in names:
        (folder / name).write_bytes(os.fsencode(name) * 3)
    (folder / "d" / "empty").mkdir(parents=True)
    (folder / "private").mkdir(mode=0o700)
    (folder / "/".join(["n" * 100] * 5)).mkdir(parents=True)
    (folder / "run").write_bytes(bytes(range(256)))
    (folder / "run").chmod(0o4750)
    os.utime(folder / "run", (1_000_000_000, 1_000_000_000))
    assert save(rooted, tmp_path / "s.tar") == ()
    rooted.clear()
    restore(tmp_path / "s.tar", rooted)
    for name in names:
        assert (folder / name).read_bytes() == os.fsencode(name) * 3
    assert (folder / "d" / "empty").is_dir()
    assert (folder / "/".join(["n" * 100] * 5)).is_dir()
    assert stat.S_IMODE((folder / "private").stat().st_mode) == 0o700
    status = (folder / "run").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime) == (0o750, 1_000_000_000)
    assert (folder / "run").read_bytes() == bytes(range(256))


def test_a_terabyte_of_holes_is_refused_and_leaves_no_file(rooted: Rooted, folder: Path, tmp_path: Path) -> None:
    with open(folder / "s", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidRequest, match="bytes"):
        save(rooted, tmp_path / "s.tar")
    assert sorted(os.listdir(tmp_path)) == ["root"]


def test_a_failed_save_keeps_the_archive_that_was_there(
    rooted: Rooted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooted.write("a", b"x" * 100)
    save(rooted, tmp_path / "s.tar")
    before = (tmp_path / "s.tar").read_bytes()
    monkeypatch.setattr(archive_module, "MAX_ARCHIVE_BYTES", 10)
    for place in ("s.tar", "missing/s.tar"):
        with pytest.raises(InvalidRequest):
            save(rooted, tmp_path / place)
    assert (tmp_path / "s.tar").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["root", "s.tar"]


def test_a_missing_file_a_fifo_or_a_folder_as_archive_is_refused_and_not_waited_for(
    rooted: Rooted, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, says in {"none.tar": "none.tar", "pipe": "fifo", "root": "directory"}.items():
        with pytest.raises(InvalidRequest, match=says):
            restore(tmp_path / name, rooted)


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../up", "a/..", "..", "/box/x", "./../up"])
def test_zip_slip_a_member_that_leads_out_is_a_traversal_and_nothing_is_written(
    rooted: Rooted, folder: Path, tar: Callable[..., Path], name: str
) -> None:
    with pytest.raises(PathTraversal):
        restore(tar(member("first", b"x"), member(name, b"escaped")), rooted)
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, b"g", b"L", b"Z"],
)
def test_links_devices_and_unknown_members_are_refused_and_nothing_is_written(
    rooted: Rooted, folder: Path, tar: Callable[..., Path], outside: Path, kind: bytes
) -> None:
    hostile = member("a", kind=kind, linkname=str(outside))
    with pytest.raises(InvalidRequest, match="plain file"):
        restore(tar(member("first", b"x"), hostile, member("a/secret.txt", b"escaped")), rooted)
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    "members",
    [
        pytest.param([member("a", b"1"), member("a", b"2")], id="a name twice"),
        pytest.param([member("a", b"1"), member("./a", b"2")], id="a name twice, written differently"),
        pytest.param([member("a", b"1"), member("a", kind=tarfile.DIRTYPE)], id="a file and a folder of one name"),
        pytest.param([member("a/b", b"1"), member("a", b"2")], id="a file below a file"),
        pytest.param([member("a" * 300, b"1")], id="a name too long"),
        pytest.param([member(".", b"1")], id="the root as a file"),
    ],
)
def test_an_archive_that_contradicts_itself_is_refused_and_nothing_is_written(
    rooted: Rooted, folder: Path, tar: Callable[..., Path], members: list[Members]
) -> None:
    with pytest.raises(InvalidRequest):
        restore(tar(member("first", b"x"), *members), rooted)
    assert os.listdir(folder) == []


def test_what_common_tools_write_is_accepted(rooted: Rooted, folder: Path, tar: Callable[..., Path]) -> None:
    tree = [member(name, kind=tarfile.DIRTYPE) for name in ("./", "./d/", "d")]
    restore(tar(*tree, member("./d//a", b"1")), rooted)
    assert (folder / "d" / "a").read_bytes() == b"1"


@pytest.mark.parametrize(("limit", "enough"), [("MAX_ARCHIVE_BYTES", 120), ("MAX_ARCHIVE_FILES", 2)])
def test_sizes_and_numbers_are_limited(
    rooted: Rooted, folder: Path, tar: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, limit: str, enough: int
) -> None:
    archive = tar(member("a", b"x" * 60), member("b", b"x" * 60))
    monkeypatch.setattr(archive_module, limit, enough - 1)
    with pytest.raises(InvalidRequest, match="more than"):
        restore(archive, rooted)
    assert os.listdir(folder) == []
    monkeypatch.setattr(archive_module, limit, enough)
    restore(archive, rooted)
    assert sorted(os.listdir(folder)) == ["a", "b"]


def test_a_sparse_member_that_would_unfold_is_refused(rooted: Rooted, folder: Path, tmp_path: Path) -> None:
    info = tarfile.TarInfo("bomb")
    info.size = 512
    info.pax_headers = {"GNU.sparse.map": "0,512", "GNU.sparse.size": "4096", "GNU.sparse.name": "bomb"}
    with tarfile.open(tmp_path / "s.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"x" * 512))
    with pytest.raises(InvalidRequest, match="plain file"):
        restore(tmp_path / "s.tar", rooted)
    assert os.listdir(folder) == []


def _with_size(header: bytes, field: bytes) -> bytes:
    header = header[:124] + field.ljust(12, b"\0")[:12] + header[136:]
    checksum = sum(header[:148]) + 8 * 32 + sum(header[156:512])
    return header[:148] + b"%06o\0 " % checksum + header[156:]


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE])
@pytest.mark.parametrize(
    "size",
    [b"\xff" * 10 + b"\xfe\x00", b"\xff" * 11 + b"\xff", b"\x80" + b"\x7f" * 11, b"77777777777", b"00100000000"],
)
def test_a_size_that_leads_backwards_or_beyond_ends_in_an_error_and_not_in_a_loop(
    rooted: Rooted, folder: Path, tmp_path: Path, kind: bytes, size: bytes
) -> None:
    info = tarfile.TarInfo("a")
    info.type = kind
    header = _with_size(info.tobuf(tarfile.USTAR_FORMAT), size)
    plain = tarfile.TarInfo("b").tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "s.tar").write_bytes(plain + header + plain + b"\0" * 10240)
    with pytest.raises(SandboxError):
        restore(tmp_path / "s.tar", rooted)
    assert os.listdir(folder) == []


def test_a_truncated_archive_is_refused_and_nothing_is_written(rooted: Rooted, folder: Path, tmp_path: Path) -> None:
    rooted.write("a", b"x" * 5000)
    rooted.write("b", b"y" * 5000)
    save(rooted, tmp_path / "s.tar")
    whole = (tmp_path / "s.tar").read_bytes()
    rooted.clear()
    for length in (0, 100, 511, 513, 3000, 5632, 6000, 7000, 11264):
        (tmp_path / "s.tar").write_bytes(whole[:length])
        with pytest.raises(InvalidRequest):
            restore(tmp_path / "s.tar", rooted)
    assert os.listdir(folder) == []


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_damaged_archive_is_restored_beneath_or_refused_with_a_typed_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    top = tmp_path_factory.mktemp("fuzz")
    (top / "root").mkdir()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in (*member("d", kind=tarfile.DIRTYPE), *member("d/caf\u00e9" + "x" * 120, b"y" * 600)):
            archive.addfile(info, io.BytesIO(content))
    raw = bytearray(buffer.getvalue()[:4096])
    for position, value in data.draw(st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), max_size=6)):
        raw[position] = value
    for start in range(0, len(raw), 512):  # a header whose sum is wrong would only be refused for that
        block = raw[start : start + 512]
        if block[257:262] == b"ustar":
            total = sum(block[:148]) + 8 * 32 + sum(block[156:512])
            raw[start + 148 : start + 156] = b"%06o\0 " % total
    (top / "t.tar").write_bytes(raw)
    with Rooted.at(top / "root") as root:
        try:
            restore(top / "t.tar", root)
        except SandboxError:
            pass
    assert sorted(os.listdir(top)) == ["root", "t.tar"]


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
    st.lists(st.tuples(paths, st.binary(max_size=1500), st.integers(0, 0o777), st.integers(0, 1 << 32)), max_size=4),
)
def test_what_tarfile_writes_is_understood_as_it_understands_it(files: list[tuple[str, bytes, int, int]]) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
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
