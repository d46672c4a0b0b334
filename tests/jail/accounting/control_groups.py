"""Real version 2 groups for tests: made below the root of the hierarchy, removed with everything in them."""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.accounting.cgroup_place import mounts, read_group

REPOSITORY = Path(__file__).resolve().parents[3]


def top() -> Path | None:
    """The root of the machine's version 2 hierarchy, where groups may be made in it."""
    found = mounts().get("")
    if found is None or not os.access(found[0], os.W_OK) or os.path.exists(f"{found[0]}/cgroup.type"):
        return None
    return Path(found[0])


def has_controllers() -> bool:
    """Whether memory and processes can be limited in version 2 here, and not in version 1."""
    where = top()
    return where is not None and {"memory", "pids"} <= read_group(str(where)).enabled


needs_v2 = pytest.mark.skipif(top() is None, reason="no version 2 group may be made at the root of its hierarchy")
needs_controllers = pytest.mark.skipif(
    not has_controllers(), reason="memory and pids are not controllers of version 2 here"
)


@contextlib.contextmanager
def new_group(parent: Path | None = None) -> Iterator[Path]:
    """A group for one test."""
    where = parent or top()
    assert where is not None
    folder = where / f"test-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        clear(folder)


def clear(folder: Path) -> None:
    """Kill everything in a group of a test and remove it."""
    (folder / "cgroup.kill").write_text("1")
    remove(folder)


def remove(folder: Path) -> None:
    """Remove a group whose processes end, and all below it."""
    deadline = time.monotonic() + 10
    for path, _, _ in os.walk(folder, topdown=False):
        while os.path.isdir(path):
            try:
                os.rmdir(path)
            except OSError:
                assert time.monotonic() < deadline, f"{path} cannot be removed"
                time.sleep(0.001)


def subgroups(folder: Path) -> list[str]:
    """The groups below one, at any depth, by their relative paths."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir())


def members(folder: Path) -> list[int]:
    """The processes directly in a group."""
    return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]


class Host:
    """A Python process that starts in a group and answers with JSON, one expression a line; ``uid`` as which user."""

    def __init__(self, group: Path, *, uid: int | None = None) -> None:
        # Everything is imported before it becomes another user, who may not be let to this Python.
        code = (
            "import json, os, subprocess, sys\n"
            f"sys.path.insert(0, {str(REPOSITORY)!r})\n"
            "try: import jeepney.io.blocking\n"
            "except ImportError: pass\n"
            "from sandbox_kernel.jail.accounting import cgroup_place, cgroups, meter\n"
            f"open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
            + (f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})\n" if uid is not None else "")
            + "names = dict(globals())\n"
            "print('null', flush=True)\n"
            "for line in sys.stdin:\n"
            "    exec(json.loads(line), names)\n"
            "    print(json.dumps(names.pop('answer', None)), flush=True)\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self.receive()

    def ask(self, code: str) -> object:
        """Run statements in it; what they assign to ``answer`` is returned."""
        self.send(code)
        return self.receive()

    def send(self, code: str) -> None:
        """Let it run statements while others do."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def receive(self) -> object:
        """Wait for its answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the host process ended with {self.process.wait()}"
        return json.loads(line)

    def place(self) -> str | None:
        """Let it find its place; None where there is none."""
        found = self.ask("found = cgroups.find_hierarchies()\nanswer = found and [found.version, found.memory]")
        if found is None:
            return None
        assert isinstance(found, list) and found[0] == 2
        return str(found[1])

    def group(self) -> str:
        """Which version 2 group it is in."""
        lines = Path(f"/proc/{self.pid}/cgroup").read_text().splitlines()
        return next(line[3:] for line in lines if line.startswith("0::"))

    def end(self) -> int:
        """Let it end as programs do."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait(30)
