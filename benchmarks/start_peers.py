"""Other sandboxes that run one program: found on PATH, or installed from the registries into their own folder.

Each is tried once first; one that does not work here is listed with the reason.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SCRATCH = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "sandbox-kernel" / "peer-sandboxes"
_READABLE = ("/usr", "/lib", "/lib64", "/bin", "/etc", sys.prefix, sys.base_prefix)
_INSTALL_SECONDS = 600

Case = Callable[[], object]


@dataclass(frozen=True)
class Command:
    """A peer that is a program."""

    argv: list[str]
    cwd: str | None = None

    def __call__(self) -> None:
        """Run it to its end."""
        subprocess.run(self.argv, check=True, capture_output=True, cwd=self.cwd)


@dataclass(frozen=True)
class Call:
    """A peer that is a function of a library."""

    function: Callable[[], object]

    def __call__(self) -> None:
        """Call it; it waits for the end of the program."""
        self.function()


@dataclass(frozen=True)
class Peers:
    """The peers that work here, by name and version, and the others with the reason."""

    cases: dict[str, Case]
    absent: tuple[str, ...]
    #: The names for ``one_peer``, by those of the cases.
    names: dict[str, str] = field(default_factory=dict)


def find_peers(code: str, *, install: bool = True) -> Peers:
    """Find every peer that runs ``python -c code`` here."""
    cases: dict[str, Case] = {}
    names: dict[str, str] = {}
    absent: list[str] = []
    for name, make in _makers().items():
        try:
            label, case = make([sys.executable, "-c", code], install)
            case()
        except Exception as error:  # any exception of a peer is printed as the reason
            absent.append(f"{name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        else:
            cases[label] = case
            names[label] = name
    return Peers(cases, tuple(absent), names)


def one_peer(name: str, code: str) -> Case:
    """Return a peer that ``find_peers`` has found, for another program; it is not tried first."""
    return _makers()[name]([sys.executable, "-c", code], False)[1]


def _makers() -> dict[str, Callable[[list[str], bool], tuple[str, Case]]]:
    return {"bwrap": _bwrap, "firejail": _firejail, "sandlock": _sandlock, "nono": _nono, "srt": _srt}


def _program(name: str, remedy: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise LookupError(f"not on PATH; {remedy}")
    return found


def _bwrap(program: list[str], install: bool) -> tuple[str, Case]:
    bwrap = _program("bwrap", "apt-get install bubblewrap")
    walls = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent"]
    version = subprocess.run([bwrap, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return f"plain bwrap --unshare-all {version}", Command([bwrap, *walls, "--", *program])


def _firejail(program: list[str], install: bool) -> tuple[str, Case]:
    firejail = _program("firejail", "apt-get install firejail")
    version = subprocess.run([firejail, "--version"], capture_output=True, text=True, check=True).stdout.split()
    return f"firejail {version[2]}", Command([firejail, "--quiet", "--net=none", "--noprofile", "--", *program])


def _fetched(package: str, install: bool) -> None:
    """Install a package into its own folder; packages of this environment are used first."""
    folder = SCRATCH / package
    if not folder.is_dir():
        if not install:
            raise LookupError("it is not installed; run without --no-install")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), package]
        subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    sys.path.append(str(folder))


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def _sandlock(program: list[str], install: bool) -> tuple[str, Case]:
    _fetched("sandlock", install)
    import sandlock

    readable = [path for path in _READABLE if os.path.exists(path)]

    def case() -> None:
        # A new one for each run: one sandbox serves one caller at a time.
        result = sandlock.Sandbox(fs_readable=readable, clean_env=True).run(program)
        if not result.success:
            raise RuntimeError(f"it failed: {result.stderr!r}")

    return f"sandlock {_version('sandlock')}", Call(case)


def _nono(program: list[str], install: bool) -> tuple[str, Case]:
    _fetched("nono-py", install)
    import nono_py

    walls = nono_py.CapabilitySet()
    for path in _READABLE:
        if os.path.exists(path):
            walls.allow_path(path, nono_py.AccessMode.READ)
    walls.block_network()

    def case() -> None:
        result = nono_py.sandboxed_exec(walls, program)
        if result.exit_code:
            raise RuntimeError(f"it failed: {result.stderr!r}")

    return f"nono-py {_version('nono-py')}", Call(case)


def _srt(program: list[str], install: bool) -> tuple[str, Case]:
    folder = SCRATCH / "srt"
    start = folder / "node_modules" / ".bin" / "srt"
    if not start.exists():
        if not install:
            raise LookupError("it is not installed; run without --no-install")
        npm = _program("npm", "apt-get install npm")
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--silent", "--prefix", str(folder), "@anthropic-ai/sandbox-runtime"]
        subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    for needed in ("socat", "rg"):
        _program(needed, f"{needed} is needed by it: apt-get install socat ripgrep")
    place = tempfile.mkdtemp(prefix="srt-")  # it leaves files where it runs
    version = subprocess.run([start, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"@anthropic-ai/sandbox-runtime {version}", Command([str(start), "-c", shlex.join(program)], cwd=place)
