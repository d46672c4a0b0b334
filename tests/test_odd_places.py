"""The package, its environment and its temporary files may lie anywhere: each test is a copy somewhere else.

A copy is the package, a virtual environment and a name for both. A process of its own runs real sandboxes from there.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import sandbox_kernel
from sandbox_kernel import EnforcerUnavailable
from sandbox_kernel.jail.enforcer import get_enforcer

SOURCE = Path(sandbox_kernel.__file__).parent.parent
ROOT = os.geteuid() == 0

#: A run, a second one from a template, a session with a rollback, and a program that is missing; in each tier.
TIERS = """
import json, os, sys
import sandbox_kernel
from sandbox_kernel import CommandNotFound, ExecRequest, Language, ProcessBackend, ProcessConfig, Sandbox
from sandbox_kernel.session.open_session import open_session

said = {"package": sandbox_kernel.__file__, "python": sys.executable}
for tier in sys.argv[1:]:
    backend = ProcessBackend(ProcessConfig(), enforcer=tier)
    def run(language, code):
        result = backend.run(ExecRequest(language=language, code=code, timeout=60))
        return result.stdout + result.stderr
    said[tier] = [run(Language.PYTHON, "import ctypes, sys; print(sys.executable)") for _ in range(3)]
    said[tier].append(run(Language.COMMAND, "command -v python3; echo $0 > /dev/null; touch new && ls new"))
    # Not Python: its sessions need IPython, which the copy's own environment lacks.
    with open_session(backend, "command", memory_mb=256) as session:
        session.run("kept=14")
        late = session.run("kept=15; while :; do :; done", timeout=1)
        said[tier] += [late.status.value, session.run("echo $kept").stdout]
with Sandbox() as box:
    try: box.exec("frobnicate")
    except CommandNotFound: said["exec"] = "not found"
print(json.dumps(said))
"""

#: The kernel, started by Jupyter from the kernelspec that ``install`` writes; then the whole report.
KERNEL = """
import sys
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from sandbox_kernel import Sandbox
from sandbox_kernel.notebook.kernelspec import install

folder = install("sandbox", "Sandbox", sys.argv[1])
specs = KernelSpecManager(kernel_dirs=[str(folder.parent)])
manager = KernelManager(kernel_name="sandbox", kernel_spec_manager=specs)
manager.start_kernel()
client = manager.client()
client.start_channels()
try:
    client.wait_for_ready(timeout=60)
    answers = []
    cell = "%%sandbox command\\necho $((6 * 7))"
    client.execute_interactive(cell, timeout=60, output_hook=lambda message: answers.append(message["content"]))
    print("".join(content["text"] for content in answers if content.get("name") == "stdout"), end="")
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
with Sandbox() as box:
    box.report(fresh=True).require("files", "processes", "network")
print("the report holds")
"""


@dataclass(frozen=True)
class Copy:
    """A place with a package and the interpreter that imports it."""

    place: Path
    python: Path
    env: dict[str, str] = field(default_factory=dict)

    def run(self, code: str, *args: str, before: tuple[str, ...] = ()) -> str:
        """What a program of this copy printed; it starts in the copy's own folder."""
        command = [*before, str(self.python), "-c", code, *args]
        env = {**os.environ, "XDG_CACHE_HOME": str(self.place / "cache"), **self.env}
        done = subprocess.run(command, cwd=self.place, env=env, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout


def make_copy(place: Path, venv: Path | None = None) -> Copy:
    """The package at ``place``; its environment there too, or where ``venv`` says, with the packages that we have."""
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("sandbox_kernel", "kernelspec"):
        shutil.copytree(SOURCE / part, place / part, ignore=ignored)
    venv = venv or place / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=60)
    packages = next(venv.glob("lib/python*/site-packages"))
    more = [str(place), *(path for path in sys.path if path.endswith("-packages"))]
    # A line that begins with import is executed; plain lines could not hold every name.
    (packages / "copy.pth").write_text(f"import sys; sys.path[:] += {more!a}\n")
    return Copy(place, venv / "bin" / "python")


@pytest.fixture
def below_tmp() -> Iterator[Path]:
    """A folder below /tmp, where every sandbox has a /tmp of its own, that strangers may enter."""
    folder = Path(tempfile.mkdtemp(prefix="sk-odd-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=True)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def tiers() -> tuple[str, ...]:
    found = []
    for name in ("bubblewrap", "landlock"):
        try:
            found.append(get_enforcer(name).name)
        except EnforcerUnavailable:
            continue
    if not found:
        pytest.skip("this machine has no walls")
    return tuple(found)


def check(copy: Copy, tiers: tuple[str, ...], *, before: tuple[str, ...] = ()) -> None:
    """Every tier runs programs with the copy's own interpreter, and a session keeps its state."""
    said = json.loads(copy.run(TIERS, *tiers, before=before))
    assert said.pop("package").startswith(str(copy.place))
    python = said.pop("python")
    assert python == str(copy.python)
    assert said.pop("exec") == "not found"
    for tier in tiers:
        *runs, command, late, kept = said[tier]
        assert runs == [f"{python}\n"] * 3, tier
        assert command == f"{python}3\nnew\n", tier
        assert (late, kept) == ("timeout", "14\n"), tier


NAMES = {
    "spaces and letters": "with space/ünï 漢字",
    "signs": "a#b $HOME 'q' \"q\" `q` %s {x} *[a] \\n;&|",
    "new line": "one\ntwo",
    "long": "/".join(["n" * 60] * 4),
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.slow
def test_sandboxes_run_from_a_folder_with_this_name(name: str, below_tmp: Path, tiers: tuple[str, ...]) -> None:
    check(make_copy(below_tmp / name), tiers)


@pytest.mark.slow
def test_a_package_in_a_folder_with_colons_runs_with_an_environment_elsewhere(
    below_tmp: Path, tiers: tuple[str, ...]
) -> None:
    """A virtual environment cannot have colons in its path, for it stands in PATH; the package can."""
    check(make_copy(below_tmp / "a:b", venv=below_tmp / "env"), tiers)


@pytest.mark.slow
def test_the_kernel_starts_and_the_report_holds_below_tmp_in_a_folder_with_spaces(
    below_tmp: Path, tiers: tuple[str, ...]
) -> None:
    copy = make_copy(below_tmp / "with space" / "ünï")
    assert copy.run(KERNEL, str(below_tmp / "jupyter here")) == "42\nthe report holds\n"


@pytest.mark.slow
def test_a_link_to_the_package_and_its_environment_is_as_good(below_tmp: Path, tiers: tuple[str, ...]) -> None:
    real = make_copy(below_tmp / "real")
    (below_tmp / "link").symlink_to(real.place)
    copy = Copy(below_tmp / "link", below_tmp / "link" / "env" / "bin" / "python")
    said = json.loads(copy.run(TIERS, *tiers))
    for tier in tiers:
        assert said[tier][:3] == [f"{copy.python}\n"] * 3


@pytest.mark.slow
def test_a_checkout_that_cannot_be_written_runs(below_tmp: Path, tiers: tuple[str, ...]) -> None:
    copy = make_copy(below_tmp / "clone", venv=below_tmp / "env")
    (copy.place / "cache").mkdir()
    if ROOT:
        # Modes do not stop root; a mount of its own does.
        script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
        check(copy, tiers, before=("unshare", "-m", "sh", "-c", script, str(copy.place)))
    else:
        subprocess.run(["chmod", "-R", "a-w", str(copy.place)], check=True)
        check(copy, tiers)
    assert not list(copy.place.rglob("__pycache__"))


@pytest.mark.parametrize("mask", [0o077, 0o027])
@pytest.mark.slow
def test_a_copy_that_is_closed_to_strangers_runs_behind_the_same_walls(
    mask: int, below_tmp: Path, tiers: tuple[str, ...]
) -> None:
    """Root may make it with this umask; the user that a sandbox of root runs as must read it all the same."""
    before = os.umask(mask)
    try:
        copy = make_copy(below_tmp / "clone")
        # copytree keeps the modes that it finds
        subprocess.run(["chmod", "-R", f"go-{'rwx' if mask == 0o077 else 'w'},o-rwx", str(below_tmp)], check=True)
        check(copy, tiers)
    finally:
        os.umask(before)


@pytest.mark.slow
def test_temporary_files_may_lie_deeper_than_a_socket_has_room_for(below_tmp: Path, tiers: tuple[str, ...]) -> None:
    copy = make_copy(below_tmp / "clone")
    deep = below_tmp / "/".join(["t" * 70] * 3)
    deep.mkdir(parents=True)
    copy = Copy(copy.place, copy.python, {"TMPDIR": str(deep)})
    assert copy.run(KERNEL, str(below_tmp / "jupyter")) == "42\nthe report holds\n"
