"""The Landlock tier in the real kernel: a child locks itself down with lockdown.py and leans against each wall."""

import contextlib
import json
import marshal
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from sandbox_kernel.jail.guest_programs import guest_folder, memory_file
from sandbox_kernel.jail.rules.landlock import landlock_abi, landlock_plan
from sandbox_kernel.jail.rules.seccomp import build_filter, host_arch

ABI = landlock_abi()
pytestmark = pytest.mark.skipif(ABI < 1, reason="this kernel has no Landlock")

PYTHON = "/usr/bin/python3"
SYSTEM = tuple(
    dict.fromkeys(os.path.realpath(path) for path in ("/usr", "/lib", "/lib64", "/bin") if os.path.exists(path))
)
PRELUDE = """
import errno, json, os, socket, sys
def attempt(act, *arguments):
    try: answer = act(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
    return "ok"
def read(path): open(path).read()
def write(path): open(path, "w").write("changed")
def connect(address, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as s: s.connect(address)
def send(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b"x", address)
"""


#: A gate that forks one step, which puts up its walls and becomes the command.
STEP = """
import sys; p = sys.modules['sandbox_guest'] = type(sys)('sandbox_guest'); p.__path__ = [sys.argv.pop(1)]
import marshal, os
from sandbox_guest.gate import open_gate
with open(int(sys.argv[1]), "rb") as file: walls = open_gate.StepWalls(marshal.load(file))
child = os.fork()
if child == 0:
    walls()
    os.execv(sys.argv[2], sys.argv[2:])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@dataclass(frozen=True)
class _Place:
    inside: Path
    outside: Path


@pytest.fixture
def place(tmp_path: Path) -> _Place:
    inside, outside = tmp_path.resolve() / "inside", tmp_path.resolve() / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_text("as it was")
    return _Place(inside, outside)


def _run(
    code: str,
    *arguments: object,
    writes: tuple[str, ...] = (),
    reads: tuple[str, ...] = (),
    filters: tuple[bytes, ...] = (),
) -> object:
    """Run code behind the walls that a step behind Landlock puts up (``open_gate.StepWalls``)."""
    plan = landlock_plan((*SYSTEM, *reads), (*writes, "/dev/null"), abi=ABI)
    spec = {"landlock": asdict(plan), "capabilities": (), "seccomp": filters, "task_room": 0}
    spec_fd = memory_file("spec", marshal.dumps(spec, 2))
    command = (PYTHON, "-I", "-S", "-c", PRELUDE + code, *map(str, arguments))
    try:
        done = subprocess.run(
            [PYTHON, "-I", "-S", "-c", STEP, guest_folder(), str(spec_fd), *command],
            pass_fds=(spec_fd,),
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
    finally:
        os.close(spec_fd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _tier_filter() -> bytes:
    return build_filter(host_arch(), families=(), refuse_shared_ids=True, refuse_metadata=True)


@contextlib.contextmanager
def _listener(family: int, address: object) -> Iterator[socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)  # type: ignore[arg-type]
        server.listen(8)
        yield server


def test_a_file_outside_is_neither_read_nor_written_nor_listed(place: _Place) -> None:
    code = """
o = sys.argv[1]
print(json.dumps([attempt(read, o + "/file"), attempt(write, o + "/file"), attempt(write, o + "/new"),
  attempt(os.listdir, o), attempt(os.unlink, o + "/file"), attempt(os.mkdir, o + "/d"),
  attempt(os.rename, o + "/file", o + "/x"), attempt(os.symlink, "x", o + "/link"), attempt(os.mkfifo, o + "/fifo")]))
"""
    assert set(_run(code, place.outside, writes=(str(place.inside),))) == {"EACCES"}  # type: ignore[call-overload]
    assert sorted(os.listdir(place.outside)) == ["file"]
    assert (place.outside / "file").read_text() == "as it was"


def test_the_work_folder_is_fully_usable(place: _Place) -> None:
    code = """
i = sys.argv[1]; os.chdir(i)
print(json.dumps([attempt(read, "file"), attempt(write, "file"), attempt(os.mkdir, "d"),
  attempt(os.rename, "file", "moved"), attempt(os.truncate, "moved", 3), attempt(os.symlink, "moved", "link"),
  attempt(os.mkfifo, "fifo"), attempt(os.listdir, ".")]
  + ([attempt(os.rename, "moved", "d/moved"), attempt(os.link, "d/moved", "again")] if sys.argv[2] != "1" else [])))
"""
    assert set(_run(code, place.inside, ABI, writes=(str(place.inside),))) == {"ok"}  # type: ignore[call-overload]


def test_a_read_only_folder_is_read_and_executed_but_not_changed(place: _Place) -> None:
    script = place.inside / "script"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    (place.inside / "link").symlink_to(place.outside / "file")
    code = """
i = sys.argv[1]
print(json.dumps([attempt(read, i + "/file"), attempt(os.listdir, i), os.spawnv(os.P_WAIT, i + "/script", ["s"]),
  attempt(write, i + "/file"), attempt(os.unlink, i + "/file"), attempt(os.mkdir, i + "/d"),
  attempt(read, i + "/link"), attempt(write, i + "/link"), attempt(os.truncate, i + "/file", 0)]))
"""
    answers = _run(code, place.inside, reads=(str(place.inside),))
    assert answers[:-1] == ["ok", "ok", 0, *["EACCES"] * 5]  # type: ignore[index]
    if ABI >= 3:  # before, Landlock does not see truncate
        assert answers[-1] == "EACCES"  # type: ignore[index]
        assert (place.inside / "file").read_text() == "as it was"


def test_a_single_file_can_be_granted_and_its_neighbours_stay_hidden(place: _Place) -> None:
    (place.inside / "other").write_text("secret")
    code = """
i = sys.argv[1]
print(json.dumps([attempt(read, i + "/file"), attempt(read, i + "/other"), attempt(os.listdir, i)]))
"""
    assert _run(code, place.inside, reads=(str(place.inside / "file"),)) == ["ok", "EACCES", "EACCES"]


@pytest.mark.skipif(ABI < 4, reason="this kernel's Landlock does not see TCP")
def test_tcp_reaches_no_port() -> None:
    with _listener(socket.AF_INET, ("127.0.0.1", 0)) as other:
        code = """
print(json.dumps([attempt(connect, ("127.0.0.1", int(sys.argv[1]))), attempt(socket.create_server, ("127.0.0.1", 0))]))
"""
        assert _run(code, other.getsockname()[1]) == ["EACCES", "EACCES"]


@pytest.mark.skipif(ABI < 6, reason="this kernel's Landlock has no scopes")
def test_abstract_sockets_and_signals_end_at_the_wall() -> None:
    name = f"\0sandbox-kernel-test-{os.getpid()}"
    outsider = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    try:
        with _listener(socket.AF_UNIX, name):
            code = """
print(json.dumps([attempt(connect, "\\0" + sys.argv[1], socket.AF_UNIX), attempt(os.kill, int(sys.argv[2]), 0),
  attempt(os.kill, int(sys.argv[2]), 15), attempt(os.kill, os.getpid(), 0)]))
"""
            assert _run(code, name[1:], outsider.pid) == ["EPERM", "EPERM", "EPERM", "ok"]
        assert outsider.poll() is None
    finally:
        outsider.stdin.close()  # type: ignore[union-attr]
        assert outsider.wait(30) == 0


def test_the_filter_of_this_tier_leaves_no_socket_but_pairs(place: _Place) -> None:
    """What Landlock does not see (UDP, unix sockets by path) the filter refuses; each is shown open without it."""
    # The path of a unix socket must be short, and that of a test's folder may not be.
    path = tempfile.mktemp(prefix="s")
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    code = """
def pair():
    a, b = socket.socketpair(); a.sendall(b"x"); assert b.recv(1) == b"x"
print(json.dumps({"udp": attempt(send, ("127.0.0.1", int(sys.argv[2]))),
  "path": attempt(connect, sys.argv[1], socket.AF_UNIX), "pair": attempt(pair)}))
"""
    with udp, _listener(socket.AF_UNIX, path):
        arguments = (path, udp.getsockname()[1])
        bare = _run(code, *arguments, writes=(str(place.inside),))
        assert _run(code, *arguments, writes=(str(place.inside),), filters=(_tier_filter(),)) == {
            "udp": "EAFNOSUPPORT",
            "path": "EAFNOSUPPORT",
            "pair": "ok",
        }
    os.unlink(path)
    if ABI < 9:
        assert bare == {"udp": "ok", "path": "ok", "pair": "ok"}, "landlock_weaknesses says more than is true"


def test_the_filter_of_this_tier_keeps_metadata_processes_and_ipc_of_the_host(place: _Place) -> None:
    victim = place.outside / "file"
    victim.chmod(0o640)
    before = victim.stat()
    code = """
import ctypes, resource
libc = ctypes.CDLL(None, use_errno=True)
def shmget():
    if libc.shmget(0, 4096, 0o1600) < 0: raise OSError(ctypes.get_errno(), "shmget")
v, pid = sys.argv[1], int(sys.argv[2])
print(json.dumps([attempt(os.chmod, v, 0o777), attempt(os.utime, v, (1, 1)), attempt(os.setxattr, v, "user.x", b"1"),
  attempt(os.chown, v, os.getuid(), os.getgid()), attempt(resource.prlimit, pid, resource.RLIMIT_CPU, (1, 1)),
  attempt(os.setpriority, os.PRIO_PROCESS, pid, 19), attempt(os.sched_setaffinity, pid, {0}), attempt(shmget)]))
"""
    answers = _run(code, victim, os.getpid(), writes=(str(place.inside),), filters=(_tier_filter(),))
    # Programs set no attributes of any file: here none has them.
    assert answers == ["EPERM", "EPERM", "ENOTSUP", *["EPERM"] * 5]
    after = victim.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


def test_without_that_filter_metadata_outside_could_be_changed(place: _Place) -> None:
    code = "print(json.dumps(attempt(os.chmod, sys.argv[1], 0o604)))"
    assert _run(code, place.outside / "file", writes=(str(place.inside),)) == "ok"
    assert (place.outside / "file").stat().st_mode & 0o777 == 0o604
