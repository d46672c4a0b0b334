"""The gate of a jail without namespaces: the same gate, which is not the init of anything.

The kernel does not end its tree with it, so it does that itself, also when the host is gone. It runs outside of the
walls, as a user of the sandbox's own where the host is root; each step puts the walls up around itself before it
becomes the program, so that no program ever runs without them: a wall that does not stand ends the step.

Its arguments are SPEC-FD CONTROL-FD CHANNEL-FD [MODULE ...]; ``jail/kinds/open_spec.py`` writes the spec.
Stdlib only, Python 3.8 or later.
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


#: Sent by the kernel when the host is gone; the gate ignores those that people send.
HOST_GONE = signal.SIGRTMIN + 7
#: After this, what does not die is asked less often.
_DEATH_S = 10.0


def children() -> List[int]:
    """Our own children, orphans that came to us among them. Their numbers are not used again until we collect them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return children_by_parent()


def children_by_parent() -> List[int]:
    """The same on a kernel that does not list them."""
    return [pid for pid, seen in alive.all_processes().items() if seen.parent == os.getpid()]


def end_everything() -> None:
    """Kill the tree until nothing of it is left, then end.

    Whoever is left has us as an ancestor, and orphans become our children: no child at all means that nothing is left.
    Looking at children alone is quick enough to meet processes that do nothing but fork and exit.
    """
    deadline = time.monotonic() + _DEATH_S
    while True:
        # Stopped first: who is stopped does not fork while the others are being killed.
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
    """Threads that our user has already: RLIMIT_NPROC counts them with the program's."""
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
    """What each step puts up around itself; called between fork and program."""

    def __init__(self, spec: Dict[str, Any]) -> None:
        self.spec = spec
        self.gate = os.getpid()
        self.most_tasks = tasks_of_user() + spec["task_room"] if spec["task_room"] else 0

    def __call__(self) -> None:
        """Every failure is an OSError, and the caller then ends the step."""
        lockdown.set_pdeathsig(signal.SIGKILL, parent=self.gate)
        if self.most_tasks:
            lockdown.set_rlimits({"NPROC": self.most_tasks})
        # Also without walls: a set-uid program would be out of our reach.
        lockdown.no_new_privs()
        if self.spec["landlock"] is not None:
            lockdown.drop_capabilities(self.spec["capabilities"])
            lockdown.landlock_restrict(self.spec["landlock"])
            for program in self.spec["seccomp"]:
                lockdown.load_seccomp(program)


def make_executable(cell: str, step: Dict[str, Any]) -> None:
    """Let a program that was compiled here run: linkers mark it by its path, which the filter refuses.

    What stands there was made by a compiler that ran hostile code, so it is believed only as far as it can be seen: a
    file of ours with one name, directly in our folder, and no link to anything else.
    """
    path = step["argv"][0] if step["kind"] == "exec" else ""
    if os.path.dirname(path) != cell:
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # the step itself says what is wrong with it
    try:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and info.st_nlink == 1 and info.st_uid == os.getuid():
            os.fchmod(fd, stat.S_IMODE(info.st_mode) | 0o100)
    finally:
        os.close(fd)


def main() -> None:
    """Become who we are to be, then do what every gate does."""
    with open(int(sys.argv.pop(1)), "rb") as file:
        spec = marshal.load(file)  # noqa: S302 - the host wrote it
    # Sessions keep copies of the folder where their gate stands.
    os.chdir(spec["work"])
    # What is imported ahead must not leave its files with the host's.
    os.environ.update(HOME=spec["work"], TMPDIR=spec["tmp"])
    if spec["uid"] is not None:
        lockdown.become_user(spec["uid"], spec["capabilities"])
    signal.signal(HOST_GONE, lambda *_: end_everything())
    # After the change of user, which would undo it.
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
