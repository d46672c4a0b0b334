"""Ready-made jails: each for one run, of the kind that was asked for, alive, bounded in number, and gone at the end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil
import pytest

from benchmarks.soak_faults import empty_groups
from sandbox_kernel import EnforcerFailed
from sandbox_kernel.jail import pool as room
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.enforcer import start_jail
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.pool import MAX_SPARES, Pool
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.jail.walls import Walls, sizes
from sandbox_kernel.limits import Limits
from tests.waiting import until

WALLS = Walls("python", (), (), 1, 1, 1, templates=False)


class FakeJail:
    """A jail for the pool's eyes: it is started, waited for, alive or not, destroyed or forgotten."""

    made: list[FakeJail] = []  # noqa: RUF012 - reset for each test

    def __init__(self, walls: Walls) -> None:
        self.walls, self.alive, self.ready, self.destroyed, self.forgotten = walls, True, False, False, False
        FakeJail.made.append(self)

    @property
    def usable(self) -> bool:
        return self.alive

    def wait_ready(self) -> FakeJail:
        self.ready = True
        return self

    def destroy(self) -> None:
        self.destroyed = True
        self.alive = False

    def forget(self) -> None:
        self.forgotten = True


@pytest.fixture
def make() -> Iterator[Callable[[int], Pool]]:
    FakeJail.made = []
    pools: list[Pool] = []

    def build(size: int) -> Pool:
        pools.append(Pool(size, FakeJail))  # type: ignore[arg-type]
        return pools[-1]

    yield build
    for pool in pools:
        pool.close()


@pytest.mark.attack("O16", "pool")
def test_many_threads_get_ready_jails_and_never_the_same(make: Callable[[int], Pool]) -> None:
    pool = make(3)
    taken: list[Jail] = []
    threads = [threading.Thread(target=lambda: taken.extend(pool.take(WALLS) for _ in range(25))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(jail) for jail in taken}) == 200
    assert all(jail.ready for jail in taken)  # type: ignore[attr-defined]


def test_the_next_one_waits_when_it_is_asked_for(make: Callable[[int], Pool]) -> None:
    pool = make(2)
    pool.take(WALLS)
    until(lambda: pool.spares() >= 2)
    assert pool.take(WALLS) in FakeJail.made[1:3]


def test_a_jail_that_was_begun_is_the_next_one_of_its_kind_and_ends_when_another_kind_is_asked_for(
    make: Callable[[int], Pool],
) -> None:
    pool = make(0)
    pool.begin(WALLS)
    assert not FakeJail.made[0].ready
    assert pool.take(WALLS, lasts=True) is FakeJail.made[0]
    assert FakeJail.made[0].ready
    pool.begin(WALLS)
    assert pool.take(replace(WALLS, box_bytes=7), lasts=True) is FakeJail.made[2]
    assert FakeJail.made[1].destroyed
    pool.begin(WALLS)
    pool.close()
    assert FakeJail.made[3].destroyed


def test_a_session_has_spares_from_the_second_one_of_its_kind_on(make: Callable[[int], Pool]) -> None:
    pool = make(1)
    pool.take(WALLS, lasts=True)
    other = replace(WALLS, box_bytes=7)
    pool.take(other)
    until(lambda: pool.spares() >= 1)  # the one of the other kind: spares are made in the order of the requests
    assert [jail.walls for jail in FakeJail.made] == [WALLS, other, other]
    pool.take(WALLS, lasts=True)
    until(lambda: pool.spares() >= 2)


def test_a_spare_that_died_is_noticed_before_it_is_handed_out(make: Callable[[int], Pool]) -> None:
    pool = make(2)
    pool.take(WALLS)
    until(lambda: pool.spares() >= 2)
    dead = FakeJail.made[1:3]
    for jail in dead:
        jail.alive = False
    jail = pool.take(WALLS)
    assert jail not in dead and jail.alive
    assert all(jail.destroyed for jail in dead), "what is left of a dead spare was not given back"


def test_kinds_do_not_mix(make: Callable[[int], Pool]) -> None:
    pool = make(1)
    other = replace(WALLS, enforcer="landlock")
    for walls in (WALLS, other, replace(WALLS, enforcer=None), WALLS, other):
        assert pool.take(walls).walls == walls
        until(lambda: pool.spares() >= 1)


def test_size_0_keeps_none_and_starts_no_thread(make: Callable[[int], Pool]) -> None:
    pool = make(0)
    pool.warm(WALLS)
    assert pool.take(WALLS).walls == WALLS
    assert (pool.spares(), len(FakeJail.made), pool._thread) == (0, 1, None)


def test_spares_are_bounded_whatever_is_asked_for(make: Callable[[int], Pool]) -> None:
    pool = make(2)
    for number in range(MAX_SPARES + 4):
        pool.warm(replace(WALLS, box_bytes=number))
    until(lambda: len(FakeJail.made) >= 2 * (MAX_SPARES + 4))
    pool.warm(replace(WALLS, box_bytes=0))
    until(lambda: pool.spares() >= 1)
    until(lambda: pool.spares() <= MAX_SPARES)
    alive = [jail for jail in FakeJail.made if not jail.destroyed]
    assert len(alive) <= MAX_SPARES + 2


def test_a_kind_that_nobody_asks_for_is_given_up(make: Callable[[int], Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make(2)
    pool.warm(WALLS)
    until(lambda: pool.spares() >= 2)
    pool._drop_idle()
    assert pool.spares() == 2
    monkeypatch.setattr(room, "IDLE_S", -1.0)
    pool._drop_idle()
    assert pool.spares() == 0
    assert all(jail.destroyed for jail in FakeJail.made)


def test_a_kind_that_nobody_asks_for_is_given_up_in_a_busy_pool_too(
    make: Callable[[int], Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make(2)
    pool.warm(WALLS)
    until(lambda: pool.spares() >= 2)
    unused = list(FakeJail.made)
    pool._kinds[WALLS].asked_at -= room.IDLE_S + 1
    pool.warm(replace(WALLS, box_bytes=7))
    until(lambda: all(jail.destroyed for jail in unused))
    until(lambda: pool.spares() >= 2)


def test_closing_ends_every_spare_and_may_be_done_twice(make: Callable[[int], Pool]) -> None:
    pool = make(2)
    pool.take(WALLS)
    until(lambda: pool.spares() >= 2)
    pool.close()
    pool.close()
    assert [jail.destroyed for jail in FakeJail.made] == [False, True, True]
    assert pool.take(WALLS).alive, "a closed pool still serves, it only keeps nothing"
    assert pool.spares() == 0


def test_a_spare_that_cannot_be_made_is_no_error_until_somebody_needs_one() -> None:
    def fail(walls: Walls) -> Jail:
        raise EnforcerFailed("bubblewrap", "no room")

    pool = Pool(2, fail)
    pool.warm(WALLS)
    with pytest.raises(EnforcerFailed, match="no room"):
        pool.take(WALLS)
    pool.close()


def test_a_forked_child_of_the_host_lets_go_of_the_spares_and_makes_its_own(make: Callable[[int], Pool]) -> None:
    pool = make(1)
    pool.take(WALLS)
    until(lambda: pool.spares() >= 1)
    spare = FakeJail.made[1]
    child = os.fork()
    if child == 0:
        fine = spare.forgotten and not spare.destroyed and pool.spares() == 0 and pool.take(WALLS) is not spare
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not spare.forgotten
    assert pool.take(WALLS) is spare


def real_walls(enforcer: str) -> Walls:
    python = find_python("python3")
    return Walls(python.executable, python.runtime, (), *sizes(Limits(), 128), preload=(), enforcer=enforcer)


@pytest.mark.attack("K07", "pool")
@pytest.mark.parametrize(
    ("enforcer", "harm"),
    [("bubblewrap", "killed"), *([("landlock", "killed")] if landlock_abi() else []),
     *([("bubblewrap", "its control group removed")] if find_hierarchies() else [])],
)  # fmt: skip
def test_a_real_spare_that_was_harmed_from_outside_is_replaced(enforcer: str, harm: str, nothing_left: None) -> None:
    pool = Pool(1, start_jail)
    try:
        pool.warm(real_walls(enforcer))
        until(lambda: pool.spares() >= 1)
        (shelf,) = pool._kinds.values()
        (spare,) = shelf.spares
        if harm == "killed":
            os.kill(spare.init_pid, signal.SIGKILL)
            until(lambda: not spare.alive)
        else:
            assert empty_groups() > 0
        jail = pool.take(real_walls(enforcer))
        assert jail is not spare and jail.alive and jail.usable
        jail.destroy()
    finally:
        pool.close()


@pytest.mark.slow
def test_a_jail_that_is_ended_while_it_starts_leaves_no_waiting_child(nothing_left: None) -> None:
    """bubblewrap's child waits for its parent before it binds its life to it."""
    uids = set()
    for spins in range(0, 40000, 1000):
        jail = start_jail(real_walls("bubblewrap"))
        uids.add(os.getuid() if jail.uid is None else jail.uid)
        for _ in range(spins):
            pass
        jail.destroy()
    orphans = [p.info for p in psutil.process_iter(["cmdline", "ppid", "uids"]) if p.info["ppid"] == 1]
    assert not [info for info in orphans if "--args" in (info["cmdline"] or ()) and info["uids"].real in uids]
