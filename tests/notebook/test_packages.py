"""``%sandbox install`` and ``%pip install``: pip in a jail of its own, packages that a notebook's sessions are shown."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.notebook import packages as module
from sandbox_kernel.notebook.line_commands import rights_rows
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.packages import Packages, wanted
from sandbox_kernel.workspace.kept_work import KeptWork
from tests.loopback_server import QuietHandler, serving
from tests.notebook.test_here import Notebook, Page
from tests.package_index import PACKAGE, package_index

#: Programs inside ask the proxy for it, which they do not for 127.0.0.1.
HOST = "127.0.0.2"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SANDBOX_KERNEL_LINES", "all")
    with package_index(address=HOST) as (_, port, paths):
        monkeypatch.setenv("PIP_INDEX_URL", f"http://{HOST}:{port}/simple")
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        yield paths


def test_a_running_session_and_later_kernels_of_the_notebook_have_an_installed_package(asked: list[str]) -> None:
    one = Notebook(KeptWork.of("/a/notebook.ipynb"))
    one.run("kept = 41")
    failed = one.run(f"%pip install {PACKAGE}")
    assert "UsageError" in failed and f"%sandbox install {PACKAGE}" in failed
    assert not asked
    assert f"Installed for this notebook: {PACKAGE} 1.0." in one.run(f"%sandbox install {PACKAGE}")
    assert any(path.endswith(".whl") for path in asked)
    assert one.run(f"%pip install {PACKAGE}\nimport {PACKAGE}\nprint({PACKAGE}.answer + kept - 41)") == (
        f"already there: {PACKAGE}\n42\n"
    )
    assert "Read-only" in one.run(f"open({PACKAGE}.__file__, 'a')")
    assert ("packages", f"{PACKAGE} 1.0") in rights_rows(one.state.defaults)
    # No line takes it away again, and none that the user reads has its folder.
    one.run("%sandbox reset")
    assert one.run(f"print({PACKAGE}.answer, kept)") == "42 41\n"
    assert "sandbox-packages" not in one.run("%sandbox")
    one.run("open('left.txt', 'w').write('here')")
    one.state.sandboxes.close()
    assert one.state.sandboxes.kept is not None
    one.state.sandboxes.kept.close()
    two = Notebook(KeptWork.of("/a/notebook.ipynb"))
    try:
        assert two.run(f"import {PACKAGE}\nprint({PACKAGE}.answer, open('left.txt').read())") == "42 here\n"
    finally:
        two.state.sandboxes.close()


def test_what_cannot_be_installed_leaves_nothing_and_says_why(asked: list[str]) -> None:
    notebook = Notebook()
    try:
        assert "absent-thing was not installed" in (said := notebook.run("%sandbox install absent-thing"))
        assert "No matching distribution" in said
        for name in ("https://example.org/x.whl", "--pre", "./x", "a;b"):
            assert "takes names of packages" in notebook.run(f"%sandbox install '{name}'")
        assert notebook.state.packages.mounts == () and notebook.state.defaults.mounts == ()
    finally:
        notebook.state.sandboxes.close()


def test_packages_that_a_notebook_says_it_needs_are_offered_when_a_module_is_missing(
    asked: list[str], tmp_path: Path
) -> None:
    notebook = Notebook()
    try:
        assert "%sandbox install" not in notebook.run("import absent_module")
        (tmp_path / "requirements.txt").write_text("six>=1.16  # old\n\nidna\n")
        assert "%sandbox install six>=1.16 idna" in notebook.run("import absent_module")
        block = '# /// script\n# dependencies = [\n#   "rich<14",\n# ]\n# ///\n'
        assert "%sandbox install rich<14" in notebook.run(f"{block}import absent_module")
    finally:
        notebook.state.sandboxes.close()


@pytest.mark.parametrize("watched", [True, False])
def test_what_a_notebook_names_and_its_python_lacks_is_offered_once_at_its_start_to_a_person(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    (tmp_path / "requirements.txt").write_text(f"pytest\n{PACKAGE}>=1\n")
    monkeypatch.setattr(Page, "watched", lambda self: watched)
    notebook = Notebook()
    try:
        assert (f"%sandbox install '{PACKAGE}>=1'" in notebook.run("1")) is watched
        assert "%sandbox install" not in notebook.run("1")
        notebook.run(f"%sandbox install {PACKAGE}")
        assert notebook.state.packages.missing("", CellOptions()) is None
    finally:
        notebook.state.sandboxes.close()


def test_names_are_looked_for_in_a_bounded_part_of_a_cell_and_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop of the kernel does it, which also hears Stop."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many.txt").write_text("a\n" * 30_000)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    opened: list[str] = []
    monkeypatch.setattr(module, "inner_path", lambda path: opened.append(path) or path)
    lines = f"%pip install six{' -r many.txt' * 100}\n" * 10_000
    found = wanted(lines, _failed("UsageError"))
    assert found is not None and found.what == "six a" and len(opened) <= 20
    before = os.listdir("/proc/self/fd")
    assert wanted("%pip install -r .. -r /etc/hostname -r folder -r pipe", _failed("UsageError")) is None
    assert os.listdir("/proc/self/fd") == before
    block = "# /// script\n" * 1_000_000
    assert wanted(block, _failed("ModuleNotFoundError")) is None
    assert wanted(f"%pip install{' ' * 8_000_000}{'x' * 3000}", _failed("UsageError")) is None


def _failed(ename: str) -> Any:
    return SimpleNamespace(error=SimpleNamespace(ename=ename))


def test_a_locked_kernel_tells_no_names_of_a_file_and_no_kernel_those_of_a_hidden_one(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("token", ".env"):
        (tmp_path / name).write_text("ghp-of-mine\n")
    notebook = Notebook()
    try:
        assert "ghp-of-mine" in notebook.run("%pip install -r token")
        assert "ghp-of-mine" not in notebook.run("%pip install -r .env")
        monkeypatch.setenv("SANDBOX_KERNEL_LINES", "locked")
        assert "ghp-of-mine" not in notebook.run("%pip install -r token")
    finally:
        notebook.state.sandboxes.close()


def test_stop_ends_an_installation_and_nothing_of_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began, gone = threading.Event(), threading.Event()

    class NeverDone(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            began.set()
            self.rfile.read(1)
            gone.set()

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with serving(NeverDone, host=HOST) as port:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://{HOST}:{port}/simple")
        packages, stop = Packages(None), threading.Event()
        with ThreadPoolExecutor(1) as threads:
            work = threads.submit(packages.install, [PACKAGE], CellOptions(), stop)
            assert began.wait(120)
            stop.set()
            with pytest.raises(PolicyViolation, match="was not installed"):
                work.result(60)
        assert gone.wait(60) and packages.mounts == ()


@pytest.mark.parametrize(
    "line", ["-r other.txt", "https://x.test/a.whl", "./a", "a.tar.gz", "$(x)", "--index-url http://x six"]
)
def test_a_line_with_more_than_names_is_not_offered(line: str, asked: list[str]) -> None:
    notebook = Notebook()
    try:
        assert "if you know and trust it" not in notebook.run(f"%pip install {line}")
    finally:
        notebook.state.sandboxes.close()
