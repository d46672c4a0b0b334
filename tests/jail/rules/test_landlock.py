"""Landlock plans as data; no kernel is asked but for its version."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import EnforcerUnavailable, PolicyViolation
from sandbox_kernel.jail.rules import landlock
from sandbox_kernel.jail.rules.landlock import landlock_abi, landlock_plan, landlock_weaknesses

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
def test_a_read_path_may_be_read_listed_and_executed_only(abi: int) -> None:
    assert dict(landlock_plan([READ], [], abi=abi).paths) == {READ: 0b1101}


@settings(deadline=None)
@given(abi=st.integers(1, 12))
def test_a_write_path_gives_all_but_devices_and_sockets_of_others(abi: int) -> None:
    plan = landlock_plan([], [WRITE], abi=abi)
    rights = dict(plan.paths)[WRITE]
    assert rights & ~plan.handled_fs == 0
    assert plan.handled_fs & ~rights == plan.handled_fs & (1 << 6 | 1 << 11 | 1 << 15 | 1 << 16)


def test_a_path_for_both_is_writable_and_stands_once() -> None:
    assert dict(landlock_plan([WRITE, READ], [WRITE], abi=7).paths) == {
        READ: landlock.READ_RIGHTS,
        WRITE: dict(landlock_plan([], [WRITE], abi=7).paths)[WRITE],
    }


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


def test_the_version_of_this_kernel_is_a_number_and_asking_does_not_restrict() -> None:
    abi = landlock_abi()
    assert 0 <= abi < 100
    assert landlock_abi() == abi
    assert Path("/etc/passwd").read_text()


def test_other_systems_have_no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert landlock_abi() == 0
