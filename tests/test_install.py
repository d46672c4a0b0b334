"""A wheel of this package, installed into an empty environment: its size, and a first run by each door of the base."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sandbox_kernel.errors import install_line

REPOSITORY = Path(__file__).resolve().parent.parent
#: The most megabytes of a plain install, with pip and Python's own part of the environment.
MOST_MB = 200
PATIENCE_S = 300

_KERNEL = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="sandbox", startup_timeout=120)
told = []
try:
    client.execute_interactive("print(6 * 7)", timeout=120, output_hook=lambda message: told.append(message))
    client.execute_interactive("%%sandbox javascript\\n1", timeout=120, output_hook=lambda message: told.append(message))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
print("".join(str(message["content"].get(part, "")) for message in told for part in ("text", "evalue")))
"""


def run(*argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment of its own, away from the checkout."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SANDBOX", "VIRTUAL"))}
    return subprocess.run(
        [str(word) for word in argv], env={**own, **env}, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S
    )


def good(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command printed; it must have ended well."""
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    good(run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, REPOSITORY))
    (made,) = folder.glob("*.whl")
    return made


def megabytes(folder: Path) -> float:
    """Return the space on disk below a folder; a file with several names counts once."""
    found = [path.lstat() for path in folder.rglob("*")]
    return sum({(one.st_dev, one.st_ino): one.st_blocks * 512 for one in found}.values()) / 1e6


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S * 2)
def test_a_plain_install_is_small_and_its_first_runs_work(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "environment"
    good(run(sys.executable, "-m", "venv", place))
    python, command = place / "bin" / "python", place / "bin" / "sandbox-kernel"
    good(run(python, "-m", "pip", "install", "-q", "-c", REPOSITORY / "constraints.txt", wheel))
    assert megabytes(place) < MOST_MB
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    assert good(run(command, "run", "-c", "print(6 * 7)", **home)) == "42\n"
    missing = run(command, "run", "-l", "zig", "-c", "x", **home)
    assert missing.returncode != 0 and install_line("c") in missing.stderr
    told = good(run(python, "-c", _KERNEL, **home))
    assert "42\n" in told and "ipykernel" not in told


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S * 2)
def test_uv_installs_the_command_into_an_empty_home(wheel: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "UV_PYTHON_DOWNLOADS": "never"}
    uv = Path(sys.executable).parent / "uv"
    good(run(uv, "tool", "install", "--python", sys.executable, "-c", REPOSITORY / "constraints.txt", wheel, **home))
    command = tmp_path / ".local" / "bin" / "sandbox-kernel"
    assert good(run(command, "run", "-c", "print(6 * 7)", **home)) == "42\n"
    assert megabytes(tmp_path / ".local") < MOST_MB


def test_every_part_that_a_message_names_can_be_installed() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = "\n".join(path.read_text() for path in (REPOSITORY / "sandbox_kernel").rglob("*.py"))
    named = {part.split(")", 1)[0].strip("\"'") for part in sources.split("install_line(")[1:]} - {"extra: str"}
    named |= set(re.findall(r"sandbox-kernel\[([\w-]+)\]", sources))  # what runs inside imports nothing of the host
    assert {"debugger", "interactive"} <= named
    assert named <= set(extras)
