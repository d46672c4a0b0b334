"""Jails that a template forks: the walls of those that bubblewrap starts, nothing shared, and no trace of the template."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.accounting.processes import proportional_bytes, tree
from sandbox_kernel.jail.enforcer import start_jail
from sandbox_kernel.jail.gate_messages import Step
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.rules.bubblewrap import bubblewrap_args
from sandbox_kernel.jail.run_job import Job, JobOutcome, run_job
from sandbox_kernel.jail.spawner import wait_buried
from sandbox_kernel.jail.template import Template, TemplateJail, shown_beneath
from sandbox_kernel.jail.walls import Walls, sizes
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import Events
from sandbox_kernel.policy import Grant
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("nothing_left")


def real_walls(*grants: Grant, preload: tuple[str, ...] = ("site",), memory_mb: int = 256) -> Walls:
    python = find_python("python3")
    return Walls(python.executable, python.runtime, grants, *sizes(Limits(), memory_mb), preload=preload)


@pytest.fixture
def forked() -> Iterator[Callable[..., Jail]]:
    """Jails forked from one template for each kind of walls; all are gone after the test."""
    templates: dict[Walls, Template] = {}
    jails: list[Jail] = []

    def make(walls: Walls | None = None) -> Jail:
        wanted = walls if walls is not None else real_walls()
        if wanted not in templates:
            templates[wanted] = Template(wanted)
            templates[wanted].wait_ready()
        jails.append(TemplateJail(wanted, templates[wanted]))
        jails[-1].wait_ready()
        return jails[-1]

    yield make
    for jail in jails:
        jail.destroy()
        jail.forget()
    for template in templates.values():
        template.destroy()


def run(jail: Jail, code: str, stdin: bytes | None = None, memory_mb: int = 256) -> JobOutcome:
    step = Step(kind="python", argv=["/cell/cell.py"], env={}, rlimits={}, cwd="/box", source=code.encode())
    job = Job(steps=[step], stdin=stdin, timeout_s=30, memory_bytes=memory_mb * MIB, processes=64, output_bytes=1 << 20)
    return run_job(jail, job)


def said(jail: Jail, code: str) -> str:
    outcome = run(jail, code)
    jail.destroy()
    assert outcome.exits and outcome.exits[0].code == 0, outcome.stderr.text
    return outcome.stdout.text.strip()


FACTS = """
import json, os, resource, socket, struct, fcntl
def status(pid):
    rows = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
    names = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
             "Seccomp_filters", "Threads", "NSpid", "NSsid", "PPid", "SigIgn", "SigBlk", "Umask")
    return {name: rows.get(name, "").split() for name in names}
mounts = {}
for line in open("/proc/self/mountinfo"):
    before, after = line.rstrip().split(" - ")
    kind, _, options = after.split(" ", 2)
    fields = before.split()
    # The last one is on top. Its owner on the host and where a template has its root are not the same for two jails.
    size = [word for word in options.split(",") if word.startswith(("size=", "mode=", "ptmxmode="))]
    mounts[fields[4]] = [kind, fields[5], size]
def listed(path):
    return sorted(os.listdir(path))
def denied(path):
    try:
        os.listdir(path) if path.endswith("fd") else open(path, "rb").read(1)
        return None
    except OSError as error:
        return error.errno
asked = socket.socket()
lo = struct.unpack_from("16sH", fcntl.ioctl(asked.fileno(), 0x8913, struct.pack("16sH22x", b"lo", 0)))[1]
modes = {path: [oct(os.stat(path).st_mode), os.stat(path).st_uid] for path in ("/box", "/cell", "/tmp", "/dev/shm")}
facts = {
    "self": status("self"), "init": status(1), "mounts": mounts, "dev": listed("/dev"), "root": listed("/"),
    "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()), "lo": lo, "env": dict(os.environ),
    "host": (asked.close(), socket.gethostname())[1], "cwd": os.getcwd(), "fds": listed("/proc/self/fd"), "modes": modes,
    "tmp": listed("/tmp"), "box": listed("/box"), "cell": listed("/cell"), "shm": listed("/dev/shm"),
    "init is closed": [denied(f"/proc/1/{name}") for name in ("mem", "environ", "maps", "fd")],
    "rlimits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name},
    "session": [os.getsid(0), os.getpgrp(), os.getsid(1)],
    "user namespaces": open("/proc/sys/user/max_user_namespaces").read().strip() != "",
}
print(json.dumps(facts))
"""


def test_its_walls_are_those_of_a_jail_that_bubblewrap_started(forked: Callable[..., Jail]) -> None:
    direct = start_jail(real_walls())
    direct.wait_ready()
    try:
        expected = json.loads(said(direct, FACTS))
    finally:
        direct.destroy()
        direct.forget()
    found = json.loads(said(forked(), FACTS))
    for name, value in expected.items():
        assert found[name] == value, name
    assert found["self"]["CapBnd"] == found["init"]["CapBnd"] == ["0000000000000000"]
    assert found["init"]["NoNewPrivs"] == ["1"] and found["init"]["Seccomp"] == ["2"]
    assert None not in found["init is closed"]
    assert found["pids"] == [1, 2]


def _settled(jail: Jail) -> None:
    """The gate has forked the first step and now waits: the test's own time limit ends the wait."""
    _waiting(jail)
    until(lambda: Path(f"/proc/{jail.init_pid}/stat").read_text().rpartition(")")[2].split()[0] == "S")


def _held(pid: int) -> set[str]:
    """What the descriptors of a process lead to."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="the descriptors of a gate are closed to others")
def test_no_descriptor_of_the_template_or_of_a_sibling_is_in_a_jail(forked: Callable[..., Jail]) -> None:
    jails = [forked(), forked()]
    for jail in jails:
        _settled(jail)
    template = _held(jails[0]._template.init_pid)  # type: ignore[attr-defined]
    first, second = (_held(jail.init_pid) for jail in jails)
    assert len(first) >= 5 and all(name.startswith(("pipe:", "socket:")) for name in first | second)
    assert not first & second and not first & template and not second & template


def test_a_program_has_three_descriptors(forked: Callable[..., Jail]) -> None:
    # The fourth is the listing's own.
    assert said(forked(), "import os; print(os.listdir('/proc/self/fd'))") == "['0', '1', '2', '3']"


def test_each_has_namespaces_of_its_own(forked: Callable[..., Jail]) -> None:
    jails = [forked(), forked()]
    (template,) = {jail._template.init_pid for jail in jails}  # type: ignore[attr-defined]
    for name in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup"):
        found = {os.readlink(f"/proc/{pid}/ns/{name}") for pid in (template, *(jail.init_pid for jail in jails))}
        assert len(found) == 3, name


SHOW = """
import os, socket, sys
for path in ("/box/a", "/tmp/a", "/dev/shm/a", "/cell/a"):
    open(path, "w").write("secret")
listener = socket.socket(socket.AF_UNIX); listener.bind("\\0meet"); listener.listen()
tcp = socket.socket(); tcp.bind(("127.0.0.1", 40001)); tcp.listen()
master, slave = os.openpty()
print(os.ttyname(slave), flush=True)
sys.stdin.read()
"""
LOOK = """
import json, os, socket
def can(what, *args):
    try:
        what(*args)
        return True
    except OSError:
        return False
seen = {path: os.path.exists(path) for path in ("/box/a", "/tmp/a", "/dev/shm/a", "/cell/a", "/dev/pts/0")}
seen["abstract"] = can(socket.socket(socket.AF_UNIX).connect, "\\0meet")
seen["tcp"] = can(socket.socket().connect, ("127.0.0.1", 40001))
seen["pids"] = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) > 2]
seen["signal"] = any(can(os.kill, pid, 0) for pid in range(3, 4000))
print(json.dumps(seen))
"""


def test_siblings_do_not_see_each_other(forked: Callable[..., Jail]) -> None:
    first, second = forked(), forked()
    seen: list[str] = []

    def on_output(stream: str, text: str) -> None:
        # The first one is at work, with everything open, while the second looks around.
        if not seen:
            seen.append(said(second, LOOK))
            os.kill(first.init_pid, signal.SIGKILL)

    step = Step(kind="python", argv=["/cell/a.py"], env={}, rlimits={}, cwd="/box", source=SHOW.encode())
    job = Job(
        steps=[step], stdin=b"x" * (1 << 22), timeout_s=30, memory_bytes=256 * MIB, processes=9, output_bytes=9999
    )
    outcome = run_job(first, job, Events(on_output=on_output))
    assert outcome.stdout.text == "/dev/pts/0\n", outcome.stderr.text
    assert not any(json.loads(seen[0]).values()), seen[0]


ESCAPES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print("unshare", libc.unshare(0x10000000), "clone", libc.syscall({clone}, 0x10000000 | 17, 0, 0, 0, 0))
for path, text in (("/proc/sys/user/max_user_namespaces", "9"), ("/proc/self/uid_map", "0 0 1")):
    try:
        os.write(os.open(path, os.O_WRONLY), text.encode())
        print("wrote", path)
    except OSError:
        pass
print("umount", libc.umount2(b"/tmp", 2), libc.umount2(b"/proc", 2), "mount", libc.mount(b"a", b"/box", b"tmpfs", 0, 0))
print(open("/proc/sys/user/max_user_namespaces").read())
"""


def test_it_can_make_no_user_namespace_and_uncover_nothing(forked: Callable[..., Jail]) -> None:
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    answer = said(forked(), ESCAPES.replace("{clone}", str(clone)))
    assert answer == "unshare -1 clone -1\numount -1 -1 mount -1\n0"


def test_the_kernel_refuses_user_namespaces_even_without_the_filter(forked: Callable[..., Jail]) -> None:
    pid = forked().init_pid
    # From outside, into the jail's namespaces but past its filter.
    nested = "import ctypes,os;l=ctypes.CDLL(None,use_errno=True);print(l.unshare(0x10000000),ctypes.get_errno())"
    enter = ["nsenter", f"--user=/proc/{pid}/ns/user", "--preserve-credentials", sys.executable, "-I", "-c", nested]
    if os.geteuid() != 0:
        pytest.skip("entering the namespaces of a jail takes root")
    answer = subprocess.run(enter, capture_output=True, text=True, check=False)
    assert answer.stdout == "-1 28\n", answer.stderr  # ENOSPC: more than the limit of this namespace


def test_what_is_drawn_by_chance_differs_between_siblings(forked: Callable[..., Jail]) -> None:
    walls = real_walls(preload=("site", "random", "uuid", "tempfile", "multiprocessing"))
    code = (
        "import random, uuid, tempfile, multiprocessing, os\n"
        "print(random.random()); print(uuid.uuid4()); print(tempfile.mktemp())\n"
        "print(bytes(multiprocessing.current_process().authkey)); print(os.urandom(8))"
    )
    first, second = (said(forked(walls), code).splitlines() for _ in range(2))
    assert not set(first) & set(second)


def test_siblings_share_a_hash_seed_and_templates_do_not(forked: Callable[..., Jail]) -> None:
    code = "print(hash('a'), hash('b'))"
    one, same = said(forked(), code), said(forked(), code)
    other = said(forked(real_walls(preload=("site", "random"))), code)
    assert one == same != other


def test_memory_that_a_run_takes_is_its_own_and_limited(forked: Callable[..., Jail]) -> None:
    held = forked()
    small = run(held, "print(1)")
    big = run(forked(), "x = bytearray(64 << 20); print(1)")
    assert big.peak_bytes is not None and small.peak_bytes is not None
    assert big.peak_bytes > 64 << 20 and small.peak_bytes < 32 << 20
    outcome = run(forked(), "x = bytearray(400 << 20)", memory_mb=128)
    assert outcome.exits == () or outcome.exits[0].code != 0


def test_many_spares_take_little_memory(forked: Callable[..., Jail]) -> None:
    jails = [forked() for _ in range(6)]
    template = jails[0]._template  # type: ignore[attr-defined]
    together = proportional_bytes([template.init_pid, *(jail.init_pid for jail in jails)])
    assert together < 40 << 20


def test_a_template_that_is_killed_takes_its_spares_with_it(forked: Callable[..., Jail]) -> None:
    jail = forked()
    os.kill(jail._template.init_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    jail.wait_dead()
    assert not jail.alive
    with pytest.raises((EnforcerFailed, OSError)):
        TemplateJail(jail.walls, jail._template).wait_ready()  # type: ignore[attr-defined]


#: In one write: a stream may be read in between two.
LOOP = b"print('go\\n', end='')\nwhile True: pass"


def test_a_template_that_is_killed_ends_the_runs_of_its_jails(forked: Callable[..., Jail]) -> None:
    jail = forked()

    def on_output(stream: str, text: str) -> None:
        os.kill(jail._template.init_pid, signal.SIGKILL)  # type: ignore[attr-defined]

    step = Step(kind="python", argv=["/a"], env={}, rlimits={}, cwd="/box", source=LOOP)
    job = Job(steps=[step], timeout_s=30, memory_bytes=256 * MIB, processes=9, output_bytes=999)
    outcome = run_job(jail, job, Events(on_output=on_output))
    assert (outcome.exits, outcome.stopped_by, outcome.stdout.text) == ((), None, "go\n")


def test_a_retired_template_lives_as_long_as_its_last_jail(forked: Callable[..., Jail]) -> None:
    jail = forked()
    template: Template = jail._template  # type: ignore[attr-defined]
    template.retire()
    assert template.alive and jail.alive
    assert said(jail, "print(1)") == "1"
    assert wait_buried(60)
    assert not template.alive


def test_the_end_of_a_jail_is_waited_for_only_if_the_program_left_a_process(forked: Callable[..., Jail]) -> None:
    assert run(forked(), "print(1)").exits[-1].alone
    grandchild = "import os, time\nif os.fork() == 0:\n    os.fork()\n    time.sleep(60)"
    left = forked()
    assert not run(left, grandchild).exits[-1].alone
    assert not left.alive


def test_nothing_is_left_when_the_host_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from sandbox_kernel.jail.template import Template\n"
        "from sandbox_kernel.jail.template import TemplateJail\n"
        "from sandbox_kernel.jail.interpreter import find_python\n"
        "from sandbox_kernel.jail.walls import Walls, sizes\n"
        "from sandbox_kernel.limits import Limits\n"
        "python = find_python('python3')\n"
        "walls = Walls(python.executable, python.runtime, (), *sizes(Limits(), 256))\n"
        "template = Template(walls); template.wait_ready()\n"
        "jails = [TemplateJail(walls, template) for _ in range(3)]\n"
        "for jail in jails: jail.wait_ready()\n"
        "print(template.init_pid, template.child.pid, *(jail.init_pid for jail in jails), flush=True)\n"
        "time.sleep(60)\n"
    )
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}
    ) as host:
        assert host.stdout is not None
        pids = [int(word) for word in host.stdout.readline().split()]
        assert len(pids) == 5
        watched = [os.pidfd_open(pid) for pid in pids]
        host.kill()
        for fd in watched:
            # The test's own time limit ends a wait for one that never dies.
            select.select([fd], [], [])
            os.close(fd)


def test_what_the_host_shows_in_private_places_is_shown_there_again(
    forked: Callable[..., Jail], tmp_path: Path
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    for folder in (data, out):
        folder.mkdir()
        folder.chmod(0o777)
    (data / "a.txt").write_text("seen")
    single = tmp_path / "one.txt"
    single.write_text("one")
    walls = real_walls(
        Grant(str(data), "/box/deep/data", False),
        Grant(str(out), "/tmp/out", True),
        Grant(str(single), "/cell/one.txt", False),
        Grant(str(data), str(data), False),
    )
    code = (
        "print(open('/box/deep/data/a.txt').read(), open('/cell/one.txt').read())\n"
        f"print(open({str(data)!r} + '/a.txt').read())\n"
        "open('/tmp/out/b.txt', 'w').write('made')\n"
        "for path in ('/box/deep/data/c', '/cell/one.txt'):\n"
        "    try: open(path, 'w'); print('written')\n"
        "    except OSError as error: print(error.errno)\n"
        "open('/box/deep/own', 'w').write('x')"
    )
    assert said(forked(walls), code) == "seen one\nseen\n30\n30"
    assert (out / "b.txt").read_text() == "made"
    assert not (data / "c").exists()


def test_only_the_outermost_of_what_is_shown_in_private_places_is_shown_again() -> None:
    python = Grant("/opt/python", "/opt/python", False)
    walls = Walls(
        "python",
        (python,),
        (Grant("/a", "/tmp/a", False), Grant("/b", "/tmp/a/b", True), Grant("/c", "/box/c", False)),
        1,
        1,
        1,
    )
    assert sorted(shown_beneath(walls)) == ["/box/c", "/tmp/a"]


def test_a_folder_that_was_replaced_makes_a_template_old(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    template = Template(real_walls(Grant(str(shown), "/data", False)))
    try:
        template.wait_ready()
        assert template.current
        shown.rename(tmp_path / "away")
        shown.mkdir()
        assert not template.current
    finally:
        template.destroy()


def test_a_package_that_is_installed_makes_a_template_old_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    template = Template(real_walls())
    try:
        template.wait_ready()
        monkeypatch.setattr("sandbox_kernel.jail.template.LOOK_S", -1.0)
        assert template.current
        monkeypatch.setattr("sandbox_kernel.jail.template.system", lambda walls: ())
        assert not template.current
        monkeypatch.undo()
        assert not template.current
    finally:
        template.destroy()


def test_modules_that_start_threads_when_they_are_imported_make_no_template() -> None:
    ask = "import numpy, os; print(len(os.listdir('/proc/self/task')))"
    python = find_python("python3").executable
    threads = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, check=False).stdout.strip()
    if threads in ("", "1"):
        pytest.skip("needs a numpy that starts threads when it is imported")
    with pytest.raises(EnforcerFailed, match="threads run"):
        Template(real_walls(preload=("site", "numpy"))).wait_ready()


def test_the_root_of_a_template_is_that_of_a_jail_but_for_what_its_forks_do_themselves() -> None:
    walls = replace(real_walls(), runtime=())
    jail = bubblewrap_args(walls, guest_dir="/opt/guest", seccomp_fd=7, info_fd=8)
    template = bubblewrap_args(walls, guest_dir="/opt/guest", seccomp_fd=None, info_fd=8)
    own = ("--disable-userns", "--seccomp", "7", "--cap-add", "CAP_SYS_RESOURCE", "CAP_SETPCAP")
    assert [word for word in jail if word not in own] == template


def _waiting(jail: Jail) -> int:
    """The process of the first step, which the gate forks when it is told to; the test's own time limit ends the wait."""
    until(lambda: len(tree(jail.init_pid)) >= 2)
    return tree(jail.init_pid)[1]


def test_the_first_step_waits_ahead_and_is_counted_from_its_start(forked: Callable[..., Jail]) -> None:
    jail = forked()
    ahead = _waiting(jail)
    members = jail.meter.members()
    assert members is None or sorted(members) == sorted([jail.init_pid, ahead])
    assert said(jail, "import os; print(os.getpid(), os.getppid())") == "2 1"


def test_a_first_step_that_was_killed_while_it_waited_is_told(forked: Callable[..., Jail]) -> None:
    jail = forked()
    os.kill(_waiting(jail), signal.SIGKILL)
    outcome = run(jail, "print(1)")
    assert [end.code for end in outcome.exits] == [-signal.SIGKILL]
    assert outcome.stdout.text == ""
