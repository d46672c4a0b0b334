"""Wrapped kernels of this machine, started by Jupyter's own manager, and a client that matches messages."""

import json
import os
import sys
from pathlib import Path

import pytest

from sandbox_kernel.cli import main
from tests.conformance.conftest import Client

ROOT = Path(__file__).resolve().parents[2]


class WrappedClient(Client):
    """A client of a wrapped kernel: ipykernel aborts a cell that comes within moments of a failed one, unless told not to."""

    def run(self, code, timeout=100, **options):
        return super().run(code, timeout, **{"stop_on_error": False, **options})


@pytest.fixture(scope="module", autouse=True)
def jupyter_folder(tmp_path_factory):
    """Jupyter's folders of this file: kernels that tests wrap go here."""
    share = tmp_path_factory.mktemp("jupyter")
    patch = pytest.MonkeyPatch()
    patch.setenv("JUPYTER_DATA_DIR", str(share))
    patch.setenv("JUPYTER_RUNTIME_DIR", str(share / "runtime"))
    patch.setenv("JUPYTER_CONFIG_DIR", str(share / "config"))
    patch.setenv("JUPYTER_PATH", "")
    patch.setenv("IPYTHONDIR", str(share / "ipython"))
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    yield share
    patch.undo()


IPYKERNEL = (sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")


@pytest.fixture(scope="module")
def spec(jupyter_folder):
    """Write a kernelspec, of an ipykernel unless its command is given; ``provisioned`` are settings of the provisioner."""

    def write(name, argv=IPYKERNEL, *, provisioned=None, **content):
        if provisioned is not None:
            settings = {"provisioner_name": "sandbox-provisioner", "config": provisioned}
            content["metadata"] = {"kernel_provisioner": settings}
        place = jupyter_folder / "kernels" / name
        place.mkdir(parents=True, exist_ok=True)
        made = {"argv": list(argv), "display_name": name, "language": "python", **content}
        (place / "kernel.json").write_text(json.dumps(made))
        return name

    return write


@pytest.fixture(scope="module")
def wrap(jupyter_folder):
    """Wrap a kernel with the real command; returns the name of the wrapped kernel."""

    def wrap_it(name: str, *options: str, as_name: str | None = None) -> str:
        made = as_name or f"sandbox-{name}"
        assert main(["wrap", name, "--name", made, *options]) == 0
        return made

    return wrap_it


@pytest.fixture(scope="module")
def kernel(wrap):
    """A wrapped ipykernel, shared by the tests of a file."""
    client = WrappedClient(wrap("python3"))
    yield client
    client.close()


@pytest.fixture
def start(wrap):
    """Start kernels by name; all are ended after the test."""
    clients = []

    def begin(*args, **kwargs):
        clients.append(WrappedClient(*args, **kwargs))
        return clients[-1]

    yield begin
    for client in clients:
        client.close()
