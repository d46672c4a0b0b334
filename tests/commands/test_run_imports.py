"""``sandbox-kernel run`` starts quickly: it imports what one run needs, and leaves as soon as the output is out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Slow to import and not needed by a program that prints: event loops, servers, logs, pickles, random numbers, hashes.
_SLOW = {
    "asyncio", "concurrent.futures", "difflib", "email", "hashlib", "http", "jupyter_client", "IPython", "ipykernel",
    "logging", "multiprocessing", "pathlib", "pickle", "platform", "random", "secrets", "ssl", "tempfile", "traceback",
    "traitlets", "urllib", "zmq",
}  # fmt: skip
#: What a run needs of these rooms; of all other rooms it may import anything.
_PARTS = {
    "agent": set[str](), "report": set[str](), "session": set[str](), "untrusted": set[str](),
    "languages": {"python", "registry", "recipe", "compile_cache"},
    "net": {"egress"},
    "notebook": {"options"},
}  # fmt: skip


def _imported_by(*words: str) -> set[str]:
    code = (
        "import sys, sandbox_kernel.cli as cli\n"
        "cli.main(sys.argv[1:])\n"
        "print(*sys.modules, file=open(3, 'w'))"
    )  # fmt: skip
    told, give = os.pipe()
    done = subprocess.run(
        ["bash", "-c", f'exec "$0" "$@" 3>&{give}', sys.executable, "-c", code, *words],
        capture_output=True, timeout=60, check=True, pass_fds=[give], env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(give)
    assert done.stdout == b"1\n"
    with open(told) as file:
        return set(file.read().split())


def test_a_run_imports_no_module_that_it_does_not_need() -> None:
    imported = _imported_by("run", "-q", "-c", "print(1)")
    assert sorted(imported & _SLOW) == []
    for room, parts in _PARTS.items():
        found = {name.split(".")[2] for name in imported if name.startswith(f"sandbox_kernel.{room}.")}
        assert found <= parts, f"run imports {found - parts} of {room}"


def test_the_program_leaves_when_its_output_is_out_and_keeps_its_exit_code() -> None:
    code = (
        "import atexit, sys\n"
        "from sandbox_kernel import cli\n"
        "class Late:\n"
        "    def __del__(self): print('taken apart')\n"
        "late = Late()\n"
        "atexit.register(print, 'left in order')\n"
        "cli.enter()"
    )
    words = ["run", "-q", "-c", "print('out', flush=False); raise SystemExit(7)"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 7
    assert done.stdout == b"out\nleft in order\n"
    assert done.stderr == b""


def test_a_thread_that_still_works_is_waited_for() -> None:
    code = (
        "import threading\n"
        "from sandbox_kernel import cli\n"
        "main = threading.main_thread()\n"
        "threading.Thread(target=lambda: (main.join(), print('done'))).start()\n"
        "cli.enter()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.endswith(b"done\n")
