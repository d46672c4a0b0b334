"""Where the place of a host is made in version 2: what is there in, what to try out."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sandbox_kernel.jail.accounting.cgroup_place import Group, PlacePlan, plans, tightest, why_none

ME, OTHER = 100, 200
BOTH = frozenset({"memory", "pids"})
WISH = ("memory", "pids")


def group(folder: str, controllers: str = "memory pids", enabled: str = "", **more: object) -> Group:
    found = Group(folder, frozenset(controllers.split()), frozenset(enabled.split()))
    return replace(found, **more)  # type: ignore[arg-type]


def root(enabled: str = "memory pids", **more: object) -> Group:
    return group("/cg", "cpu memory pids", enabled, kind="", processes=(1, 2, 3), **more)


FOREIGN = {"writable": False}

#: What is there (our own group first), and what is tried first; None: nothing can be done.
CASES: Mapping[str, tuple[tuple[Group, ...], PlacePlan | None]] = {
    "the root of the machine passes controllers on already": ((root(),), PlacePlan("/cg", WISH)),
    "the root of the machine could, though processes live in it": ((root(""),), PlacePlan("/cg", WISH, enable=True)),
    "alone in a delegated scope: we move, nobody else": (
        (group("/cg/u/s.scope", processes=(ME,)), group("/cg/u", enabled="memory pids", **FOREIGN), root(**FOREIGN)),
        PlacePlan("/cg/u/s.scope", WISH, enable=True, move=True),
    ),
    "not alone in a scope of the user's manager: beside it, nobody moves": (
        (group("/cg/u/s.scope", processes=(ME, OTHER)), group("/cg/u", enabled="memory pids"), root(**FOREIGN)),
        PlacePlan("/cg/u", WISH),
    ),
    "not alone in a delegated group, nothing else is ours: others are not moved": (
        (group("/cg/svc", processes=(OTHER, ME)), root(**FOREIGN)),
        None,
    ),
    "a process of another pid namespace counts as another process": (
        (group("/cg/svc", processes=(ME, 0)), root(**FOREIGN)),
        None,
    ),
    "processes that may not be listed count as others": ((group("/cg/svc", processes=None), root(**FOREIGN)), None),
    "a service whose processes are in a subgroup (DelegateSubgroup): its own group above can be used": (
        (group("/cg/svc/server", processes=(ME, OTHER)), group("/cg/svc"), root(**FOREIGN)),
        PlacePlan("/cg/svc", WISH, enable=True),
    ),
    "root in a group without controllers: the nearest above that has them": (
        (group("/cg/a/b", "", processes=(ME, OTHER)), group("/cg/a", "", processes=(OTHER,)), root()),
        PlacePlan("/cg", WISH),
    ),
    "root in a group with memory only: where both are passed on, without changing what is between": (
        (group("/cg/a/b", "memory", processes=(ME, OTHER)), group("/cg/a", "cpu memory pids", "memory"), root()),
        PlacePlan("/cg", WISH),
    ),
    "only memory is to be had, beside our group": (
        (group("/cg/a/b", "memory", processes=(ME, OTHER)), group("/cg/a", "memory", "memory"), root(**FOREIGN)),
        PlacePlan("/cg/a", ("memory",)),
    ),
    "alone, and only memory is to be had": (
        (group("/cg/a", "memory io", processes=(ME,)), root(**FOREIGN)),
        PlacePlan("/cg/a", ("memory",), enable=True, move=True),
    ),
    "the group of a login session belongs to root": (
        (group("/cg/s.scope", processes=(ME,), **FOREIGN), root(**FOREIGN)),
        None,
    ),
    "a child of a host that has moved makes its place beside its parent's": (
        (
            group("/cg/s.scope/sandbox-kernel-host-1/host", "memory pids", processes=(ME, OTHER)),
            group("/cg/s.scope/sandbox-kernel-host-1", "memory pids", "memory pids"),
            group("/cg/s.scope", enabled="memory pids"),
            root(**FOREIGN),
        ),
        PlacePlan("/cg/s.scope", WISH),
    ),
    "such a child whose parent is gone, alone in its group, does not go deeper": (
        (
            group("/cg/s.scope/sandbox-kernel-host-1/host", "", processes=(ME,)),
            group("/cg/s.scope/sandbox-kernel-host-1", "memory pids"),
            group("/cg/s.scope"),
            root(**FOREIGN),
        ),
        PlacePlan("/cg/s.scope", WISH, enable=True),
    ),
    "a scope that was asked for is a group like any other, whatever its name": (
        (group("/cg/app.slice/sandbox-kernel-7-abc.scope", processes=(ME,)), group("/cg/app.slice", enabled="memory pids")),
        PlacePlan("/cg/app.slice/sandbox-kernel-7-abc.scope", WISH, enable=True, move=True),
    ),
    "a host in a sandbox without walls does not escape the limits of that sandbox": (
        (
            group("/cg/a/sandbox-kernel-host-1/sandbox-kernel-5-0", processes=(ME,), limits={"memory.max": "64"}),
            group("/cg/a/sandbox-kernel-host-1", enabled="memory pids", limits={"memory.max": "900"}),
            group("/cg/a", enabled="memory pids", limits={"memory.max": "50"}),
            root(),
        ),
        PlacePlan("/cg/a", WISH, limits={"memory.max": "64"}),
    ),
    "a threaded group limits no memory": (
        (group("/cg/t", processes=(ME,), kind="threaded"), root(**FOREIGN)),
        None,
    ),
    "threaded groups are passed over": ((group("/cg/t", processes=(ME,), kind="domain threaded"), root()), PlacePlan("/cg", WISH)),
    "no memory controller anywhere, as beside version 1": (
        (group("/cg/a", "", processes=(ME,)), replace(root(), controllers=frozenset({"cpu"}), enabled=frozenset())),
        None,
    ),
    "nothing is mounted": ((), None),
    "a limit on our group is put on the place outside of it": (
        (
            group("/cg/a/b", processes=(ME, OTHER), limits={"memory.max": "1000", "cpu.max": "50000 100000"}),
            group("/cg/a", limits={"memory.max": "800", "pids.max": "70"}),
            root(),
        ),
        PlacePlan("/cg", WISH, limits={"memory.max": "800", "pids.max": "70", "cpu.max": "50000 100000"}),
    ),
    "below our own group its limits hold anyway": (
        (group("/cg/a", processes=(ME,), limits={"memory.max": "1000"}), root(**FOREIGN)),
        PlacePlan("/cg/a", WISH, enable=True, move=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_place_for_leaves(name: str) -> None:
    chain, wanted = CASES[name]
    found = plans(chain, ME)
    assert (found[0] if found else None) == wanted
    if wanted is None and chain:
        assert why_none(chain, ME)


def test_what_to_try_goes_from_our_own_group_outwards() -> None:
    chain = (
        group("/cg/a/b/c", processes=(ME,)),
        group("/cg/a/b", enabled="memory pids"),
        group("/cg/a", enabled="memory pids"),
        root(),
    )
    assert [plan.parent for plan in plans(chain, ME) if plan.controllers == WISH] == [
        "/cg/a/b/c", "/cg/a/b", "/cg/a", "/cg",
    ]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_no_plan_moves_anybody_but_a_process_that_is_alone(name: str) -> None:
    chain, _ = CASES[name]
    for plan in plans(chain, ME):
        (parent,) = [group for group in chain if group.folder == plan.parent]
        assert parent.writable
        assert not plan.move or parent.processes == (ME,)
        assert not plan.enable or plan.move or parent.processes == () or not parent.kind
        assert "/sandbox-kernel-host-" not in plan.parent


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ([{"memory.max": "10"}, {"memory.max": "9"}], {"memory.max": "9"}),
        ([{"memory.max": "9"}, {"memory.max": "10"}], {"memory.max": "9"}),
        ([{"cpu.max": "100000 100000"}, {"cpu.max": "30000 50000"}], {"cpu.max": "30000 50000"}),
        ([{"cpuset.cpus": "1"}, {"cpuset.cpus": "0-3"}], {"cpuset.cpus": "1"}),
        ([{}, {"pids.max": "5"}], {"pids.max": "5"}),
        ([{}, {}], {}),
    ],
)
def test_limits_of_groups_in_each_other_become_the_tightest(values: list[dict[str, str]], left: dict[str, str]) -> None:
    assert tightest([group(f"/cg/{number}", limits=limits) for number, limits in enumerate(values)]) == left


@pytest.mark.parametrize(
    ("chain", "word"),
    [
        ((group("/cg/a", ""), group("/cg", "cpu", kind="", **FOREIGN)), "memory controller"),
        ((group("/cg/a", **FOREIGN), root(**FOREIGN)), "may not make control groups"),
        ((group("/cg/a", ""), root(**FOREIGN)), "no memory controller"),
        ((group("/cg/a", processes=(ME, OTHER)), root(**FOREIGN)), "other processes"),
        ((group("/cg/a", processes=(ME,), kind="threaded"), root(**FOREIGN)), "threaded"),
    ],
)
def test_the_reason_names_what_stopped_it(chain: tuple[Group, ...], word: str) -> None:
    assert not plans(chain, ME)
    assert word in why_none(chain, ME)
