"""Files of a notebook after its kernel was restarted, killed or opened again, and where its folder is not told."""

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


@pytest.mark.slow
def test_a_restart_keeps_the_work_folder_and_says_so(client_class, state):
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


@pytest.mark.slow
def test_the_files_of_a_notebook_outlive_its_killed_kernel(client_class, state):
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


CHANGE = "open('data.csv', 'a').write('3\\n'); print(open('data.csv').read().split())"
LARGE = "open('large.bin', 'wb').write(bytes(20 << 20)); print('written')"


@pytest.mark.slow
def test_changes_to_the_users_folder_outlive_a_killed_kernel(client_class, state, monkeypatch):
    project = state / "project"
    project.mkdir()
    (project / "data.csv").write_text("1\n")
    env = {"JPY_SESSION_NAME": str(project / "a.ipynb"), "SANDBOX_KERNEL_OPTIONS": f"--here={project}"}
    client = client_class(env=env)
    try:
        assert client.text(CHANGE) == "['1', '3']\n"
        os.kill(client.pid, signal.SIGKILL)
    finally:
        client.close()
    client = client_class(env=env)
    try:
        _, outputs = client.run(CHANGE)
        assert ("stream", {"name": "stdout", "text": "['1', '3', '3']\n"}) in outputs
        assert f"1 change of this notebook's last kernel to {project} is there again" in receipt(outputs)
        assert (project / "data.csv").read_text() == "1\n"
        assert "1 change, written" in receipt(client.run("%sandbox apply")[1])
        assert (project / "data.csv").read_text() == "1\n3\n3\n"
    finally:
        client.close()
    for name in env:
        monkeypatch.delenv(name, raising=False)
    client = client_class(env={"SANDBOX_KERNEL_OPTIONS": f"--here={project}"})
    try:
        client.run(CHANGE)
        client.km.restart_kernel()
        client.kc.wait_for_ready(timeout=60)
        assert "['1', '3', '3', '3', '3']" in client.text(CHANGE)
    finally:
        client.close()


@pytest.mark.slow
def test_large_files_of_a_session_outlive_a_killed_kernel(client_class, state):
    env = {"JPY_SESSION_NAME": str(state / "a.ipynb")}
    client = client_class(env=env)
    try:
        assert client.text(LARGE) == "written\n"
        os.kill(client.pid, signal.SIGKILL)
    finally:
        client.close()
    client = client_class(env=env)
    try:
        _, outputs = client.run("import os; print(os.path.getsize('large.bin'))")
        assert ("stream", {"name": "stdout", "text": f"{20 << 20}\n"}) in outputs
        assert "1 file of this notebook's last kernel" in receipt(outputs)
        client.run("os.remove('large.bin')")
        client.km.restart_kernel()
        client.kc.wait_for_ready(timeout=60)
        assert client.text("import os; print(os.path.exists('large.bin'))") == "False\n"
    finally:
        client.close()


@pytest.fixture
def pathless_folder(tmp_path, monkeypatch):
    """A folder in which kernels are started by a front end that sets no ``JPY_SESSION_NAME``."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    project = tmp_path / "project"
    project.mkdir()
    (project / "rows.csv").write_text("a,b")
    monkeypatch.chdir(project)
    return project


def told(client, code):
    reply, outputs = client.run(code, stop_on_error=False)
    return reply["status"], str(outputs)


@pytest.mark.parametrize("name", ["sandbox", "python3"])
@pytest.mark.slow
def test_a_front_end_that_does_not_tell_the_path_gets_the_folder_of_the_notebook(start_kernel, pathless_folder, name):
    client = start_kernel(name)
    magic = ""
    if name == "python3":
        client.run("%load_ext sandbox_kernel")
        magic = "%%sandbox\n"
    # The hint names the line, and the line does what it says.
    status, shown = told(client, f"{magic}open('rows.csv')")
    assert status == "error"
    assert "rows.csv is beside the notebook" in shown
    assert "%sandbox restart --keep --here" in shown
    status, shown = told(client, "%sandbox restart --keep --here")
    assert status == "ok", shown
    status, shown = told(client, f"{magic}print(open('rows.csv').read()); open('made.txt', 'w').close()")
    assert (status, "a,b" in shown) == ("ok", True), shown
    assert os.listdir(pathless_folder) == ["rows.csv"]
    status, shown = told(client, "%sandbox apply")
    assert status == "ok", shown
    assert sorted(os.listdir(pathless_folder)) == ["made.txt", "rows.csv"]
