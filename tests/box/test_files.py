"""The files of a sandbox through the facade."""

from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Manifest, PathTraversal, Sandbox, SandboxDestroyed


def test_all_files_of_a_sandbox_are_one_mapping() -> None:
    with Sandbox() as box:
        assert dict(box.files) == {}
        box.run("import os; os.mkdir('d'); open('d/a.bin', 'wb').write(bytes(range(256))); os.symlink('/etc', 'l')")
        assert dict(box.files) == {"d/a.bin": bytes(range(256))}
    with pytest.raises(SandboxDestroyed):
        _ = box.files


def test_a_sandbox_takes_a_manifest() -> None:
    with Sandbox() as box:
        box.provision([{"type": "file", "path": "src/a.txt", "content": "hi"}, {"type": "directory", "path": "empty"}])
        assert box.run("print(open('src/a.txt').read())").stdout == "hi\n"
        assert [entry.name for entry in box.list_dir()] == ["empty", "src"]
        box.provision(Manifest.from_document([{"type": "file", "path": "b", "base64": "AP8="}]))
        assert box.read_file("b") == b"\x00\xff"
        with pytest.raises(PathTraversal):
            box.provision([{"type": "file", "path": "c", "content": ""}, {"type": "directory", "path": "../out"}])
        assert "c" not in box.files


def test_a_workspace_outlives_its_sandbox(tmp_path: Path) -> None:
    archive = tmp_path / "work.tar"
    with Sandbox() as box:
        box.write_file("deep/a.txt", "one")
        box.run("open('deep/a.txt', 'a').write(' two'); import os; os.mkfifo('pipe'); os.chmod('deep/a.txt', 0o640)")
        assert box.snapshot(archive) == ()
    with Sandbox() as again:
        again.resume(archive)
        assert dict(again.files) == {"deep/a.txt": b"one two"}
        with again.session() as session:
            assert session.run("print(open('deep/a.txt').read())").stdout == "one two\n"
        with pytest.raises(InvalidRequest, match="new sandbox"):
            again.resume(archive)
    with Sandbox() as new, pytest.raises(InvalidRequest, match="missing"):
        new.resume(tmp_path / "missing.tar")


def test_a_file_that_a_program_left_can_be_removed() -> None:
    with Sandbox() as box:
        box.run("import os; os.mkdir('d'); open('d/a', 'w'); open('b', 'w')")
        session = box.session("command")
        assert session.run("ls").stdout.split() == ["b", "d"]
        box.remove_file("d")
        assert [entry.name for entry in box.list_dir()] == ["b"]
        assert session.run("ls").stdout.split() == ["b"]
        with pytest.raises(PathTraversal):
            box.remove_file("../b")
        with pytest.raises(InvalidRequest):
            box.remove_file(".")


def test_a_run_names_the_first_file_that_it_does_not_keep() -> None:
    with Sandbox() as box:
        done = box.run("import os\nfor number in range(1001): os.mkdir(f'd{number:04}')")
        assert [str(note) for note in done.notes if "d1000 " in note and "not kept" in note]
        assert len(box.list_dir()) == 1000
