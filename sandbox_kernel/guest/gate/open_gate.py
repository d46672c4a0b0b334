"""The gate of a jail without namespaces (Landlock tier): the same gate, but not the init of a namespace.

When this gate ends, the kernel does not end its descendants, so the gate kills them itself, also when the host is gone.
It runs outside the walls, as a separate user if the host is root. Each step builds the walls around itself before it
becomes the program; if a wall cannot be built, the step ends, so no program ever runs without them.

Its arguments are SPEC-FD CONTROL-FD CHANNEL-FD [MODULE ...]; ``jail/rules/landlock.py`` writes the spec.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import marshal
import os
import stat
import sys
import time

from . import alive, gate, lockdown, steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


#: The signal that the kernel sends when the host is gone. The gate ignores the usual signals.
HOST_GONE = signal.SIGRTMIN + 7
#: After this time, processes that do not die are killed again less often.
_DEATH_S = 10.0


def children() -> List[int]:
    """Return the pids of our children, orphans included. The kernel does not reuse these until we reap them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # some kernels are built without this file
        return [pid for pid, seen in alive.all_processes().items() if seen.parent == os.getpid()]


def end_everything() -> None:
    """Kill all descendants until none is left, then exit: orphans become our children, so without one it is over."""
    deadline = time.monotonic() + _DEATH_S
    while True:
        # Stop all first: a stopped process cannot fork while the others are being killed.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in children():
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            os._exit(0)
        if time.monotonic() > deadline:
            time.sleep(0.05)


def tasks_of_user() -> int:
    """Return how many threads our user already has: RLIMIT_NPROC counts them together with the program's."""
    tasks = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/status") as file:
                    lines = dict(line.split(":", 1) for line in file if ":" in line)
            except OSError:
                continue
            if int(lines["Uid"].split()[0]) == os.getuid():
                tasks += int(lines["Threads"])
    return tasks


class StepWalls:
    """Builds the walls of one step; called in the child between the fork and the program."""

    def __init__(self, spec: Dict[str, Any]) -> None:
        self.spec = spec
        self.gate = os.getpid()
        self.most_tasks = tasks_of_user() + spec["task_room"] if spec["task_room"] else 0

    def __call__(self) -> None:
        """Build the walls. Every failure raises ``OSError``; the caller then ends the step."""
        lockdown.set_pdeathsig(signal.SIGKILL, parent=self.gate)
        if self.most_tasks:
            lockdown.set_rlimits({"NPROC": self.most_tasks})
        # Needed also without walls: we could not kill a set-uid program.
        lockdown.no_new_privs()
        if self.spec["landlock"] is not None:
            lockdown.drop_capabilities(self.spec["capabilities"])
            lockdown.landlock_restrict(self.spec["landlock"])
            for program in self.spec["seccomp"]:
                lockdown.load_seccomp(program)


def make_executable(cell: str, step: Dict[str, Any]) -> None:
    """Set the executable bit of a program that was compiled here: the filter refuses the linker's own ``chmod``.

    The compiler may have run hostile code, so the file is checked: a regular file of our user with one name, directly
    in the folder ``cell``, not a link.
    """
    path = step["argv"][0] if step["kind"] == "exec" else ""
    if os.path.dirname(path) != cell:
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # the step itself will report the error
    try:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and info.st_nlink == 1 and info.st_uid == os.getuid():
            os.fchmod(fd, stat.S_IMODE(info.st_mode) | 0o100)
    finally:
        os.close(fd)


def main() -> None:
    """Change to the sandbox's user, then serve as every gate does."""
    with open(int(sys.argv.pop(1)), "rb") as file:
        spec = marshal.load(file)  # noqa: S302 - the host wrote it
    # What is imported in advance begins in the work folder, as the program does.
    os.chdir(spec["work"])
    # Modules that are imported in advance must not write files into the host's folders.
    os.environ.update(HOME=spec["work"], TMPDIR=spec["tmp"])
    if spec["uid"] is not None:
        lockdown.become_user(spec["uid"], spec["capabilities"])
    signal.signal(HOST_GONE, lambda *_: end_everything())
    # After the change of user, because that change would clear it.
    lockdown.set_pdeathsig(HOST_GONE, parent=spec["parent"])
    lockdown.load()
    steps.put_up_walls = StepWalls(spec)
    steps.prepare = lambda step: make_executable(spec["cell"], step)
    us = os.getpid()
    try:
        gate.main()
    finally:
        if os.getpid() == us:
            end_everything()
