"""A kernel that dies, and the next kernel of the same notebook, as real processes."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest


@pytest.fixture
def kernels(start_kernel, tmp_path):
    """Starts kernels of one notebook."""

    def start(notebook="work.ipynb"):
        env = {"JPY_SESSION_NAME": str(tmp_path / notebook), "SANDBOX_KERNEL_CACHE": str(tmp_path / "cache")}
        return start_kernel(env=env)

    return start


def shown(client, code):
    """All text that a cell shows: its receipt too."""
    reply, outputs = client.run(code)
    assert reply["status"] == "ok", outputs
    return "\n".join(str(content.get("data", content.get("text"))) for _, content in outputs)


def wait_for_a_file(folder: Path) -> None:
    end = time.monotonic() + 60
    while not list(folder.rglob("last/python")):
        assert time.monotonic() < end, "nothing was saved"
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_the_kernel_after_a_killed_one_offers_its_last_state_and_goes_on_with_it(kernels, tmp_path):
    first = kernels()
    assert "Autosave is on" in shown(first, "%sandbox autosave 1s")
    shown(first, "x = [40]\ny = x\nopen('note.txt', 'w').write('kept')")
    wait_for_a_file(tmp_path / "cache")
    os.kill(first.pid, signal.SIGKILL)

    second = kernels()
    said = shown(second, "1 + 1")
    assert "%sandbox recover" in said and "state_offered" in said
    assert "%sandbox recover" not in shown(second, "1 + 2"), "it is said once"
    assert "2 variables stored" in shown(second, "%sandbox recover")
    assert "[40, 2] kept" in shown(second, "y.append(2)\nprint(x, open('note.txt').read())")


@pytest.mark.timeout(300)
def test_an_orderly_end_saves_what_the_last_cell_made(kernels):
    first = kernels()
    shown(first, "%sandbox autosave 1h")
    shown(first, "x = 41")
    first.km.shutdown_kernel()

    other = kernels("other.ipynb")
    assert "%sandbox recover" not in shown(other, "1"), "it belongs to another notebook"
    second = kernels()
    assert "%sandbox recover" in shown(second, "%sandbox"), "a cell without a program says it too"
    shown(second, "%sandbox autosave 1h")
    shown(second, "x = 'the state of the new kernel'")
    second.km.shutdown_kernel()

    third = kernels()
    shown(third, "%sandbox recover")
    assert "the new kernel" in shown(third, "print(x)")


@pytest.mark.timeout(300)
def test_a_save_that_was_interrupted_went_on_behind_the_next_cell(kernels, tmp_path, monkeypatch):
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
