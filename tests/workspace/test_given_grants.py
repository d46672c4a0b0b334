"""The grants of a policy are the files that stood there when it was given, whoever exchanges them later."""

import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel import PolicyViolation, SandboxPolicy
from sandbox_kernel.policy import written_folders
from sandbox_kernel.policy.written_folders import real_path
from sandbox_kernel.workspace import given_grants
from sandbox_kernel.workspace.given_grants import GivenGrants


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(made))
    return made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("project/data", "project/a/data", "secret/data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project" / "notes.txt").write_text("mine")
    (tmp_path / "secret" / "key").write_text("canary")
    return tmp_path / "project"


def exchange(path: Path, leads_to: Path) -> None:
    path.rename(path.with_name(f".{path.name}"))
    path.symlink_to(leads_to)


def test_each_grant_carries_device_and_inode_of_its_source(project: Path) -> None:
    (grant,) = GivenGrants(SandboxPolicy().mount(project, "/work", True)).now()
    info = project.stat()
    assert (grant.source, grant.identity) == (str(project), (info.st_dev, info.st_ino))


@pytest.mark.parametrize(("granted", "planted", "leads_to"), [
    ("data", "data", "secret"), ("notes.txt", "notes.txt", "secret/key"), ("a/data", "a", "secret"),
])  # fmt: skip
def test_a_source_that_became_a_link_is_refused(project: Path, granted: str, planted: str, leads_to: str) -> None:
    given = GivenGrants(SandboxPolicy().mount(project, "/work", True).mount(project / granted, "/g"))
    assert len(given.now()) == 2
    exchange(project / planted, project.parent / leads_to)
    with pytest.raises(PolicyViolation, match="exchanged"):
        given.now()


@pytest.mark.parametrize("name", ["data", "notes.txt"])
def test_another_file_or_folder_at_the_path_is_refused(project: Path, name: str) -> None:
    given = GivenGrants(SandboxPolicy().allow_read(project / name))
    (project / name).rename(project / "old")
    with pytest.raises(PolicyViolation, match="does not resolve"):
        given.now()
    (project / name).mkdir()
    with pytest.raises(PolicyViolation, match="exchanged"):
        given.now()
    (project / name).rmdir()
    (project / "old").rename(project / name)
    assert given.now()


def test_what_was_written_to_a_granted_file_is_no_exchange(project: Path) -> None:
    given = GivenGrants(SandboxPolicy().allow_read_write(project / "notes.txt"))
    (project / "notes.txt").write_text("more")
    assert given.now()


def test_a_link_inside_a_writable_grant_of_the_same_policy_is_refused(project: Path) -> None:
    exchange(project / "data", project.parent / "secret")
    given = GivenGrants(SandboxPolicy().mount(project / "data", "/data").mount(project, "/work", True))
    with pytest.raises(PolicyViolation, match="programs may write to"):
        given.now()


def test_a_way_round_through_a_link_of_the_user_is_refused_as_well(project: Path) -> None:
    (project.parent / "mine").symlink_to(project / "a")
    exchange(project / "a" / "data", project.parent / "secret")
    policy = SandboxPolicy().mount(project.parent / "mine" / "data", "/data", True).allow_read_write(project)
    with pytest.raises(PolicyViolation, match="programs may write to"):
        GivenGrants(policy).now()


def test_links_of_the_user_elsewhere_are_followed(project: Path) -> None:
    (project.parent / "mine").symlink_to(project / "a" / ".." / "data")
    grants = GivenGrants(SandboxPolicy().allow_read(project.parent / "mine")).now()
    assert {grant.source for grant in grants} == {str(project / "data")}


@pytest.mark.parametrize("private", [True, False])
def test_a_link_in_a_folder_that_was_given_writable_before_is_refused(
    project: Path, state: Path, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not private:
        (state / "sandbox-kernel").write_text("no folder can be made here")
        monkeypatch.setattr(written_folders, "_remembered", {})
    assert GivenGrants(SandboxPolicy().allow_read_write(project)).now()
    exchange(project / "data", project.parent / "secret")
    with pytest.raises(PolicyViolation, match="programs may write to"):
        GivenGrants(SandboxPolicy().mount(project / "data", "/data")).now()
    with pytest.raises(PolicyViolation, match="programs may write to"):
        real_path(str(project / "data" / "key"))


def test_a_link_in_a_folder_that_another_process_gave_is_refused(project: Path) -> None:
    give = (
        "import sys; from sandbox_kernel import SandboxPolicy; "
        "from sandbox_kernel.workspace.given_grants import GivenGrants; "
        "GivenGrants(SandboxPolicy().allow_read_write(sys.argv[1])).now()"
    )
    subprocess.run([sys.executable, "-c", give, str(project)], check=True)
    exchange(project / "data", project.parent / "secret")
    with pytest.raises(PolicyViolation, match="programs may write to"):
        GivenGrants(SandboxPolicy().mount(project / "data", "/data")).now()


@pytest.mark.parametrize("how", ["moved", "other state", "open to others"])
def test_a_writable_folder_stays_known(
    project: Path, state: Path, how: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    if how == "open to others":
        state.chmod(0o777)
        monkeypatch.setattr(written_folders, "_remembered", {})
    assert GivenGrants(SandboxPolicy().allow_read_write(project)).now()
    written_folders._remembered.clear()
    exchange(project / "data", project.parent / "secret")
    if how == "moved":
        project = project.rename(project.with_name("elsewhere"))
    if how == "other state":
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("other")))
    with pytest.raises(PolicyViolation, match="programs may write to"):
        real_path(str(project / "data"))


def test_a_mark_that_cannot_be_kept_is_told(project: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (state / "sandbox-kernel").write_text("no folder can be made here")
    monkeypatch.setenv("HOME", "/proc")
    with pytest.warns(UserWarning, match="cannot be remembered"):
        GivenGrants(SandboxPolicy().allow_read_write(project))
    written_folders._remembered.clear()


def test_folders_that_are_gone_are_forgotten_when_there_are_many(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_folders, "_MOST_REMEMBERED", 3)
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        GivenGrants(SandboxPolicy().allow_read_write(tmp_path / str(number)))
        if number < 2:
            (tmp_path / str(number)).rmdir()
    left = sorted(os.readlink(mark) for mark in (state / "sandbox-kernel" / "writable").iterdir())
    assert left == [str(tmp_path / "2"), str(tmp_path / "3")]


def test_a_path_that_does_not_exist_yet_is_opened_at_the_first_use_and_then_kept(project: Path) -> None:
    given = GivenGrants(SandboxPolicy().allow_read(project / "later"))
    with pytest.raises(PolicyViolation, match="does not resolve"):
        given.now()
    (project / "later").mkdir()
    assert given.now()
    exchange(project / "later", project.parent / "secret")
    with pytest.raises(PolicyViolation, match="exchanged"):
        given.now()


def test_a_folder_that_is_exchanged_while_it_is_opened_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(path: str, writable: object = ()) -> str:
        found = real_path(path)
        if path.endswith("a/data"):
            exchange(project / "a", project.parent / "secret")
        return found

    monkeypatch.setattr(given_grants, "real_path", planted)
    given = GivenGrants(SandboxPolicy().mount(project / "a" / "data", "/data"))
    monkeypatch.undo()
    assert given._grants is None


def test_the_descriptors_are_closed_with_the_object(project: Path) -> None:
    given = GivenGrants(SandboxPolicy().allow_read_write(project).mount(project / "data", "/data"))
    assert open_below(project) == 2
    del given
    gc.collect()
    assert open_below(project) == 0


def open_below(folder: Path) -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith(str(folder))
    return found
