"""What a sandbox must not be able to do, on both backends and with a secret really outside."""

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, PathTraversal, Sandbox, SandboxPolicy, Status

SECRET = "a-secret-of-the-host"


@pytest.fixture(scope="module", params=["process", "wasm"])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(backend=request.param) as made:
        yield made


@pytest.fixture(params=["/tmp", "/var/tmp"])
def outside(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file that any user of the host may read, change and remove: only walls stand before it.

    In a folder whose name is also one of the sandbox, and in one that is not.
    """
    folder = Path(tempfile.mkdtemp(prefix="sk-outside-", dir=request.param))
    folder.chmod(0o777)
    file = folder / "secret.txt"
    file.write_text(SECRET)
    file.chmod(0o666)
    assert all(parent.stat().st_mode & 0o001 for parent in file.parents)
    yield file
    shutil.rmtree(folder)


VARIANTS = ("../outside", "../../etc/passwd", "a/../../b", "/etc/passwd", "..", "a/../..", "/box/../etc/passwd")


@pytest.mark.parametrize("path", VARIANTS)
def test_no_spelling_of_a_path_leaves_the_work_folder(path: str) -> None:
    with Sandbox() as box:
        for act in (box.read_file, box.list_dir, lambda path: box.write_file(path, b"")):
            with pytest.raises(PathTraversal) as refused:
                act(path)
            assert repr(path) in str(refused.value)
        assert box.list_dir() == ()


@pytest.mark.one_case
def test_a_link_leads_nowhere_outside(box: Sandbox, outside: Path) -> None:
    """A link that a run left is told and not kept; out of WebAssembly none can be made."""
    made = box.run(
        f"ln -s {shlex.quote(str(outside))} link; ln -s {shlex.quote(str(outside.parent))} folder", "command"
    )
    links = {"link": "symlink", "folder": "symlink"} if made.backend == "process" else {}
    assert {change.path: change.type for change in made.changes} == links
    assert len([note for note in made.notes if "was not kept" in note]) == len(links)
    for path in ("link", "folder/secret.txt"):
        with pytest.raises((PathTraversal, InvalidRequest)):
            box.read_file(path)
    with pytest.raises((PathTraversal, InvalidRequest)):
        box.list_dir("folder")
    assert SECRET.encode() not in b"".join(box.files.values())
    assert outside.read_text() == SECRET


@pytest.mark.one_case
def test_a_link_of_a_session_leads_nowhere_outside(outside: Path) -> None:
    """Here the links stand in the folder that the host looks into: none of its ways follows one."""
    with Sandbox() as box, box.session() as session:
        code = f"import os\nos.symlink({str(outside)!r}, 'link'); os.symlink({str(outside.parent)!r}, 'folder')"
        assert session.run(code).ok
        assert [(entry.name, entry.type) for entry in session.list_dir()] == [
            ("folder", "symlink"),
            ("link", "symlink"),
        ]
        for path in ("link", "folder/secret.txt"):
            with pytest.raises((PathTraversal, InvalidRequest), match="link"):
                session.read_file(path)
        with pytest.raises(PathTraversal, match="link"):
            session.list_dir("folder")
        with pytest.raises(PathTraversal, match="link"):
            session.write_file("folder/new", b"escaped")
        session.write_file("link", b"mine")
        assert session.read_file("link") == b"mine"
        assert SECRET.encode() not in b"".join(box.files.values())
    assert [path.name for path in outside.parent.iterdir()] == ["secret.txt"]
    assert outside.read_text() == SECRET


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("cat OUTSIDE", id="cat_cannot_read_host_files"),
        pytest.param("grep -r secret FOLDER", id="grep_cannot_read_host_files"),
        pytest.param("find FOLDER -name 'secret*'", id="find_confined"),
        pytest.param("cp OUTSIDE /box/x && cat /box/x", id="cp"),
        pytest.param("cat < OUTSIDE", id="redirection"),
        pytest.param("ln -s OUTSIDE l; cat l", id="link"),
        pytest.param("cat ../../../..OUTSIDE", id="dots"),
    ],
)
@pytest.mark.one_case
def test_programs_cannot_read_host_files(box: Sandbox, outside: Path, line: str) -> None:
    result = box.run(line.replace("OUTSIDE", str(outside)).replace("FOLDER", str(outside.parent)), "command")
    assert SECRET not in result.stdout + result.stderr
    assert (result.stdout, result.exit_code == 0) == ("", False)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("echo x > a; cp a OUTSIDE", id="cp_cannot_write_outside"),
        pytest.param("rm -f OUTSIDE", id="rm_cannot_delete_outside"),
        pytest.param("rm -rf FOLDER", id="rm -r"),
        pytest.param("echo x >> OUTSIDE", id="append"),
        pytest.param("mv OUTSIDE /box/", id="mv"),
        pytest.param("touch FOLDER/new", id="touch"),
    ],
)
@pytest.mark.one_case
def test_programs_cannot_change_host_files(box: Sandbox, outside: Path, line: str) -> None:
    box.run(line.replace("OUTSIDE", str(outside)).replace("FOLDER", str(outside.parent)), "command")
    assert [path.name for path in outside.parent.iterdir()] == ["secret.txt"]
    assert outside.read_text() == SECRET


@pytest.mark.one_case
def test_javascript_reads_no_file_of_the_host(box: Sandbox, outside: Path) -> None:
    code = f"console.log(require('fs').readFileSync({str(outside)!r}, 'utf8'))"
    result = box.run(code, "javascript")
    assert (result.status, result.stdout) == (Status.FAILED, "")
    assert "ENOENT" in result.stderr


@pytest.mark.parametrize("backend", ["process", "wasm"])
def test_variables_of_the_host_are_not_inside(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", SECRET)
    monkeypatch.setenv("USER", "the-user-of-the-host")
    with Sandbox(SandboxPolicy.preset("standard").with_env("SECRET_KEY", "visible"), backend) as box:
        result = box.run("env", "command", env={"MORE": "too"})
    assert {"SECRET_KEY=visible", "MORE=too"} <= set(result.stdout.splitlines())
    assert SECRET not in result.stdout
    assert "the-user-of-the-host" not in result.stdout
    assert f"HOME={os.environ.get('HOME')}" not in result.stdout.splitlines()
    names = {line.partition("=")[0] for line in result.stdout.splitlines()}
    assert not names & {"HOST_SECRET", "PYTHONPATH", "VIRTUAL_ENV", "SSH_AUTH_SOCK"}


@pytest.mark.slow
def test_timeout_prevents_hang(box: Sandbox) -> None:
    result = box.run("echo begun; while true; do :; done", "command", timeout=3)
    assert (result.status, result.limit) == (Status.TIMEOUT, "timeout")
    assert result.stdout == "begun\n"


@pytest.mark.parametrize("backend", ["process", "wasm"])
@pytest.mark.one_case
def test_sandboxes_do_not_see_each_other(backend: str) -> None:
    with Sandbox(backend=backend) as one, Sandbox(backend=backend) as two:
        one.write_file("mine.txt", SECRET)
        one.run("echo more > other.txt", "command")
        assert two.list_dir() == ()
        assert two.run("ls; cat mine.txt", "command").stdout == ""
        two.write_file("mine.txt", b"of two")
        assert one.read_file("mine.txt") == SECRET.encode()
        two.destroy()
        assert one.run("cat mine.txt", "command").stdout == SECRET
