"""Running cells can be stopped from another thread."""

import asyncio
import threading

from sandbox_kernel.notebook.kernel import RunningCells


def test_an_interrupt_from_another_thread_reaches_every_running_cell():
    running = RunningCells()

    async def one():
        with running.cell() as cancel:
            await cancel.wait()

    async def both():
        cells = asyncio.gather(one(), one())
        await asyncio.sleep(0)
        threading.Thread(target=running.interrupt).start()
        await asyncio.wait_for(cells, 30)

    asyncio.run(both())
    assert running.wait_idle(0)


def test_without_a_running_cell_an_interrupt_is_nothing():
    assert RunningCells().interrupt() == 0


def test_a_cell_that_fails_is_no_longer_running():
    running = RunningCells()

    async def fails():
        with running.cell():
            assert not running.wait_idle(0)
            raise ValueError

    try:
        asyncio.run(fails())
    except ValueError:
        pass
    assert running.wait_idle(0)


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
