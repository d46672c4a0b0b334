"""Wrapped kernels of a Jupyter server: pending while they start, ended when nobody uses them, gone with the server."""

import asyncio
import signal
import subprocess
import sys

import psutil
import pytest
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

#: Starts a kernel as a server does, says so and waits.
SERVER = """
import sys
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name=sys.argv[1])
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=100)
print(manager.provisioner.process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_kernel_is_pending_while_it_starts_and_is_ended_when_nobody_uses_it(wrap, tmp_path):
    name = wrap("python3")

    async def live() -> list[str]:
        manager = AsyncMappingKernelManager(
            root_dir=str(tmp_path), use_pending_kernels=True, cull_idle_timeout=1, cull_interval=1
        )
        made = await manager.start_kernel(kernel_name=name)
        seen = ["pending" if not manager.get_kernel(made).ready.done() else "ready"]
        await manager.get_kernel(made).ready
        process = psutil.Process(manager.get_kernel(made).provisioner.process.pid)
        while made in manager:
            await asyncio.sleep(0.1)  # the server ends it in this loop
        await asyncio.to_thread(psutil.wait_procs, [process], timeout=60)
        return [*seen, "gone" if not process.is_running() else "left"]

    assert asyncio.run(asyncio.wait_for(live(), 110)) == ["pending", "gone"]


@pytest.mark.slow
def test_a_killed_server_leaves_nothing(wrap):
    name = wrap("python3")
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    launcher = psutil.Process(int(server.stdout.readline()))
    family = [launcher, *launcher.children(recursive=True)]
    assert len(family) > 1
    server.send_signal(signal.SIGKILL)
    server.communicate()
    _, left = psutil.wait_procs(family, timeout=90)
    assert left == []
