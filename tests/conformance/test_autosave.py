"""A kernel that dies, and the next kernel of the same notebook, as real processes."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from jupyter_client import BlockingKernelClient

from tests.waiting import until


@pytest.fixture
def kernels(start_kernel, tmp_path):
    """Starts kernels of one notebook."""

    def start():
        env = {"JPY_SESSION_NAME": str(tmp_path / "work.ipynb"), "SANDBOX_KERNEL_CACHE": str(tmp_path / "cache")}
        return start_kernel(env=env)

    return start


def shown(client, code):
    """All text that a cell shows: its receipt too."""
    reply, outputs = client.run(code)
    assert reply["status"] == "ok", outputs
    return "\n".join(str(content.get("data", content.get("text"))) for _, content in outputs)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_the_kernel_after_a_killed_one_offers_its_last_state_and_goes_on_with_it(kernels, tmp_path):
    first = kernels()
    assert "Autosave is on" in shown(first, "%sandbox autosave 1s")
    shown(first, "x = [40]\ny = x\nopen('note.txt', 'w').write('kept')")
    until(lambda: list((tmp_path / "cache").rglob("last/python")))
    os.kill(first.pid, signal.SIGKILL)

    second = kernels()
    said = shown(second, "1 + 1")
    assert "%sandbox recover" in said and "state_offered" in said
    assert "%sandbox recover" not in shown(second, "1 + 2"), "it is said once"
    assert "2 variables stored" in shown(second, "%sandbox recover")
    assert "[40, 2] kept" in shown(second, "y.append(2)\nprint(x, open('note.txt').read())")

    (state,) = (tmp_path / "cache").rglob("last/python")
    state.with_name("python-other").write_bytes(state.read_bytes()[:-1])
    said = shown(second, "%sandbox recover")
    assert "Not recovered" in said and "cut or damaged" in said and "2 variables stored" in said
    assert "[40] kept" in shown(second, "print(x, open('note.txt').read())"), "one that is damaged takes none along"


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_an_orderly_end_saves_what_the_last_cell_made(kernels):
    first = kernels()
    shown(first, "%sandbox autosave 1h")
    shown(first, "x = 41")
    first.km.shutdown_kernel()

    second = kernels()
    assert "%sandbox recover" in shown(second, "%sandbox"), "a cell without a program says it too"
    shown(second, "%sandbox recover")
    assert "41" in shown(second, "print(x)")


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_save_that_was_interrupted_does_not_go_on_behind_the_next_cell(kernels, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kernel = kernels()
    shown(kernel, "import time\nclass Slow:\n    def __reduce__(self): time.sleep(600)\nslow, kept = Slow(), [1]")
    request = kernel.kc.execute("%sandbox save state")
    answered = threading.Event()

    def interrupt():
        while not answered.wait(0.5):
            kernel.reply(kernel.send("interrupt_request", {}, channel="control"), channel="control")

    again = threading.Thread(target=interrupt)
    again.start()
    reply = kernel.reply(request)
    answered.set()
    again.join()
    assert reply["ename"] == "KeyboardInterrupt", reply
    assert "nothing was saved" in "".join(reply["traceback"])
    assert "[1, 2]" in shown(kernel, "kept.append(2)\nprint(kept)")
    assert not (tmp_path / "state").exists()


@pytest.mark.timeout(300)
def test_the_last_minutes_of_a_kernel_outlive_its_killed_server(tmp_path):
    file, cache = tmp_path / "connection.json", tmp_path / "cache"
    program = (
        "import os, subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-m', 'sandbox_kernel', '-f', {str(file)!r}],\n"
        "    env={**os.environ, 'JPY_PARENT_PID': str(os.getpid())})\n"
        "time.sleep(600)\n"
    )
    env = {**os.environ, "JPY_SESSION_NAME": str(tmp_path / "n.ipynb"), "SANDBOX_KERNEL_CACHE": str(cache)}
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=env) as server:
        try:
            until(lambda: file.exists() and file.read_text().endswith("}"))
            client = BlockingKernelClient(connection_file=str(file))
            client.load_connection_file()
            client.start_channels()
            client.wait_for_ready(60)
            for code in ("%sandbox autosave 1h", "x = [41]"):
                client.execute_interactive(code, timeout=60)
            client.stop_channels()
        finally:
            server.kill()
    until(lambda: list(cache.rglob("last/python")))
