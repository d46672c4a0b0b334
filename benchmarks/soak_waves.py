"""The waves of ``soak_executions``: each makes a fault while programs run, and undoes it.

During the fault an error of our types is a valid result. A second wave, after the fault, must have no errors. Each
function returns how often the fault was made.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import soak_disk, soak_faults

if TYPE_CHECKING:
    from benchmarks.soak_executions import Soak

#: How many run at once on a busy server.
CROWD = 100


@dataclass(frozen=True)
class Place:
    """The folders of the soak; ``disk`` is None where no disk can be filled."""

    temporary: Path
    cache: Path
    wasm: Path
    disk: Path | None


Wave = Callable[["Soak", Place, int, int], Awaitable[int]]


async def crowd(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Run many at once, without a fault."""
    await soak.wave(size, CROWD)
    return CROWD


async def spares_killed(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Kill spares. A run that gets a dying one is an error of our types: nothing of the program ran."""
    killed = soak_faults.kill_spares(soak.backend, soak.dice)
    await soak.wave(size, concurrent, broken=True)
    return killed


async def cache_spoilt(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Cut or change compiled files, or replace them by links."""
    bait = place.temporary.parent / "bait"
    spoilt = sum(soak_faults.spoil(cache, bait, soak.dice) for cache in (place.cache, place.wasm))
    await soak.wave(size, concurrent)
    assert bait.read_bytes() == soak_faults.BAIT, "a link in a cache was followed"
    return spoilt


async def groups_removed(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Remove control groups, again and again, while programs run."""
    wave = asyncio.ensure_future(soak.wave(size, concurrent, broken=True))
    removed = 0
    while not wave.done():
        await asyncio.wait([wave], timeout=0.3)
        removed += soak_faults.empty_groups()
    await wave
    return removed


async def bwrap_gone(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Remove bwrap, and kill the spares."""
    with soak_faults.without_bwrap():
        await asyncio.to_thread(soak_faults.kill_spares, soak.backend, random.Random(0))
        await soak.wave(size, concurrent, broken=True)
    await soak.wave(size, concurrent)
    return 1


async def no_descriptors(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Allow only a few more open files."""
    with soak_faults.without_descriptors(soak.dice.randrange(4, 40)):
        await soak.wave(size, concurrent, broken=True)
    await soak.wave(size, concurrent)
    return 1


async def another_host(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Run two hosts with the same cache."""
    with soak_faults.neighbour(place.cache, 6) as other:
        await soak.wave(size, concurrent)
        said = await asyncio.to_thread(other.communicate)
    assert said[0] == "well\n", said
    return 1


async def host_killed(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Kill hosts during a run and during a cell; check that all their processes end."""
    for victim in soak_faults.VICTIMS:
        left = await asyncio.to_thread(soak_faults.kill_a_host, victim)
        assert not left, f"a host killed in a {victim} left processes: {left}"
    await soak.wave(size, concurrent)
    return len(soak_faults.VICTIMS)


async def clock_jumps(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Let the time of day jump at every call. Deadlines must hold: no run ends early, and hanging ones are ended."""
    with soak_faults.jumping_clock():
        await soak.wave(size, concurrent)
    return 1


async def disk_full(soak: Soak, place: Place, size: int, concurrent: int) -> int:
    """Fill the disk of caches, temporary folders and files of runs."""
    if place.disk is None:
        await soak.wave(size, concurrent)
        return 0
    said = await asyncio.to_thread(soak_disk.files_through_a_full_disk, place.disk)
    with soak_disk.full(place.disk):
        wave = asyncio.ensure_future(soak.wave(size, concurrent, broken=True))
        while not wave.done():
            await asyncio.wait([wave], timeout=0.2)
            await asyncio.to_thread(soak_disk.top_up, place.disk)
        await wave
    await soak.wave(size, concurrent)
    return said


WAVES: dict[str, Wave] = {
    "at once": crowd,
    "spares killed": spares_killed,
    "cache files spoilt": cache_spoilt,
    "control groups removed": groups_removed,
    "bwrap gone": bwrap_gone,
    "no descriptors": no_descriptors,
    "another host on the cache": another_host,
    "hosts killed": host_killed,
    "clock jumps": clock_jumps,
    "disk full": disk_full,
}
