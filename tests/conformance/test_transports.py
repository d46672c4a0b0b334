"""The kernel over other transports, started in other ways, and questions that only the control channel takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


def printed(client: BlockingKernelClient) -> str:
    texts: list[str] = []
    reply = client.execute_interactive(
        "print('there')",
        timeout=PATIENCE_S,
        output_hook=lambda message: texts.append(message["content"].get("text", "")),
    )
    assert reply["content"]["status"] == "ok"
    return "".join(texts)


@pytest.mark.parametrize(
    "given", [{"transport": "ipc"}, {"transport_encryption": "required"}], ids=["unix sockets", "encrypted"]
)
@pytest.mark.slow
def test_a_cell_runs_over(given: dict[str, str], tmp_path: Path) -> None:
    manager = KernelManager(kernel_name="sandbox", connection_file=str(tmp_path / "connection.json"), **given)
    manager.start_kernel()
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE_S)
        assert printed(client) == "there\n"
        until(client.hb_channel.is_beating)  # a beat may be late on a busy machine
        if "transport_encryption" in given:
            assert "curve_secretkey" in json.loads((tmp_path / "connection.json").read_text())
    finally:
        # A heartbeat that is left alone opens new sockets for ever, in the descriptors that later tests count.
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_a_kernel_that_is_given_no_ports_writes_those_that_it_chose(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    words = [sys.executable, "-m", "sandbox_kernel", f"--IPKernelApp.connection_file={file}"]
    kernel = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        until(lambda: kernel.poll() is not None or (file.exists() and file.read_text().endswith("}")))
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=PATIENCE_S)
            assert printed(client) == "there\n"
            client.shutdown()
            kernel.wait(PATIENCE_S)
        finally:
            client.stop_channels()
        assert not file.exists()
    finally:
        kernel.kill()
        kernel.wait()


@pytest.mark.slow
def test_a_kernel_ends_when_the_process_that_started_it_has(tmp_path: Path) -> None:
    file = tmp_path / "connection.json"
    program = (
        "import os, subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-m', 'sandbox_kernel', '-f', {str(file)!r}],\n"
        "    env={**os.environ, 'JPY_PARENT_PID': str(os.getpid())})\n"
        f"while not os.path.exists({str(file)!r}): time.sleep(0.05)\n"
        "print(p.pid)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    pid = int(done.stdout)
    state = Path(f"/proc/{pid}/stat")
    until(lambda: not state.exists() or state.read_text().split()[2] == "Z")


def test_a_page_that_shows_the_use_of_memory_gets_it(kernel) -> None:
    kernel.run("print(1)")
    found = kernel.reply(kernel.send("usage_request", {}, "control"), channel="control")
    assert found["pid"] == kernel.pid
    assert found["kernel_memory"] > 1 << 20
    assert found["cpu_count"] >= 1
