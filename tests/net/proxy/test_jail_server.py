from __future__ import annotations

import asyncio

from sandbox_kernel.net.proxy.jail_server import Pace


def test_a_burst_goes_at_once_and_the_rest_one_after_the_other():
    now, slept = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    async def main() -> None:
        nonlocal now
        pace = Pace(4, 3, lambda: now, sleep)
        for _ in range(3):
            await pace.turn()
        assert slept == []
        for _ in range(2):
            await pace.turn()
        assert slept == [0.25, 0.25]
        now += 100
        for _ in range(3):
            await pace.turn()
        assert len(slept) == 2
        await pace.turn()
        assert len(slept) == 3

    asyncio.run(main())
