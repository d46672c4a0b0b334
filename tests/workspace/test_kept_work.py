"""The work folder of a notebook that outlives its kernel: private, bounded, one kernel at a time."""

import os
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.util import own_folder
from sandbox_kernel.workspace.kept_work import KeptWork


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state" / "sandbox-kernel" / "work"


def claimed(notebook: str) -> KeptWork:
    found = KeptWork.of(notebook)
    assert found is not None
    return found


def test_files_outlive_their_sandbox() -> None:
    kept = claimed("/home/me/a.ipynb")
    assert kept.found == 0
    with Sandbox() as box:
        box.keep_files_in(kept.files)
        assert box.run("open('fresh.txt', 'w').write('1')").ok
        with box.session() as session:
            assert session.run(
                "import os; os.mkdir('out'); open('out/cell.txt', 'w').write(open('fresh.txt').read())"
            ).ok
    kept.close()
    kept = claimed("/home/me/a.ipynb")
    assert kept.found == 2
    with Sandbox() as box:
        box.keep_files_in(kept.files)
        assert {change.path for change in box.diff() if change.type == "file"} == {"fresh.txt", "out/cell.txt"}
        with box.session() as session:
            assert session.run("print(open('out/cell.txt').read())").stdout == "1\n"
            session.write_file("more.txt", "x")
            session.clear_files()
            assert session.run("import os; print(os.listdir('.'))").stdout == "[]\n"
        assert box.diff() == ()
    assert os.listdir(kept.files) == []
    kept.close()


def test_two_kernels_of_one_notebook_do_not_share_a_folder() -> None:
    first = claimed("/a.ipynb")
    assert KeptWork.of("/a.ipynb") is None
    other = claimed("/b.ipynb")
    assert other.path != first.path
    first.close()
    first.close()
    claimed("/a.ipynb").close()
    other.close()


def test_copies_that_the_user_allowed_one_kernel_are_not_there_for_the_next() -> None:
    kept = claimed("/a.ipynb")
    for name in ("copy.csv", "own.csv"):
        (Path(kept.files) / name).write_text(name)
    kept.note_copies(["copy.csv", "missing.csv", "../lock"])
    kept.close()
    kept = claimed("/a.ipynb")
    assert os.listdir(kept.files) == ["own.csv"]
    assert KeptWork.of("/a.ipynb") is None, "the lock is not a copy"
    kept.close()


@pytest.mark.attack("W05", "workspace")
def test_a_link_that_a_program_left_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("1")
    kept = claimed("/a.ipynb")
    (Path(kept.files) / "way").symlink_to(outside)
    kept.note_copies(["way/precious"])
    kept.close()
    kept = claimed("/a.ipynb")
    with Sandbox() as box:
        box.keep_files_in(kept.files)
        box.clear_files()
    kept.remove()
    assert (outside / "precious").read_text() == "1"
    assert not KeptWork.exists("/a.ipynb")


def test_a_folder_that_others_could_change_is_not_used(state: Path) -> None:
    claimed("/a.ipynb").close()
    (folder,) = state.iterdir()
    folder.chmod(0o777)
    assert KeptWork.of("/a.ipynb") is None
    folder.chmod(0o700)
    (folder / "files").rmdir()
    (folder / "files").symlink_to("/etc")
    assert KeptWork.of("/a.ipynb") is None


def test_the_longest_unused_go_first(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    monkeypatch.setattr(own_folder, "MOST_KEPT", 2)
    used = claimed("/used.ipynb")
    os.utime(used.path, (1, 1))
    for number in range(4):
        kept = claimed(f"/{number}.ipynb")
        os.utime(os.path.dirname(kept.files), (100 + number, 100 + number))
        kept.close()
    claimed("/last.ipynb").close()
    assert KeptWork.exists("/used.ipynb"), "a kernel uses it"
    assert [KeptWork.exists(f"/{number}.ipynb") for number in range(4)] == [False, False, False, True]
    monkeypatch.setattr(own_folder, "MOST_BYTES", 100)
    (Path(used.path) / "large").write_bytes(bytes(200))
    used.close()
    claimed("/last.ipynb").close()
    assert not KeptWork.exists("/used.ipynb") and KeptWork.exists("/last.ipynb")


def test_what_one_notebook_fills_costs_no_other_one_its_work(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    """A hole costs a program nothing."""
    monkeypatch.setattr(own_folder, "MOST_BYTES", 100)
    for name, size in (("mine", 20), ("strange", 90)):
        kept = claimed(f"/{name}.ipynb")
        with open(os.path.join(kept.files, "x"), "wb") as file:
            file.truncate(size)
        kept.close()
    claimed("/next.ipynb").close()
    assert KeptWork.exists("/mine.ipynb") and not KeptWork.exists("/strange.ipynb")
    in_use = claimed("/strange.ipynb")
    with open(os.path.join(in_use.files, "x"), "wb") as file:
        file.truncate(1 << 30)
    claimed("/next.ipynb").close()
    in_use.close()
    claimed("/strange.ipynb").close()
    assert KeptWork.exists("/mine.ipynb")


def test_packages_have_a_bound_of_their_own_and_no_work_goes_with_them(
    monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    monkeypatch.setattr(own_folder, "MOST_BYTES", 100)
    monkeypatch.setattr(own_folder, "MOST_APART_BYTES", 500)
    packages = {}
    for name, size in (("few", 200), ("many", 400)):
        kept = claimed(f"/{name}.ipynb")
        packages[name] = Path(kept.path, "sandbox-packages", "1", "x")
        packages[name].parent.mkdir(parents=True)
        packages[name].write_bytes(bytes(size))
        if name == "few":
            kept.close()
    claimed("/next.ipynb").close()
    assert all(path.exists() for path in packages.values()), "a kernel uses the larger ones"
    kept.close()
    claimed("/next.ipynb").close()
    assert packages["few"].exists() and not packages["many"].exists() and KeptWork.exists("/many.ipynb")
