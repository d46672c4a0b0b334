"""A real kernel process from this source tree, and a client that matches every message to its request."""

import os
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def kernelspec(tmp_path_factory):
    """Jupyter finds the kernelspec of this tree, and the kernel imports the package of this tree.

    The cells of these tests are the project's own: their lines give rights (``notebook/options`` tests the other settings).
    """
    share = tmp_path_factory.mktemp("jupyter")
    (share / "kernels").mkdir()
    (share / "kernels" / "sandbox").symlink_to(ROOT / "kernelspec" / "sandbox")
    patch = pytest.MonkeyPatch()
    patch.setenv("JUPYTER_PATH", str(share))
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    patch.setenv("IPYTHONDIR", str(share / "ipython"))
    patch.setenv("SANDBOX_KERNEL_LINES", "all")
    yield share
    patch.undo()


class Client:
    """One kernel and one client; replies and outputs are matched by the id of their request."""

    def __init__(self, name="sandbox", env=None):
        from jupyter_client.manager import KernelManager

        self.km = KernelManager(kernel_name=name)
        self.km.start_kernel(**({"env": {**os.environ, **env}} if env else {}))
        self.kc = self.km.client()
        self.kc.start_channels()
        self.kc.wait_for_ready(timeout=60)

    @property
    def pid(self):
        return self.km.provisioner.process.pid

    def reply(self, request, timeout=100, channel="shell"):
        """The reply to a request, whatever else arrives before it."""
        end = time.monotonic() + timeout
        while True:
            message = getattr(self.kc, f"get_{channel}_msg")(timeout=max(0.01, end - time.monotonic()))
            if message["parent_header"].get("msg_id") == request:
                return message["content"]

    def outputs(self, request, timeout=100):
        """What a request published, as (type, content), up to its idle status."""
        found = []
        while True:
            message = self.kc.get_iopub_msg(timeout=timeout)
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle":
                    return found
                continue
            found.append((message["msg_type"], message["content"]))

    def run(self, code, timeout=100, **options):
        """Execute and return (reply, outputs) without the echo of the input."""
        options.setdefault("allow_stdin", False)
        request = self.kc.execute(code, **options)
        outputs = self.outputs(request, timeout)
        return self.reply(request), [(kind, content) for kind, content in outputs if kind != "execute_input"]

    def text(self, code, name="stdout", **options):
        """The text of one stream."""
        return "".join(c["text"] for kind, c in self.run(code, **options)[1] if kind == "stream" and c["name"] == name)

    def send(self, kind, content, channel="shell", **header):
        """Send any message; returns its id."""
        message = self.kc.session.msg(kind, content)
        message["header"].update(header)
        getattr(self.kc, f"{channel}_channel").send(message)
        return message["header"]["msg_id"]

    def wait_for_output(self, request, text, timeout=100):
        """Block until a stream of a request has shown a text."""
        seen = ""
        while text not in seen:
            message = self.kc.get_iopub_msg(timeout=timeout)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "stream":
                seen += message["content"]["text"]
        return seen

    def descendants(self):
        """Every living process below the kernel."""
        return psutil.Process(self.pid).children(recursive=True)

    def close(self):
        self.kc.stop_channels()
        if self.km.has_kernel:
            self.km.shutdown_kernel(now=True)
        self.km.cleanup_resources()


@pytest.fixture(scope="session")
def client_class(kernelspec):
    return Client


@pytest.fixture(scope="module")
def kernel():
    client = Client()
    yield client
    client.close()


@pytest.fixture
def fresh_kernel():
    client = Client()
    yield client
    client.close()


@pytest.fixture
def start_kernel():
    """Start kernels of any name; all are ended after the test."""
    clients = []

    def start(*args, **kwargs):
        clients.append(Client(*args, **kwargs))
        return clients[-1]

    yield start
    for client in clients:
        client.close()
