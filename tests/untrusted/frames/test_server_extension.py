"""The outer document of frames, served by Jupyter's server."""

import importlib.util
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.untrusted.frames.document import outer_document, policy
from sandbox_kernel.untrusted.frames.server_extension import _jupyter_server_extension_points
from tests.conftest import need

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    need(importlib.util.find_spec("jupyterlab"), "jupyterlab is not installed")
    from tests.browser.lab_server import running_lab

    with running_lab(tmp_path) as server:
        yield server.url


@pytest.mark.slow
def test_the_document_is_served_with_headers_that_close_every_connection(address: str) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{address}/sandbox-kernel/frame?1", timeout=60) as answer:
        assert answer.read().decode() == outer_document()
        assert answer.headers["Connection-Allowlist"] == "()"
        rules = answer.headers.get_all("Content-Security-Policy")
    assert rules == [f"{policy()}; sandbox allow-scripts; frame-ancestors 'self'"]


def test_the_package_names_the_extension_that_it_switches_on() -> None:
    config = json.loads((ROOT / "jupyter-config" / "sandbox-kernel.json").read_text())
    named = [point["module"] for point in _jupyter_server_extension_points()]
    assert list(config["ServerApp"]["jpserver_extensions"]) == named
