"""Files of the work folder after the kernel was restarted, was killed, or its notebook was opened again."""

import os
import signal

import pytest

WRITE = "import os; os.makedirs('out', exist_ok=True); open('out/a.txt', 'w').write('kept')"
READ = "print(open('out/a.txt').read())"


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    tmp_path.chmod(0o700)
    return tmp_path


def receipt(outputs):
    return "".join(str(content["data"].get("text/plain")) for kind, content in outputs if kind == "display_data")


def test_a_restart_deleted_the_work_folder_without_a_word(client_class, state):
    client = client_class()
    try:
        client.run(WRITE)
        client.km.restart_kernel()
        client.kc.wait_for_ready(timeout=60)
        _, outputs = client.run(READ)
        assert ("stream", {"name": "stdout", "text": "kept\n"}) in outputs
        assert "1 file of this notebook's last kernel is in the work folder: %sandbox files" in receipt(outputs)
        assert "last kernel" not in receipt(client.run(READ)[1]), "it is said once"
        assert "The work folder is empty" in receipt(client.run("%sandbox files --clear")[1])
        assert "FileNotFoundError" in str(client.run(READ))
        client.km.restart_kernel()
        client.kc.wait_for_ready(timeout=60)
        assert "FileNotFoundError" in str(client.run(READ))
        client.kc.shutdown()
        client.km.finish_shutdown()
    finally:
        client.close()
    assert list((state / "sandbox-kernel" / "work").iterdir()) == [], "a kernel that ends for good leaves nothing"


def test_a_killed_kernel_took_the_files_of_its_notebook_along(client_class, state):
    notebook = {"JPY_SESSION_NAME": str(state / "a.ipynb")}
    client = client_class(env=notebook)
    try:
        client.run(WRITE)
        os.kill(client.pid, signal.SIGKILL)
    finally:
        client.close()
    client = client_class(env=notebook)
    try:
        assert client.text(READ) == "kept\n"
    finally:
        client.close()
    other = client_class(env={**notebook, "SANDBOX_KERNEL_KEEP_FILES": "0"})
    try:
        assert "FileNotFoundError" in str(other.run(READ))
    finally:
        other.close()
