"""Landlock plans as data; no kernel is asked but for its version."""

import importlib.util
import itertools
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import EnforcerUnavailable, PolicyViolation
from sandbox_kernel.jail import root_user
from sandbox_kernel.jail.rules import landlock
from sandbox_kernel.jail.rules import landlock as room
from sandbox_kernel.jail.rules.landlock import (
    CAP_DAC_OVERRIDE,
    CAP_DAC_READ_SEARCH,
    READ_RIGHTS,
    OpenSpec,
    in_place_paths,
    landlock_abi,
    landlock_plan,
    landlock_weaknesses,
    open_spec,
)
from sandbox_kernel.jail.rules.seccomp import build_filter, build_no_watch_filter, host_arch
from sandbox_kernel.jail.walls import Places, Walls
from sandbox_kernel.policy import Grant, SandboxPolicy, resolve_grants

READ, WRITE = "/usr", "/box"


@pytest.mark.parametrize(
    ("abi", "fs", "net", "scoped"),
    [
        (1, (1 << 13) - 1, 0, 0),
        (2, (1 << 14) - 1, 0, 0),
        (3, (1 << 15) - 1, 0, 0),
        (4, (1 << 15) - 1, 3, 0),
        (5, (1 << 16) - 1, 3, 0),
        (6, (1 << 16) - 1, 3, 3),
        (7, (1 << 16) - 1, 3, 3),
        (9, (1 << 17) - 1, 3, 3),
        (10, (1 << 17) - 1, 15, 3),
        (99, (1 << 17) - 1, 15, 3),
    ],
)
def test_everything_that_the_abi_can_judge_is_judged_and_nothing_more(abi: int, fs: int, net: int, scoped: int) -> None:
    plan = landlock_plan([], [], abi=abi)
    assert (plan.handled_fs, plan.handled_net, plan.scoped) == (fs, net, scoped)
    assert plan.paths == ()


@settings(deadline=None)
@given(abi=st.integers(1, 12))
def test_a_read_path_is_read_and_executed_only_and_a_write_path_gives_all_but_devices_and_sockets(abi: int) -> None:
    plan = landlock_plan([READ], [WRITE], abi=abi)
    rights = dict(plan.paths)
    assert rights[READ] == 0b1101
    assert rights[WRITE] & ~plan.handled_fs == 0
    assert plan.handled_fs & ~rights[WRITE] == plan.handled_fs & (1 << 6 | 1 << 11 | 1 << 15 | 1 << 16)
    both = landlock_plan([WRITE, READ], [WRITE], abi=abi).paths
    assert dict(both) == rights and len(both) == 2, "a path for both is writable and stands once"


@pytest.mark.parametrize("path", ["", "box", "./box", "/box/../etc", "/a\0b"])
def test_a_path_that_is_not_absolute_and_plain_is_refused(path: str) -> None:
    for reads, writes in (([path], []), ([], [path])):
        with pytest.raises(PolicyViolation, match="must be absolute"):
            landlock_plan(reads, writes, abi=7)


@pytest.mark.parametrize(("read", "write"), [("/box/data", "/box"), ("/box/data/", "/box/"), ("/etc", "/")])
def test_a_read_only_place_inside_a_writable_one_cannot_be_held_and_is_refused(read: str, write: str) -> None:
    with pytest.raises(PolicyViolation, match="landlock cannot enforce that"):
        landlock_plan([read], [write], abi=7)


def test_a_writable_place_inside_a_read_only_one_can() -> None:
    assert len(landlock_plan(["/data", "/boxes"], ["/data/out", "/box"], abi=7).paths) == 4


@pytest.mark.parametrize("abi", [0, -1])
def test_without_landlock_there_is_no_plan_but_a_remedy(abi: int) -> None:
    with pytest.raises(EnforcerUnavailable, match=r"5\.13.*bubblewrap") as caught:
        landlock_plan([], [], abi=abi)
    assert caught.value.enforcer == "landlock"


def test_root_that_cannot_make_access_tell_the_truth_says_so() -> None:
    more = set(landlock_weaknesses(7, own_user=True, true_access=False)) - set(landlock_weaknesses(7, own_user=True))
    assert "access()" in str(more)
    assert landlock_weaknesses(7, true_access=False) == landlock_weaknesses(7)


def test_newer_kernels_have_fewer_weaknesses_and_none_has_none() -> None:
    lists = [landlock_weaknesses(abi) for abi in range(1, 12)]
    for older, newer in itertools.pairwise(lists):
        assert set(newer) <= set(older)
    text = "\n".join(lists[6])
    for word in ("PID namespace", "UDP", "unix sockets in the file system", "/proc", "best effort", "size limit"):
        assert word in text
    assert "signals" not in text
    assert "signals" in "\n".join(landlock_weaknesses(5))
    assert len(lists[-1]) >= 6


def test_the_bits_are_those_of_the_kernel_header() -> None:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        pytest.skip("ziglang, which carries the kernel headers, is not installed")
    header = Path(spec.origin).parent / "lib/libc/include/any-linux-any/linux/landlock.h"
    bits = {
        name: 1 << int(bit)
        for name, bit in re.findall(r"#define LANDLOCK_(\w+)\s+\(1ULL << (\d+)\)", header.read_text())
    }
    names = {
        "CONNECT_SEND_UDP": "SEND_UDP",
        "ABSTRACT_UNIX_SOCKET": "SCOPE_ABSTRACT_SOCKETS",
        "SIGNAL": "SCOPE_SIGNALS",
    }
    checked = 0
    for full, value in bits.items():
        short = full.removeprefix("ACCESS_").removeprefix("FS_").removeprefix("NET_").removeprefix("SCOPE_")
        ours = getattr(landlock, names.get(short, short), None)
        if ours is not None:
            assert ours == value, full
            checked += 1
    assert checked == 16


def test_the_version_of_this_kernel_is_a_number_and_that_of_other_systems_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 <= landlock_abi() < 100
    assert Path("/etc/passwd").read_text(), "asking restricts nothing"
    monkeypatch.setattr("sys.platform", "darwin")
    assert landlock_abi() == 0


def test_a_linked_path_is_in_place_and_named_once(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    policy = SandboxPolicy().allow_read(link).allow_read_write(tmp_path)
    source = tmp_path.resolve()
    assert in_place_paths(resolve_grants(policy), "landlock") == ((str(source / "real"),), (str(source),))


@pytest.mark.parametrize(("writable", "method"), [(False, "allow_read"), (True, "allow_read_write")])
def test_a_mount_at_another_place_is_refused_with_the_way_to_go(tmp_path: Path, writable: bool, method: str) -> None:
    grant = Grant(str(tmp_path.resolve()), "/data", writable)
    with pytest.raises(PolicyViolation, match=rf"shown at '/data'.*'landlock' cannot mount.*policy\.{method}\("):
        in_place_paths([grant], "landlock")


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
def test_the_jails_own_folders_are_writable_the_system_is_read_only_and_no_socket_can_be_made() -> None:
    found = spec(walls())
    assert found.landlock is not None
    rights = dict(found.landlock.paths)
    for place in (PLACES.work, PLACES.cell, PLACES.tmp):
        assert rights[place] & ~READ_RIGHTS
    assert rights["/usr"] == rights["/usr/share"] == READ_RIGHTS
    assert "/p/x" not in rights, "the folder that holds the three would let a program replace one of them"
    assert "/dev/null" in rights
    hidden = ["/", "/etc", "/dev", "/sys", "/tmp", "/dev/shm", "/dev/pts", "/dev/tty", "/etc/shadow", "/run", "/var"]
    assert rights.keys().isdisjoint(hidden)
    assert found.seccomp == (build_filter(host_arch(), families=(), refuse_shared_ids=True, refuse_metadata=True),)


@pytest.mark.usefixtures("abi", "reachable")
def test_a_user_of_its_own_may_change_modes_of_its_files_and_has_no_capability() -> None:
    found = spec(walls(), uid=4711)
    assert (found.uid, found.capabilities) == (4711, ())
    shared = build_filter(host_arch(), families=(), refuse_shared_ids=True, refuse_metadata=False)
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
    times = build_filter(host_arch(), families=(), refuse_shared_ids=True, refuse_metadata=True)
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


def test_a_bare_jail_has_no_walls_and_says_so_to_its_gate() -> None:
    found = spec(walls(enforcer=None))
    assert (found.landlock, found.seccomp, found.uid, found.capabilities) == (None, (), None, ())
    assert (found.parent, found.work, found.cell, found.tmp) == (os.getpid(), PLACES.work, PLACES.cell, PLACES.tmp)


@pytest.mark.usefixtures("abi")
@pytest.mark.parametrize(("counted", "root", "room_left"), [(True, False, 0), (False, False, 1024), (False, True, 0)])
def test_a_shared_user_gets_room_for_more_tasks_where_nobody_counts(
    counted: bool, root: bool, room_left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    assert open_spec(walls(), PLACES, None, counted=counted).task_room == room_left


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


EVERYBODY, EVERY_RIGHT = "0 0 4294967295\n", frozenset(range(41))


@pytest.mark.parametrize(
    ("text", "held", "uid", "enforcer"),
    [
        ("0 1000 1\n", EVERY_RIGHT, 0, "landlock"),
        ("0 1000 500\n", EVERY_RIGHT, 0, "landlock"),
        ("", EVERY_RIGHT, 0, "landlock"),
        (EVERYBODY, frozenset({0, 6, 7}), 0, "landlock"),
        (EVERYBODY, EVERY_RIGHT, 0, None),
        (EVERYBODY, EVERY_RIGHT, 1000, "landlock"),
    ],
    ids=["one user", "few users", "no users", "without the right", "without an enforcer", "an ordinary user"],
)
def test_who_cannot_become_somebody_else_stays_who_it_is(
    maps: Path, text: str, held: frozenset[int], uid: int, enforcer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_maps(maps, text)
    monkeypatch.setattr(root_user, "held_capabilities", lambda: held)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert root_user.own_user(enforcer) is None
    assert not root_user.has_own_user(enforcer)
