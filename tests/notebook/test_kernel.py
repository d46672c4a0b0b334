"""Running cells can be stopped."""

import asyncio

from sandbox_kernel.notebook.kernel import RunningCells


def test_an_interrupt_reaches_every_running_cell_and_one_that_fails_runs_no_longer():
    running = RunningCells()

    async def one():
        with running.cell() as cancel:
            await cancel.wait()
            raise ValueError

    async def both():
        cells = asyncio.gather(one(), one(), return_exceptions=True)
        await asyncio.sleep(0)
        assert not running.idle.is_set()
        running.interrupt()
        await asyncio.wait_for(cells, 30)

    asyncio.run(both())
    assert running.idle.is_set()


def test_an_interrupt_meant_for_one_cell_does_not_stop_the_next():
    running = RunningCells()

    async def two():
        with running.cell() as first:
            running.interrupt()
            await asyncio.wait_for(first.wait(), 30)
        with running.cell() as second:
            await asyncio.sleep(0)
            return second.is_set()

    assert asyncio.run(two()) is False
