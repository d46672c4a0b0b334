"""A hostile cell against the other branches of its own session: it can neither read nor change their states."""

from collections.abc import Iterator

import pytest

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session
from tests.conftest import need

#: Looks for a text in the memory, the files and the descriptors of every process that it can see, and in every file.
SEARCH = r"""
import os, ctypes, re
needle = ("hunter" + "2-of-the-branch").encode()
found, opened = [], 0
me = os.getpid()
for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
    if pid == me or pid == 1:
        continue
    for part in ("environ", "cmdline", "maps", "mem", "auxv", "stack"):
        try:
            with open(f"/proc/{pid}/{part}", "rb") as file:
                opened += part == "mem"
                if part == "mem":
                    for line in open(f"/proc/{pid}/maps"):
                        low, high = (int(n, 16) for n in line.split()[0].split("-"))
                        if "rw" in line and high - low < 64 << 20:
                            file.seek(low)
                            if needle in file.read(high - low):
                                found.append((pid, part))
                elif needle in file.read(1 << 20):
                    found.append((pid, part))
        except (OSError, ValueError, OverflowError):
            pass
    for part in ("fd", "root", "cwd", "map_files", "task"):
        try:
            for name in os.listdir(f"/proc/{pid}/{part}"):
                try:
                    with open(f"/proc/{pid}/{part}/{name}", "rb") as file:
                        if needle in file.read(1 << 20):
                            found.append((pid, part, name))
                except OSError:
                    pass
        except OSError:
            pass
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, 0, 0) == 0:
        found.append((pid, "ptrace"))
for top in ("/box", "/tmp", "/var", "/run", "/dev/shm", os.getcwd()):
    for folder, _, names in os.walk(top):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    if needle in file.read(1 << 20):
                        found.append(os.path.join(folder, name))
            except OSError:
                pass
print(found, opened)
"""
#: Tries to open for writing what other processes have, and to set their limits; harmless where it works.
CHANGE = r"""
import os, resource
for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())):
    paths = [f"/proc/{pid}/{part}" for part in ("mem", "oom_score_adj", "comm")]
    try:
        paths += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        pass
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            print("opened", path)
        except OSError:
            pass
    try:
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        print("limited", pid)
    except OSError:
        pass
print("tried")
"""


@pytest.fixture(params=["bubblewrap", "landlock"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    try:
        backend = ProcessBackend(enforcer=request.param)
    except SandboxError as error:
        need(False, str(error))
    with open_session(backend, checkpoints=5) as made:
        made.run("x = 'before'")
        made.checkpoint("base")
        made.run("secret = 'hunter' + '2-of-the-branch'; open('secret.txt', 'w').write(secret); lines = iter('abc')")
        made.checkpoint("branch")
        made.checkout("base")
        yield made


@pytest.mark.one_case
def test_the_state_of_another_branch_can_be_neither_read_nor_changed(session: Session) -> None:
    searched = session.run(SEARCH, timeout=60)
    assert searched.ok and searched.stdout.strip() == "[] 0", searched
    changed = session.run(CHANGE, timeout=60)
    assert changed.ok and changed.stdout.strip() == "tried", changed
    session.checkout("branch")
    after = session.run("print(secret, open('secret.txt').read(), next(lines), x)")
    assert after.stdout == "hunter2-of-the-branch hunter2-of-the-branch a before\n", after
