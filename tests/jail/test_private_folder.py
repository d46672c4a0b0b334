"""A jail's folder on the host: private, locked while it is used, and gone afterwards."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import sandbox_kernel
from sandbox_kernel.jail import open_jail
from sandbox_kernel.jail.open_jail import PREFIX, PrivateFolder, choose_parent, sweep

pytestmark = pytest.mark.usefixtures("nothing_left")
MIB = 1 << 20


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders are made here."""
    monkeypatch.setattr(open_jail, "choose_parent", lambda size: str(tmp_path))
    return tmp_path


def test_it_has_three_folders_that_nobody_else_may_enter(in_tmp: Path) -> None:
    folder = PrivateFolder(MIB)
    assert sorted(os.listdir(folder.path)) == ["cell", "tmp", "work"]
    for path in (folder.path, *(f"{folder.path}/{name}" for name in ("work", "cell", "tmp"))):
        assert os.stat(path).st_mode & 0o777 == 0o700
    assert os.path.basename(folder.path).startswith(f"{PREFIX}{os.getpid()}-")
    folder.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give things away")
def test_for_another_user_the_inner_folders_are_its_own_and_the_outer_can_only_be_passed(in_tmp: Path) -> None:
    folder = PrivateFolder(MIB, 4711)
    assert os.stat(folder.path).st_mode & 0o777 == 0o711
    assert os.stat(folder.path).st_uid == 0
    assert (os.stat(f"{folder.path}/work").st_uid, os.stat(f"{folder.path}/work").st_mode & 0o777) == (4711, 0o700)
    folder.remove()


def test_removing_takes_everything_and_may_be_done_twice(in_tmp: Path) -> None:
    folder = PrivateFolder(MIB)
    deep = Path(f"{folder.path}/work")
    for _ in range(50):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "f").write_text("x")
    (Path(f"{folder.path}/tmp") / "link").symlink_to("/etc")
    (Path(f"{folder.path}/work") / "d").chmod(0)
    folder.remove()
    folder.remove()
    assert list(in_tmp.iterdir()) == []
    assert os.path.isdir("/etc")


def test_forgetting_leaves_it_to_its_owner(in_tmp: Path) -> None:
    folder = PrivateFolder(MIB)
    path = folder.path
    folder.forget()
    folder.remove()
    assert os.path.isdir(path)
    sweep(str(in_tmp))


def test_what_has_no_lock_is_swept_and_what_has_one_is_not(in_tmp: Path) -> None:
    living, dead = PrivateFolder(MIB), PrivateFolder(MIB)
    dead.forget()
    (in_tmp / "other").mkdir()
    (in_tmp / f"{PREFIX}file").write_text("not a folder")
    sweep(str(in_tmp))
    assert sorted(os.listdir(in_tmp)) == sorted([os.path.basename(living.path), "other", f"{PREFIX}file"])
    living.remove()


def test_a_lock_of_another_process_counts_until_it_is_killed(in_tmp: Path) -> None:
    code = (
        "import sys\nfrom sandbox_kernel.jail import open_jail\n"
        "open_jail.choose_parent = lambda size: sys.argv[1]\n"
        "folder = open_jail.PrivateFolder(1)\nprint(folder.path, flush=True)\nsys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(in_tmp)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(sandbox_kernel.__file__).parent.parent)},
    )
    assert other.stdout is not None
    path = other.stdout.readline().strip()
    sweep(str(in_tmp))
    assert os.path.isdir(path)
    other.kill()
    other.communicate()
    sweep(str(in_tmp))
    assert not os.path.exists(path)


def test_a_link_that_looks_like_one_is_not_followed(in_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    treasure = tmp_path_factory.mktemp("treasure")
    (treasure / "kept").write_text("x")
    (in_tmp / f"{PREFIX}1-2").symlink_to(treasure)
    sweep(str(in_tmp))
    assert (treasure / "kept").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give things away")
def test_somebody_elses_folder_is_left_alone(in_tmp: Path) -> None:
    planted = in_tmp / f"{PREFIX}1-2"
    planted.mkdir()
    os.chown(planted, 4711, 4711)
    sweep(str(in_tmp))
    assert planted.exists()


class _Disk:
    """What ``statvfs`` answers."""

    def __init__(self, free: int, noexec: bool) -> None:
        self.f_flag = os.ST_NOEXEC if noexec else 0
        self.f_bavail, self.f_frsize = free, 1


@pytest.mark.parametrize(
    ("memory", "usual", "chosen"),
    [
        (_Disk(100 * MIB, False), _Disk(MIB, False), "/dev/shm"),
        (_Disk(39 * MIB, False), _Disk(MIB, False), "usual"),
        (_Disk(100 * MIB, True), _Disk(MIB, False), "usual"),
        (_Disk(0, False), _Disk(MIB, True), "/var/tmp"),
    ],
    ids=["room in memory", "too little", "memory cannot execute", "nor can the usual place"],
)
def test_it_lies_in_memory_where_there_is_room_and_programs_can_run(
    memory: _Disk, usual: _Disk, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = os.path.realpath(tempfile.gettempdir())
    answers = {"/dev/shm": memory, place: usual, "/var/tmp": _Disk(MIB, False)}
    monkeypatch.setattr(os, "statvfs", lambda path: answers[path])
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert choose_parent(10 * MIB) == (place if chosen == "usual" else chosen)


def test_a_place_where_others_could_exchange_the_folder_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(open_jail, "_MEMORY", str(shared))
    assert choose_parent(1) == str(shared)
    shared.chmod(0o777)
    assert choose_parent(1) != str(shared)
    shared.chmod(0o1777)
    assert choose_parent(1) == str(shared)
