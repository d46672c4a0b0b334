"""The work folder as a tar file, and back: a hostile tar leaves nothing behind and costs no more than a run may."""

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, PathTraversal, Sandbox
from sandbox_kernel.workspace.archive import save
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import WalkLimits

Write = Callable[..., Path]


@pytest.fixture
def tar(tmp_path: Path) -> Write:
    """Writes a tar of members: their name, and the fields that a header has besides."""

    def write(*members: tuple[str, dict[str, object]]) -> Path:
        with tarfile.open(tmp_path / "hostile.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            for name, fields in members:
                info = tarfile.TarInfo(name)
                for field, value in fields.items():
                    setattr(info, field, value)
                archive.addfile(info, io.BytesIO(bytes(info.size)))
        return tmp_path / "hostile.tar"

    return write


def test_a_snapshot_is_a_private_tar_and_names_the_links_and_fifos_that_it_leaves_out(
    rooted: Rooted, folder: Path, tmp_path: Path, outside: Path
) -> None:
    (folder / "a").write_text("x")
    (folder / "link").symlink_to("a")
    os.mkfifo(folder / "pipe")
    left = save(rooted, tmp_path / "s.tar")
    assert sorted(item.path for item in left) == ["link", "pipe"]
    with tarfile.open(tmp_path / "s.tar") as archive:
        assert archive.getnames() == ["a"]
    assert stat.S_IMODE((tmp_path / "s.tar").stat().st_mode) == 0o600
    with pytest.raises(InvalidRequest, match="cannot be saved"):
        save(rooted, outside / "missing" / "s.tar")
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_a_resumed_folder_has_its_files_folders_and_modes(tmp_path: Path) -> None:
    with Sandbox() as box:
        box.run("import os; os.makedirs('d/empty'); open('d/run', 'w').write('#!'); os.chmod('d/run', 0o755)")
        box.write_file("caf\u00e9 " + "x" * 150, b"\xff")
        box.snapshot(tmp_path / "s.tar")
        files = dict(box.files)
    with Sandbox() as again:
        again.resume(tmp_path / "s.tar")
        assert dict(again.files) == files
        shown = "import os; print(os.path.isdir('d/empty'), oct(os.stat('d/run').st_mode & 0o777))"
        with again.session() as session:
            assert session.run(shown).stdout == "True 0o755\n"


def test_every_file_is_there_again_also_where_a_result_tells_of_the_first_alone(tar: Write) -> None:
    names = [f"d{number}/f" for number in range(600)]
    with Sandbox() as box:
        box.resume(tar(*((name, {"size": 1}) for name in names)))
        assert sorted(box.files) == sorted(names)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("../up", {}),
        ("/etc/passwd", {}),
        ("a/../../up", {}),
        ("link", {"type": tarfile.SYMTYPE, "linkname": "/etc"}),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "good"}),
        ("device", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
        ("pipe", {"type": tarfile.FIFOTYPE}),
        ("good/below", {}),
    ],
)
def test_nothing_of_a_tar_with_one_hostile_member_is_kept(name: str, fields: dict[str, object], tar: Write) -> None:
    hostile = tar(("good", {"size": 3}), (name, fields), ("later", {"size": 3}))
    with Sandbox() as box:
        with pytest.raises(PathTraversal if ".." in name or name[0] == "/" else InvalidRequest):
            box.resume(hostile)
        assert dict(box.files) == {}


@pytest.mark.parametrize("content", [b"", b"no tar", b"x" * 512])
def test_what_is_no_tar_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "no.tar").write_bytes(content)
    with Sandbox() as box, pytest.raises(InvalidRequest, match="not resumed"):
        box.resume(tmp_path / "no.tar")


@pytest.mark.parametrize(
    ("members", "left"),
    [
        ([("a", {"size": 1}), ("d/" * (WalkLimits().depth + 1) + "f", {"size": 1})], None),
        ([("large", {"size": 300 << 20})], None),
        ([("a", {"size": 2000}), ("b", {"size": 2000})], 4000),
    ],
    ids=["with folders that are not looked at in full", "of more than a work folder holds", "cut"],
)
def test_a_tar_is_refused_whole(members: list[tuple[str, dict[str, object]]], left: int | None, tar: Write) -> None:
    path = tar(*members)
    os.truncate(path, path.stat().st_size if left is None else left)
    with Sandbox() as box:
        with pytest.raises(InvalidRequest, match="not resumed"):
            box.resume(path)
        assert dict(box.files) == {}
