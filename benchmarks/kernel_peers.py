"""The kernels to compare: ours, ipykernel, and those that the package registry has for this platform.

Each peer is installed into its own virtual environment, outside of the repository. A kernel that cannot be installed is
listed with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DEFAULT_SCRATCH = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "sandbox-kernel" / "peer-kernels"
_INSTALL_SECONDS = 900
#: A program for a kernel's interpreter: prints its version, and whether its wheel contains the kernelspec.
_ABOUT = """
import sys
from importlib.metadata import files, version
spec = f"share/jupyter/kernels/{sys.argv[2]}/kernel.json"
print(version(sys.argv[1]), any(str(file).endswith(spec) for file in files(sys.argv[1]) or ()))
"""


@dataclass(frozen=True)
class Peer:
    """A kernel of the registry: what to install, and what its users must run before Jupyter lists it."""

    label: str
    requirement: str
    kernel_name: str
    language: str
    register: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be started: its kernelspec, and the environment that it needs."""

    label: str
    version: str
    language: str
    spec_folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    listed_after_install: bool = True

    @property
    def name(self) -> str:
        """The name by which Jupyter starts it: the folder of its kernelspec."""
        return self.spec_folder.name

    @property
    def spec(self) -> Mapping[str, object]:
        """Its kernel.json."""
        document: Mapping[str, object] = json.loads((self.spec_folder / "kernel.json").read_text())
        return document


@dataclass(frozen=True)
class Field:
    """The kernels that can be compared, ours first, and the others with the reason."""

    kernels: tuple[Kernel, ...]
    absent: tuple[str, ...]


PEERS = (
    Peer("xeus-python", "xeus-python", "xpython", "python"),
    Peer("deno", "deno", "deno", "typescript", ("{bin}/deno", "jupyter", "--install")),
    Peer("bash_kernel", "bash_kernel", "bash", "bash", ("{bin}/python", "-m", "bash_kernel.install", "--sys-prefix")),
)


def find_kernels(scratch: Path, *, install: bool) -> Field:
    """Find our kernel in this tree, ipykernel of this interpreter, and the peers; install peers if ``install``."""
    kernels: list[Kernel] = []
    absent: list[str] = []
    ours = REPOSITORY / "kernelspec" / "sandbox"
    if (ours / "kernel.json").is_file():
        kernels.append(_our_kernel(ours))
    else:
        absent.append("sandbox: this tree has no kernelspec/sandbox/kernel.json")
    kernels.append(ipykernel())
    for peer in PEERS:
        try:
            kernels.append(_peer_kernel(peer, scratch, install=install))
        except LookupError as error:
            absent.append(f"{peer.label}: {error}")
    return Field(tuple(kernels), tuple(absent))


def _our_kernel(spec_folder: Path) -> Kernel:
    """Return the kernel of this tree. Builds a wheel to see whether it contains the kernelspec."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
        (wheel,) = Path(folder).glob("*.whl")
        packed = zipfile.ZipFile(wheel).namelist()
    listed = any(name.endswith("share/jupyter/kernels/sandbox/kernel.json") for name in packed)
    number = wheel.name.split("-")[1]
    return Kernel("sandbox", number, "python", spec_folder, {"PYTHONPATH": str(REPOSITORY)}, listed)


def ipykernel() -> Kernel:
    """The ipykernel of the interpreter that runs this script."""
    about = subprocess.run(
        [sys.executable, "-c", _ABOUT, "ipykernel", "python3"], capture_output=True, text=True, check=True
    )
    number, listed = about.stdout.split()
    spec_folder = Path(sys.prefix) / "share" / "jupyter" / "kernels" / "python3"
    return Kernel("ipykernel", number, "python", spec_folder, {}, listed == "True")


def _peer_kernel(peer: Peer, scratch: Path, *, install: bool) -> Kernel:
    folder = scratch / peer.label
    if install and _spec_folder(peer, folder) is None:
        _install(peer, folder)
    found = _spec_folder(peer, folder)
    if found is None:
        raise LookupError("it is not installed; run without --no-install" if not install else "it has no kernelspec")
    told = _run([str(folder / "bin" / "python"), "-c", _ABOUT, peer.requirement, peer.kernel_name], folder)
    number, listed = told.split()
    return Kernel(peer.label, number, peer.language, found, _environment(folder), listed == "True")


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of a peer: its programs first on PATH, and its own home, because deno writes there."""
    return {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "HOME": str(folder / "home"),
        "DENO_NO_UPDATE_CHECK": "1",
        "PYTHONPATH": "",
    }


def _spec_folder(peer: Peer, folder: Path) -> Path | None:
    places = (folder / "share" / "jupyter", folder / "home" / ".local" / "share" / "jupyter")
    found = (place / "kernels" / peer.kernel_name for place in places)
    return next((spec for spec in found if (spec / "kernel.json").is_file()), None)


def _install(peer: Peer, folder: Path) -> None:
    (folder / "home").mkdir(parents=True, exist_ok=True)
    venv.create(folder, with_pip=True)
    _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", peer.requirement], folder, keep_home=True)
    if _spec_folder(peer, folder) is None:
        _run([part.format(bin=folder / "bin") for part in peer.register], folder)


def _run(command: list[str], folder: Path, *, keep_home: bool = False) -> str:
    """Run a step of an installation; a failure is the reason why a kernel is left out."""
    env = {**os.environ, **_environment(folder)}
    if keep_home:  # pip is configured beneath the real one
        env["HOME"] = os.environ.get("HOME", env["HOME"])
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise LookupError((errors or done.stderr.splitlines() or ["failed without a word"])[-1].removeprefix("ERROR: "))
    return done.stdout
