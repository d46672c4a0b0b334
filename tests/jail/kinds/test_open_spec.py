"""What the gate of a jail without namespaces is told: who to be, what to keep, which walls each step puts up."""

from __future__ import annotations

import marshal
import os
from pathlib import Path

import pytest

from sandbox_kernel import EnforcerUnavailable, PolicyViolation
from sandbox_kernel.jail import root_user
from sandbox_kernel.jail.rules import landlock as room
from sandbox_kernel.jail.rules.landlock import (
    CAP_DAC_OVERRIDE,
    CAP_DAC_READ_SEARCH,
    READ_RIGHTS,
    OpenSpec,
    existing,
    open_spec,
)
from sandbox_kernel.jail.rules.seccomp import build_filter, build_no_watch_filter, host_arch
from sandbox_kernel.jail.walls import Places, Walls
from sandbox_kernel.policy import Grant

PLACES = Places(work="/p/x/work", cell="/p/x/cell", guest="/usr/share", tmp="/p/x/tmp")


def walls(*grants: Grant, enforcer: str | None = "landlock", runtime: tuple[Grant, ...] = ()) -> Walls:
    return Walls("/usr/bin/python3", runtime, grants, 1, 1, 1, enforcer=enforcer)


@pytest.fixture
def abi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "landlock_abi", lambda: 7)


@pytest.fixture
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "reachable_by_all", lambda path: True)


def spec(given: Walls, uid: int | None = None) -> OpenSpec:
    return open_spec(given, PLACES, uid, counted=True)


@pytest.mark.usefixtures("abi")
def test_the_jails_own_folders_are_writable_and_the_system_is_read_only() -> None:
    plan = spec(walls()).landlock
    assert plan is not None
    rights = dict(plan.paths)
    for place in (PLACES.work, PLACES.cell, PLACES.tmp):
        assert rights[place] & ~READ_RIGHTS
    assert rights["/usr"] == rights["/usr/share"] == READ_RIGHTS
    assert "/p/x" not in rights, "the folder that holds the three would let a program replace one of them"


@pytest.mark.usefixtures("abi")
def test_of_etc_and_dev_only_what_is_needed_is_there() -> None:
    plan = spec(walls()).landlock
    assert plan is not None
    paths = {path for path, _ in plan.paths}
    assert not paths & {
        "/",
        "/etc",
        "/dev",
        "/sys",
        "/tmp",
        "/dev/shm",
        "/dev/pts",
        "/dev/tty",
        "/etc/shadow",
        "/run",
        "/var",
    }
    assert "/dev/null" in paths


@pytest.mark.usefixtures("abi")
def test_no_port_is_open_and_no_socket_can_be_made() -> None:
    found = spec(walls())
    assert found.landlock is not None
    assert found.seccomp == (
        build_filter(host_arch(), families=(), deny_sysv_ipc=True, shared_pids=True, shared_files=True),
    )


@pytest.mark.usefixtures("abi", "reachable")
def test_a_user_of_its_own_may_change_modes_of_its_files_and_has_no_capability() -> None:
    found = spec(walls(), uid=4711)
    assert (found.uid, found.capabilities) == (4711, ())
    shared = build_filter(host_arch(), families=(), deny_sysv_ipc=True, shared_pids=True, shared_files=False)
    assert found.seccomp == (shared,)


@pytest.mark.usefixtures("abi")
@pytest.mark.parametrize(
    ("held", "writable", "kept"),
    [
        ({CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH}, False, CAP_DAC_READ_SEARCH),
        ({CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH}, True, CAP_DAC_OVERRIDE),
        ({CAP_DAC_OVERRIDE}, False, CAP_DAC_OVERRIDE),
    ],
)
def test_what_root_allows_is_reached_with_one_capability_and_nothing_can_be_watched(
    held: set[int], writable: bool, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "held_capabilities", lambda: frozenset(held))
    path = str(tmp_path.resolve())
    found = spec(walls(Grant(path, path, writable)), uid=4711)
    assert found.capabilities == (kept,)
    assert found.seccomp[1:] == (build_no_watch_filter(host_arch()),)
    times = build_filter(host_arch(), families=(), deny_sysv_ipc=True, shared_pids=True, shared_files=True)
    assert (found.seccomp[0] == times) == (kept == CAP_DAC_OVERRIDE), "who overrides permissions may touch every file"


@pytest.mark.parametrize(("held", "version"), [(frozenset(), 7), (frozenset({CAP_DAC_OVERRIDE}), 2)])
def test_an_interpreter_that_cannot_be_reached_is_named_with_the_remedy(
    held: frozenset[int], version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before version 3 Landlock does not see truncate: who overrides permissions could empty every file.
    monkeypatch.setattr(room, "landlock_abi", lambda: version)
    monkeypatch.setattr(room, "held_capabilities", lambda: held)
    hidden = tmp_path.resolve() / "hidden"
    hidden.mkdir(mode=0o700)
    with pytest.raises(EnforcerUnavailable, match=f"cannot reach .*{hidden}.*in /usr or /opt"):
        spec(walls(runtime=(Grant(str(hidden), str(hidden), False),)), uid=4711)


@pytest.mark.usefixtures("abi")
def test_a_place_that_would_need_a_mount_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyViolation, match="cannot mount"):
        spec(walls(Grant(str(tmp_path.resolve()), "/data", False)))


def test_without_landlock_there_is_no_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "landlock_abi", lambda: 0)
    with pytest.raises(EnforcerUnavailable, match="no Landlock"):
        spec(walls())


def test_a_bare_jail_has_no_walls_and_says_so_to_its_gate() -> None:
    found = spec(walls(enforcer=None))
    told = marshal.loads(found.to_bytes())
    assert (told["landlock"], told["seccomp"], told["uid"], told["capabilities"]) == (None, [], None, [])
    assert (told["parent"], told["work"], told["cell"], told["tmp"]) == (
        os.getpid(),
        PLACES.work,
        PLACES.cell,
        PLACES.tmp,
    )


@pytest.mark.usefixtures("abi")
@pytest.mark.parametrize(("counted", "root", "room_left"), [(True, False, 0), (False, False, 1024), (False, True, 0)])
def test_a_shared_user_gets_room_for_more_tasks_where_nobody_counts(
    counted: bool, root: bool, room_left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    assert open_spec(walls(), PLACES, None, counted=counted).task_room == room_left


def test_only_what_exists_is_allowed_and_once() -> None:
    assert existing(["/usr", "/nowhere", "/usr/../usr"]) == ("/usr",)


# Who a sandbox is.


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    root_user._free_ids.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(root_user, "held_capabilities", lambda: frozenset(range(41)))
    real = root_user._mapped
    monkeypatch.setattr(root_user, "_mapped", lambda path: real(str(tmp_path / os.path.basename(path))))
    return tmp_path


@pytest.fixture(autouse=True)
def forget_ids() -> object:
    yield
    root_user._free_ids.cache_clear()


def write_maps(folder: Path, text: str) -> None:
    for name in ("uid_map", "gid_map"):
        (folder / name).write_text(text)


def test_on_a_host_root_takes_an_id_that_nobody_has(maps: Path) -> None:
    write_maps(maps, "0 0 4294967295\n")
    found = {root_user.own_user("landlock") for _ in range(20)}
    assert len(found) > 15
    assert all(uid is not None and uid >= 0x77000000 for uid in found)


def test_in_a_container_with_few_users_the_id_is_one_of_them(maps: Path) -> None:
    write_maps(maps, "0 1000 1\n1 100000 65536\n")
    for _ in range(50):
        uid = root_user.own_user("landlock")
        assert uid is not None and 0x8000 <= uid < 65534


@pytest.mark.parametrize("text", ["0 1000 1\n", "0 1000 500\n", ""])
def test_where_there_is_nobody_else_to_be_it_stays_who_it_is(maps: Path, text: str) -> None:
    write_maps(maps, text)
    assert root_user.own_user("landlock") is None
    assert not root_user.has_own_user("landlock")


def test_root_without_the_right_to_become_somebody_stays_who_it_is(maps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_maps(maps, "0 0 4294967295\n")
    monkeypatch.setattr(root_user, "held_capabilities", lambda: frozenset({0, 6, 7}))
    assert root_user.own_user("landlock") is None


def test_without_an_enforcer_and_as_an_ordinary_user_it_stays_who_it_is(
    maps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_maps(maps, "0 0 4294967295\n")
    assert root_user.own_user(None) is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert root_user.own_user("landlock") is None
