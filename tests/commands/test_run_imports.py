"""``sandbox-kernel run`` starts quickly: it imports what one run needs, and leaves as soon as the output is out."""

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


def entered(before: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Enter the command line in a process of its own, behind code of the test."""
    return subprocess.run(
        [sys.executable, "-c", f"from sandbox_kernel import cli\n{before}\ncli.enter()", *words],
        capture_output=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_the_program_leaves_when_its_output_is_out_and_keeps_its_exit_code() -> None:
    before = (
        "import atexit\nclass Late:\n    def __del__(self): print('taken apart')\n"
        "late = Late()\natexit.register(print, 'left in order')"
    )
    done = entered(before, "run", "-q", "-c", "print('out', flush=False); raise SystemExit(7)")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\nleft in order\n", b"")


def test_a_thread_that_still_works_is_waited_for() -> None:
    before = (
        "import threading\nmain = threading.main_thread()\n"
        "threading.Thread(target=lambda: (main.join(), print('done'))).start()"
    )
    assert entered(before, "--version").stdout.endswith(b"done\n")
