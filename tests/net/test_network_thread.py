from __future__ import annotations

import asyncio
import os

import pytest

from sandbox_kernel.net.network_thread import network_loop, run_on_network_loop


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


def test_work_runs_there_and_its_value_comes_back():
    assert run_on_network_loop(answer()) == 42
    assert network_loop() is network_loop()


def test_a_blocking_call_from_the_network_thread_is_an_error_and_not_a_deadlock():
    async def nested() -> int:
        return run_on_network_loop(answer())

    with pytest.raises(RuntimeError, match="network thread"):
        run_on_network_loop(nested())


def test_a_forked_child_gets_a_thread_of_its_own():
    run_on_network_loop(answer())
    child = os.fork()
    if child == 0:
        try:
            os._exit(run_on_network_loop(answer()))
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
