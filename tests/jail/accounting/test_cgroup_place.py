"""A host makes one place for its leaves, moves nobody but itself, and leaves nothing: with real version 2 groups.

Tests that need controllers run where memory and pids are of version 2; the others also beside version 1.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.accounting import cgroups
from sandbox_kernel.jail.accounting.cgroup_place import PLACE_PREFIX, Place, PlacePlan, own_folder, sweep
from tests.jail.accounting.control_groups import Host, clear, members, needs_controllers, needs_v2, new_group, subgroups

NOBODY = 65534
BOTH = "+memory +pids"


@pytest.fixture
def group() -> Iterator[Path]:
    with new_group() as found:
        yield found


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    started: list[Host] = []
    yield started
    for host in started:
        host.kill()


def child_of(group: Path, name: str) -> Path:
    (group / name).mkdir()
    return group / name


def give(folder: Path, uid: int) -> None:
    """Delegate a group, as a service manager does."""
    for path in (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control", folder / "cgroup.threads"):
        os.chown(path, uid, uid)


LIMITED_CHILD = """
leaf = meter.CgroupMeter(cgroups.find_hierarchies())
child = subprocess.Popen(["/usr/bin/python3", "-c", "input(); b = b'x' * (200 << 20)"], stdin=subprocess.PIPE)
leaf.attach(child.pid)
leaf.arm(64 << 20, 32)
child.communicate(b"\\n")
answer = [child.returncode, leaf.read().oom_kills, cgroups.find_hierarchies().pids is not None]
while not leaf.close(): pass
"""


# The place itself; no controllers needed.


@needs_v2
@pytest.mark.parametrize("moves", [False, True])
def test_a_place_is_for_its_owner_alone_and_gone_after_its_end_and_a_host_that_moved_goes_back(
    group: Path, hosts: list[Host], moves: bool
) -> None:
    hosts.append(Host(group))
    before = hosts[0].group()
    plan = f"cgroup_place.PlacePlan({str(group)!r}, move={moves})"
    folder = str(hosts[0].ask(f"place = cgroup_place.Place({plan})\nanswer = place.folder"))
    assert os.stat(folder).st_mode & 0o777 == 0o700
    name = os.path.basename(folder)
    assert subgroups(group) == [name, f"{name}/host"] if moves else [name]
    assert members(group / name / "host" if moves else group) == [hosts[0].pid]
    hosts[0].ask("place.remove()")
    assert hosts[0].group() == before and subgroups(group) == []


@needs_v2
def test_what_a_killed_host_left_is_removed_by_the_next_one_and_its_sandboxes_end(
    group: Path, hosts: list[Host]
) -> None:
    hosts += [Host(group), Host(group)]
    dead, living = hosts
    for host in hosts:
        host.ask(
            f"place = cgroup_place.Place(cgroup_place.PlacePlan({str(group)!r}))\n"
            "leaf = meter.CgroupMeter(cgroups.Hierarchies(2, place.folder, None, place.folder))"
        )
    orphan = subprocess.Popen(["/bin/sleep", "600"])
    theirs = subprocess.Popen(["/bin/sleep", "600"])
    dead.ask(f"leaf.attach({orphan.pid})")
    living.ask(f"leaf.attach({theirs.pid})")
    watch = os.pidfd_open(orphan.pid)
    sweep(str(group))
    assert len(subgroups(group)) == 4, "the place of a living host was swept"
    dead.kill()
    sweep(str(group))
    assert select.select([watch], [], [], 10)[0], "a sandbox outlived its host and the sweep"
    orphan.wait()
    sweep(str(group))
    _, leaf = subgroups(group)
    assert members(group / leaf) == [theirs.pid], "the sweep took what was not left behind"
    theirs.kill()
    theirs.wait()
    os.close(watch)


@needs_v2
def test_a_program_that_a_killed_host_had_started_is_no_leftover(group: Path, hosts: list[Host]) -> None:
    hosts.append(Host(group))
    pid = hosts[0].ask(
        f"place = cgroup_place.Place(cgroup_place.PlacePlan({str(group)!r}, move=True))\n"
        "import subprocess\nanswer = subprocess.Popen(['/bin/sleep', '600'], start_new_session=True).pid"
    )
    hosts[0].kill()
    sweep(str(group))
    (_, inner) = subgroups(group)
    assert members(group / inner) == [pid]


@needs_v2
def test_places_of_others_and_groups_of_other_names_are_not_swept(group: Path) -> None:
    theirs = child_of(group, f"{PLACE_PREFIX}aaaa")
    give(theirs, NOBODY)
    child_of(group, "sandbox-kernel-of-somebody")
    child_of(group, "somebody-else")
    if os.geteuid() == NOBODY:
        pytest.skip("nobody is another user")
    sweep(str(group))
    assert len(subgroups(group)) == 3
    sweep(str(group / "missing"))


def test_a_plan_that_cannot_be_followed_is_undone(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Place(PlacePlan(str(tmp_path), ("memory",), enable=True))
    with pytest.raises(OSError):
        Place(PlacePlan(str(tmp_path / "missing")))
    assert not list(tmp_path.iterdir())


@needs_v2
def test_a_forked_child_does_not_remove_its_parents_place(group: Path, hosts: list[Host]) -> None:
    hosts.append(Host(group))
    hosts[0].ask(
        f"place = cgroup_place.Place(cgroup_place.PlacePlan({str(group)!r}))\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    place.remove(); os._exit(0)\n"
        "os.waitpid(pid, 0)"
    )
    assert len(subgroups(group)) == 1


@needs_v2
@pytest.mark.slow
def test_hosts_that_come_and_go_at_once_do_not_sweep_each_other(group: Path, hosts: list[Host]) -> None:
    hosts += [Host(group) for _ in range(4)]
    code = (
        "for _ in range(100):\n"
        f"    cgroup_place.sweep({str(group)!r})\n"
        f"    place = cgroup_place.Place(cgroup_place.PlacePlan({str(group)!r}))\n"
        "    leaf = meter.CgroupMeter(cgroups.Hierarchies(2, place.folder, None, place.folder))\n"
        "    assert leaf.intact() and leaf.close()\n"
        "    place.remove()\n"
    )
    for host in hosts:
        host.send(code)
    for host in hosts:
        host.receive()
    assert subgroups(group) == []


# Finding it, with controllers.


@needs_controllers
def test_a_process_alone_in_its_group_moves_itself_limits_below_and_leaves_the_group_usable(
    group: Path, hosts: list[Host]
) -> None:
    (group / "cgroup.subtree_control").read_text()
    hosts.append(Host(group))
    place = hosts[0].place()
    assert place is not None and os.path.dirname(place) == str(group)
    assert hosts[0].group().endswith(f"{os.path.basename(place)}/host")
    assert hosts[0].ask(LIMITED_CHILD) == [-9, 1, True]
    assert hosts[0].end() == 0
    assert subgroups(group) == []
    hosts.append(Host(group))
    assert members(group) == [hosts[1].pid], "the group takes no processes any more"


@needs_controllers
def test_a_process_that_finds_another_in_its_group_when_it_has_moved_goes_back(group: Path, hosts: list[Host]) -> None:
    hosts += [Host(group), Host(group)]
    refused = hosts[0].ask(
        f"plan = cgroup_place.PlacePlan({str(group)!r}, ('memory', 'pids'), enable=True, move=True)\n"
        "try: cgroup_place.Place(plan)\n"
        "except OSError as error: answer = error.strerror"
    )
    assert refused == "Device or resource busy"
    assert set(members(group)) == {host.pid for host in hosts} and subgroups(group) == []


@needs_controllers
def test_several_kernels_under_one_server_move_nobody_and_do_not_nest(group: Path, hosts: list[Host]) -> None:
    (group / "cgroup.subtree_control").write_text(BOTH)
    server = child_of(group, "server")
    hosts += [Host(server) for _ in range(4)]
    before = [host.group() for host in hosts]
    places = [host.place() for host in hosts]
    assert [host.group() for host in hosts] == before, "somebody was moved"
    assert len(set(places)) == 4 and {os.path.dirname(str(place)) for place in places} == {str(group)}
    assert all(host.ask(LIMITED_CHILD) == [-9, 1, True] for host in hosts)
    assert all(len(path.split("/")) == 1 for path in subgroups(group)), subgroups(group)
    for host in hosts:
        host.end()
    assert subgroups(group) == ["server"]


@needs_controllers
def test_a_host_is_left_in_peace_when_the_next_one_looks_for_its_place(group: Path, hosts: list[Host]) -> None:
    hosts.append(Host(group))
    assert hosts[0].place()
    first = hosts[0].group()
    child = hosts[0].ask(
        "import subprocess, sys\n"
        "code = 'from sandbox_kernel.jail.accounting import cgroups; print(cgroups.find_hierarchies().memory); input()'\n"
        "child = subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, "
        f"text=True, cwd={os.getcwd()!r})\n"
        "answer = child.stdout.readline().strip()"
    )
    assert os.path.dirname(str(child)) == str(group), "a host below a host nests"
    assert hosts[0].group() == first
    assert hosts[0].ask(LIMITED_CHILD) == [-9, 1, True]


@needs_controllers
def test_root_in_a_group_without_controllers_takes_the_nearest_above_that_has_them(
    group: Path, hosts: list[Host]
) -> None:
    (group / "cgroup.subtree_control").write_text(BOTH)
    deep = child_of(child_of(child_of(group, "a"), "b"), "c")
    assert (deep / "cgroup.controllers").read_text().split() == []
    hosts += [Host(deep), Host(deep)]
    place = hosts[0].place()
    assert place is not None and os.path.dirname(place) == str(group)
    assert set(members(deep)) == {hosts[0].pid, hosts[1].pid}
    assert hosts[0].ask(LIMITED_CHILD) == [-9, 1, True]


@needs_controllers
def test_the_limits_of_a_group_that_sandboxes_are_outside_of_are_theirs_too(group: Path, hosts: list[Host]) -> None:
    (group / "cgroup.subtree_control").write_text(BOTH)
    own = child_of(group, "own")
    (own / "memory.max").write_text(str(300 << 20))
    (own / "pids.max").write_text("77")
    hosts += [Host(own), Host(own)]
    place = Path(str(hosts[0].place()))
    assert place.parent == group
    assert (place / "memory.max").read_text().strip() == str(300 << 20)
    assert (place / "pids.max").read_text().strip() == "77"
    (note,) = hosts[0].ask("answer = cgroups.find_hierarchies().notes")  # type: ignore[misc]
    assert str(group) in note and str(300 << 20) in note


@needs_controllers
def test_a_killed_host_that_had_moved_does_not_keep_the_next_one_from_its_limits(
    group: Path, hosts: list[Host]
) -> None:
    (group / "cgroup.subtree_control").write_text(BOTH)
    own = child_of(group, "own")
    hosts.append(Host(own))
    assert hosts[0].place() and hosts[0].group().count("/host") == 1
    hosts[0].kill()
    # The kernel takes no process into a group that passes controllers on; a service manager makes a new one.
    clear(own)
    hosts.append(Host(child_of(group, "next")))
    assert hosts[1].ask(LIMITED_CHILD) == [-9, 1, True]


@needs_controllers
def test_an_ordinary_user_alone_in_a_delegated_group_has_limits(group: Path, hosts: list[Host]) -> None:
    (group / "cgroup.subtree_control").write_text(BOTH)
    own = child_of(group, "own")
    give(own, NOBODY)
    hosts.append(Host(own, uid=NOBODY))
    place = hosts[0].place()
    assert place is not None and os.path.dirname(place) == str(own)
    assert hosts[0].ask(LIMITED_CHILD) == [-9, 1, True]
    hosts[0].end()
    assert subgroups(own) == []


@needs_controllers
def test_an_ordinary_user_beside_others_in_a_group_below_one_of_theirs_has_limits(
    group: Path, hosts: list[Host]
) -> None:
    (group / "cgroup.subtree_control").write_text(BOTH)
    slice_ = child_of(group, "app.slice")
    (slice_ / "cgroup.subtree_control").write_text(BOTH)
    own = child_of(slice_, "terminal.scope")
    give(slice_, NOBODY)
    give(own, NOBODY)
    hosts += [Host(own, uid=NOBODY), Host(own, uid=NOBODY)]
    before = [host.group() for host in hosts]
    assert {os.path.dirname(str(host.place())) for host in hosts} == {str(slice_)}
    assert [host.ask(LIMITED_CHILD) for host in hosts] == [[-9, 1, True]] * 2
    assert [host.group() for host in hosts] == before


@needs_controllers
@pytest.mark.parametrize("delegated", [True, False])
def test_an_ordinary_user_without_such_a_group_learns_why_and_what_to_do(
    group: Path, hosts: list[Host], delegated: bool
) -> None:
    (group / "cgroup.subtree_control").write_text(BOTH)
    own = child_of(group, "own")
    if delegated:
        give(own, NOBODY)
    hosts += [Host(own, uid=NOBODY), Host(own, uid=NOBODY)]
    assert hosts[0].place() is None
    reason = str(hosts[0].ask("answer = cgroups.shortfall()"))
    assert ("other processes live in" if delegated else "may not make control groups in") in reason
    assert str(own) in reason and "to have them limited" in reason
    assert set(members(own)) == {host.pid for host in hosts}


# A whole host.

RUN = """
from sandbox_kernel import Sandbox
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
with Sandbox() as box:
    for _ in range(3):
        assert box.run("print(1)", "python").ok
    box.session("python").run("1")
where = find_hierarchies()
print(*sorted({where.memory, where.pids, where.unified} - {None}) if where else (), sep="\\n")
"""


@pytest.mark.parametrize("also", ["", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"])
@pytest.mark.slow
def test_a_host_that_ends_leaves_no_groups(also: str) -> None:
    done = subprocess.run([sys.executable, "-c", RUN + also], capture_output=True, text=True)
    folders = done.stdout.splitlines()
    if not folders and not done.returncode:
        pytest.skip("no control group may be made here")
    assert folders, done.stderr
    assert [folder for folder in folders if os.path.exists(folder)] == []


# Reading where we are.


def test_the_place_of_a_group_is_found_below_the_part_of_the_tree_that_is_mounted_and_nowhere_else(
    tmp_path: Path,
) -> None:
    for name in ("mount/sub", "x"):
        (tmp_path / name).mkdir(parents=True)
    top = str(tmp_path / "mount")
    groups, mounts = {"memory": "/docker/abc/sub"}, {"memory": (top, "/docker/abc")}
    assert own_folder("memory", groups, mounts) == f"{top}/sub"
    assert own_folder("memory", groups, {}) is None
    assert own_folder("pids", groups, mounts) is None
    for outside in ("/elsewhere", "/docker/abcx"):
        assert own_folder("memory", {"memory": outside}, mounts) is None
    for above in ("/../x", "/.."):  # of another namespace
        assert own_folder("", {"": above}, {"": (top, "/")}) is None


@pytest.mark.parametrize(
    ("total", "free", "mb"),
    [
        (64 << 10, 60 << 10, 16 << 10),
        (6 << 10, 5 << 10, 2048),
        (24105, 18113, 5888),
        (16 << 10, 1500, 1280),
        (900, 200, 512),
    ],
)
def test_a_page_has_a_quarter_of_the_memory_of_its_container_and_no_more_than_is_free(
    total: int, free: int, mb: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "outer" / "memory.max").write_text(f"{total << 20}\n")
    (tmp_path / "outer" / "memory.current").write_text(f"{(total - free + 10) << 20}\n")
    (tmp_path / "outer" / "memory.stat").write_text(f"anon 5\ninactive_file {10 << 20}\n")
    (inner / "memory.max").write_text("max\n")
    monkeypatch.setattr(cgroups, "own_groups", lambda: {"": "/outer/inner"})
    monkeypatch.setattr(cgroups, "mounts", lambda: {"": (str(tmp_path), "/")})
    monkeypatch.setattr(cgroups, "_machine_memory", lambda: (1 << 40, 1 << 39))
    cgroups.page_memory_mb.cache_clear()
    try:
        assert cgroups.page_memory_mb() == mb
    finally:
        cgroups.page_memory_mb.cache_clear()
