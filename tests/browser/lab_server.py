"""One JupyterLab server for the browser tests: private folders, a free port, this tree's extension and kernel."""

import json
import os
import queue
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
START_SECONDS = 180
#: The name of this environment's ipykernel in a jail.
WRAPPED = "wrapped-python"
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/lab")

#: Nothing that asks, advertises or reaches for the network while a test looks at the page.
_QUIET_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "fetchNews": "false"},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}


@dataclass(frozen=True)
class LabServer:
    """Where the server listens and the folder whose notebooks it shows."""

    url: str
    token: str
    folder: Path

    def write_notebook(self, name: str, notebook: Mapping[str, object]) -> Path:
        """Put a notebook where ``lab/tree/<name>`` finds it."""
        path = self.folder / name
        path.write_text(json.dumps(notebook))
        return path


@contextmanager
def running_lab(home: Path) -> Iterator[LabServer]:
    """Start JupyterLab with all its state beneath ``home``; end it, and with it its kernels, on the way out."""
    folder = home / "notebooks"
    folder.mkdir()
    token = secrets.token_hex(16)
    process = subprocess.Popen(
        _command(token),
        cwd=folder,
        env=_environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield LabServer(_address(process), token, folder)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _command(token: str) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"),
        *("--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--IdentityProvider.token={token}"),
        *("--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.extension_manager=readonly"),
        "--JupyterNotebookApp.expose_app_in_browser=True",  # Notebook 7, where it is installed, is on the same server
    ]


def _environment(home: Path) -> dict[str, str]:
    share, config = home / "share", home / "config"
    # JUPYTER_PATH is searched before the environment's own share/jupyter, so an installed copy never shadows this tree.
    shutil.copytree(REPOSITORY / "labextension", share / "labextensions" / "sandbox-kernel")
    if (REPOSITORY / "kernelspec").is_dir():
        shutil.copytree(REPOSITORY / "kernelspec", share / "kernels", dirs_exist_ok=True)
        _add_kernel(share / "kernels", "Loopback", "tests.browser.loopback_kernel")
        _add_kernel(share / "kernels", "Landlock", "tests.browser.panel.landlock_kernel")
        for lines in ("ask", "locked"):
            _add_kernel(share / "kernels", lines.capitalize(), "sandbox_kernel", SANDBOX_KERNEL_LINES=lines)
    shutil.copytree(REPOSITORY / "jupyter-config", config / "jupyter_server_config.d")
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(_QUIET_SETTINGS))
    environment = {
        **os.environ,
        "JUPYTER_PATH": str(share),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONPATH": str(REPOSITORY),
        "XDG_STATE_HOME": str(home / "state"),
        # Cells of these tests are the project's own; panel/test_rights.py has kernels of the other settings.
        "SANDBOX_KERNEL_LINES": "all",
        # Not those of a page: programs that use up their memory must not use a quarter of this machine's.
        "SANDBOX_KERNEL_OPTIONS": "--timeout=30s --memory=512M",
    }
    (home / "state").mkdir(mode=0o700)
    wrap = [sys.executable, "-m", "sandbox_kernel", "wrap", "python3", "--name", WRAPPED]
    subprocess.run(wrap, env=environment, check=True, stdout=subprocess.DEVNULL)
    return environment


def _add_kernel(kernels: Path, shown: str, module: str, **environment: str) -> None:
    """Add a Sandbox kernel of the tests: its cells may reach listeners of a test, run behind Landlock, or ask."""
    name = f"sandbox-{shown.lower()}"
    spec = json.loads((kernels / "sandbox" / "kernel.json").read_text())
    spec["argv"] = [sys.executable, "-m", module, *spec["argv"][-2:]]
    spec["display_name"], spec["env"] = shown, environment
    (kernels / name).mkdir()
    (kernels / name / "kernel.json").write_text(json.dumps(spec))


def _address(process: subprocess.Popen[str]) -> str:
    """The address from the server's own log; the log is read on afterwards so that the pipe never fills."""
    found: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    log: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            log.append(line)
            if match := _ADDRESS.search(line):
                found.put(match[1])
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        address = found.get(timeout=START_SECONDS)
    except queue.Empty:
        address = None
    if address is None or not _listens(process, address):
        raise RuntimeError(f"JupyterLab did not start within {START_SECONDS} s:\n{''.join(log)}")
    return address


def _listens(process: subprocess.Popen[str], address: str) -> bool:
    """Wait until the server takes connections: it says its address a moment before."""
    host, port = address.removeprefix("http://").split(":")
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False
