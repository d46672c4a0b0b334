import asyncio
import os

import pytest

from sandbox_kernel.util.loop_thread import NETWORK


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


def test_work_runs_there_and_its_value_comes_back():
    assert NETWORK.run(answer()) == 42
    assert NETWORK.loop is NETWORK.loop


def test_a_blocking_call_from_the_network_thread_is_an_error_and_not_a_deadlock():
    async def nested() -> int:
        return NETWORK.run(answer())

    with pytest.raises(RuntimeError, match="the thread sandbox-kernel-net itself"):
        NETWORK.run(nested())


def test_a_forked_child_gets_a_thread_of_its_own():
    NETWORK.run(answer())
    child = os.fork()
    if child == 0:
        try:
            os._exit(NETWORK.run(answer()))
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
