"""Changes that were not applied: there again for the next kernel, whenever the last one was ended."""

import os
from pathlib import Path

import pytest

from sandbox_kernel import BackendUnavailable, Conflict, Limits, Sandbox
from sandbox_kernel.workspace.overlay.kept_changes import ChangeLog
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state" / "changes"


def opened(project: Path, place: Path) -> HereFolder:
    return HereFolder(project, ChangeLog(str(place)))


PROGRAM = """
import os
open('data/rows.csv', 'a').write('5,6\\n')
os.remove('data/more.csv')
os.makedirs('out/deep')
open('out/deep/big.bin', 'wb').write(bytes(range(256)) * 80_000)
os.symlink('rows.csv', 'data/same')
os.chmod('run.sh', 0o700)
open('gone.txt', 'w').write('1')
os.remove('gone.txt')
"""


def test_changes_outlive_their_sandbox(project: Path, place: Path) -> None:
    with Sandbox() as box:
        assert box.work_on(project, keep_in=str(place)) == 0
        with box.session() as session:
            assert session.run(PROGRAM).ok
        told, patch = box.diff(), box.patch()
    with Sandbox() as box:
        assert box.work_on(project, keep_in=str(place)) == len(told) > 5
        assert (box.diff(), box.patch()) == (told, patch)
        with box.session() as session:
            seen = session.run(
                "import os; print(open('data/same').read().split()[-1], os.path.exists('data/more.csv'),"
                " os.stat('run.sh').st_mode & 0o777, os.path.getsize('out/deep/big.bin'))"
            )
            assert seen.stdout == f"5,6 False {0o700} {256 * 80_000}\n"
            assert seen.changes == ()
        assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n"
        assert len(box.apply([".", *box.left_out()])) == len(told)
    assert (project / "data/rows.csv").read_text() == "a,b\n1,2\n5,6\n" and not (project / "data/more.csv").exists()
    assert opened(project, place).found == 0


def test_what_was_dropped_does_not_come_back(project: Path, place: Path) -> None:
    here = opened(project, place)
    here.write("data/rows.csv", "mine\n")
    here.write("new.txt", "1")
    here.remove("data/more.csv")
    here.discard(["new.txt", "data/more.csv"])
    here.close()
    here = opened(project, place)
    assert [change.path for change in here.diff()] == ["data/rows.csv"]
    assert not (place / "files/new.txt").exists()


def test_a_file_that_the_user_changed_between_two_kernels_is_not_overwritten(project: Path, place: Path) -> None:
    here = opened(project, place)
    here.write("data/rows.csv", "mine\n")
    here.close()
    (project / "data/rows.csv").write_text("the user's\n")
    here = opened(project, place)
    assert here.found == 1
    with pytest.raises(Conflict):
        here.apply()
    assert (project / "data/rows.csv").read_text() == "the user's\n"


def test_a_kernel_that_was_killed_while_it_kept_a_change_leaves_no_half_of_it(project: Path, place: Path) -> None:
    here = opened(project, place)
    here.write("data/rows.csv", "mine\n")
    here.close()
    with open(place / "changes", "ab") as log:
        log.write(b'[["data/more.csv", "file", 3, 420], nul')
    (place / "files/unlisted.txt").write_text("complete")
    (place / "files/data/.sk-0123456789abcdef").write_text("half")
    (place / "files/link").symlink_to("run.sh")
    here = opened(project, place)
    assert [(change.path, change.kind) for change in here.diff()] == [
        ("data/rows.csv", "modified"),
        ("unlisted.txt", "created"),
    ]
    assert not os.path.lexists(place / "files/data/.sk-0123456789abcdef")
    assert not os.path.lexists(place / "files/link"), "the same as the user's"
    here.close()
    assert opened(project, place).found == 2


def test_a_change_that_was_applied_and_not_struck_off_is_no_conflict(project: Path, place: Path) -> None:
    here = opened(project, place)
    here.write("data/rows.csv", "mine\n")
    here.write("deep/new.txt", "1")
    here.remove("data/more.csv")
    here.close()
    (project / "data/rows.csv").write_text("mine\n")
    (project / "deep").mkdir()
    (project / "deep/new.txt").write_text("1")
    (project / "data/more.csv").unlink()
    assert opened(project, place).found == 0


def test_lines_that_nobody_wrote_are_not_believed(project: Path, place: Path) -> None:
    ChangeLog(str(place)).close()
    lines = [
        b'{"a": 1}',
        b"[1]",
        b'[["x", "device"], null, false, 1]',
        b'[["../up", "gone"], null, false, 1]',
        b'[["y", "file"], null]',
        b'[["z", "gone"], null, "no", 1]',
        b'[["z", "gone", "large"], null, false, 1]',
        b"\xff",
    ]
    (place / "changes").write_bytes(b"\n".join(lines) + b"\n")
    assert opened(project, place).found == 0


def test_a_log_stays_small_however_often_files_of_long_names_change(
    project: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = os.fsdecode(b"\xff" * 240)
    monkeypatch.setattr("sandbox_kernel.workspace.overlay.kept_changes._SMALL_LOG", 4000)
    here = opened(project, place)
    for number in range(200):
        here.write(name, str(number))
        assert (place / "changes").stat().st_size < 5000
    here.remove("data/more.csv")
    told = here.diff()
    here.close()
    again = opened(project, place)
    assert again.diff() == told and len(told) == 2
    again.close()


def test_a_change_whose_line_has_no_room_in_the_log_is_kept(
    project: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.workspace.overlay.kept_changes._MOST_LOG", 1000)
    here = opened(project, place)
    names = [f"{number}{'n' * 200}" for number in range(20)]
    for name in names:
        here.write(name, "1")
        assert (place / "changes").stat().st_size <= 1000
    here.close()
    again = opened(project, place)
    assert {change.path for change in again.diff()} == set(names)
    again.close()


def test_a_place_that_others_can_change_is_refused(project: Path, place: Path) -> None:
    place.mkdir(mode=0o700)
    place.chmod(0o777)
    with Sandbox() as box, pytest.raises(BackendUnavailable, match="chmod o-w"):
        box.work_on(project, keep_in=str(place))


def test_a_change_that_does_not_fit_ends_no_later_run(project: Path, place: Path) -> None:
    small = Limits(disk_mb=1)
    with Sandbox() as box:
        box.work_on(project, keep_in=str(place))
        box.write_file("large.bin", b"x" * (3 << 20))
        box.write_file("data/rows.csv", "mine")
        code = "import os; print(os.path.exists('large.bin'), open('data/rows.csv').read())"
        result = box.run(code, limits=small)
        assert result.stdout == "False mine\n", result
        assert any(note.startswith("large.bin is kept as it was changed") for note in result.notes), result.notes
        with box.session(limits=small) as session:
            told = session.run(code)
            assert told.stdout == "False mine\n"
            assert any(note.startswith("large.bin is kept as it was changed") for note in told.notes), told.notes
        assert [change.path for change in box.diff()] == ["data/rows.csv", "large.bin"]
