"""The programs of the canaries: forbidden actions for the jail, and controls that stay within the limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox_kernel.limits import Limits

#: Tries every forbidden action that is not about a limit, and prints the outcomes as one JSON object: inside, and
#: outside as the control. Actions that would change a host without walls (``dangerous``) are tried only behind walls.
#: ``reached`` are system calls with invalid arguments, which have no effect. The kernel answers EFAULT or EINVAL; a
#: filter answers EPERM or ENOSYS without looking at the arguments. The errors inside and outside show whether the
#: sandbox refuses the call.
LOOK = r"""
import ctypes, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
def number_of(x86, on_arm, *args):
    ctypes.set_errno(0)
    number = on_arm if arm else x86
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return 0 if libc.syscall(ctypes.c_long(number), *words) >= 0 else ctypes.get_errno()
def vsock():
    try: socket.socket(40, socket.SOCK_STREAM).close()
    except OSError as error: return error.errno
    return 0
reached = {
    "make a user namespace": number_of(272, 97, 0x10000001),
    "mount": number_of(165, 40, 8, 8, 8, 0, 0),
    "io_uring": number_of(425, 425, 8, 8),
    "bpf": number_of(321, 280, 0, 8, 8192),
    "keyctl": number_of(250, 219, 0, -3, 0),
    "ptrace": number_of(101, 117, 16, 0, 0, 0),
    "open a vsock": vsock(),
}
found = {"reached": reached}
import glob, json, sys
bait = json.loads(sys.argv[1])
def attempt(name, act, dangerous=False):
    if dangerous and not bait["walls"]:
        found[name] = [True, "not tried, because nothing would have stopped it"]
        return
    try: found[name] = [True, str(act())]
    except Exception as error:
        text = "%s: %s" % (type(error).__name__, error)
        found[name] = [False, text.replace(bait["folder"], "outside")]
def read(path):
    with open(path) as file: return file.read()
attempt("read a secret outside", lambda: read(bait["folder"] + "/secret")[:0] + "read it")
attempt("write outside", lambda: open(bait["folder"] + "/written", "w").close() or "wrote it")
attempt("read the host's password hashes", lambda: read("/etc/shadow")[:0] + "read it")
def inherited():
    if bait["variable"] not in os.environ: raise LookupError("not among its %d variables" % len(os.environ))
    return "found it"
attempt("inherit the host's environment", inherited)
def environment():
    for path in glob.glob("/proc/[0-9]*/environ"):
        if path == "/proc/%d/environ" % os.getpid(): continue
        try:
            with open(path, "rb") as file:
                if bait["variable"].encode() in file.read(): return "found it"
        except OSError: pass
    raise LookupError("in no environment of %d processes" % len(glob.glob("/proc/[0-9]*")))
attempt("see the host's environment", environment)
def processes():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        if path == "/proc/%d/cmdline" % bait["pid"]:
            with open(path, "rb") as file:
                if file.read() == bytes.fromhex(bait["cmdline"]): return "saw the host's process"
    raise LookupError("%d processes visible, none of them the host's" % len(glob.glob("/proc/[0-9]*")))
attempt("see host processes", processes)
def connect(family, kind, address):
    with socket.socket(family, kind) as sock:
        sock.settimeout(1); sock.connect(address); sock.send(b"x"); return "connected"
attempt("connect to host TCP", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", bait["tcp"])))
abstract = "\0" + bait["abstract"]
attempt("connect to a host abstract socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, abstract))
attempt("connect to a host socket file", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, bait["pathname"]))
attempt("send UDP to the host", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", bait["udp"])))
def call(x86, on_arm, *args):
    number = on_arm if arm else x86
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "allowed"
attempt("make a user namespace", lambda: call(272, 97, 0x10000000), dangerous=True)
attempt("mount", lambda: call(165, 40, b"none", b"/tmp", b"tmpfs", 0, None), dangerous=True)
attempt("io_uring", lambda: call(425, 425, 8, ctypes.create_string_buffer(256)), dangerous=True)
attempt("bpf", lambda: call(321, 280, 0, None, 0), dangerous=True)
attempt("keyctl", lambda: call(250, 219, 0, 0, 0), dangerous=True)
attempt("ptrace", lambda: call(101, 117, 0, 0, 0, 0), dangerous=True)
attempt("open a vsock", lambda: socket.socket(40, socket.SOCK_STREAM).close() or "opened")
def watches():
    inside, outside, _ = open("/proc/self/uid_map").read().split()[:3]
    if inside == outside == "0" and os.getuid() != bait["uid"]: raise PermissionError("a user of its own, with its own")
    most = int(open("/proc/sys/fs/inotify/max_user_instances").read())
    for taken in range(most if bait["walls"] else 1):
        if libc.inotify_init() < 0: raise OSError(ctypes.get_errno(), "got %d of the user's %d" % (taken, most))
    return "took all %d" % most if bait["walls"] else "took one, and nothing would have stopped more"
attempt("take every file watch of the user", watches)
def root():
    if os.getuid() != 0: raise PermissionError("uid %d" % os.getuid())
    return "uid 0"
attempt("be root", root)
attempt("write host settings", lambda: open("/proc/sys/kernel/core_pattern", "r+b").close() or "opened")
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A limit, a program that exceeds it and one that stays below it (the control), and descriptions of both."""

    name: str
    over: str
    below: str
    exceeds: str
    stays: str
    limits: Limits = field(default_factory=Limits)
    timeout: float = 20.0
    memory_mb: int = 128
    below_timeout: float = 20.0


#: Output of a canary when its daemon runs.
UP = "the daemon runs"
#: Output of a canary when the policy allows no new processes, so that there is nothing to count or to survive.
NO_START = "no process may be started"

_FORKS = f"""
import os, time
try:
    for _ in range({{count}}):
        if os.fork() == 0: time.sleep(20)
except PermissionError: print("{NO_START}")
except BlockingIOError as error: print(error)
"""

#: Where the host watches memory, none is shared without a file: then it is the program's own.
_MAPPED = "try: m = mmap.mmap(-1, {0})\nexcept OSError: m = bytearray({0})\nfor i in range(0, {0}, 4096): m[i] = 1"

TRIALS = (
    Trial(
        name="time",
        over="import time; time.sleep(30)",
        below="pass",
        exceeds="slept for 30 s with 0.3 s",
        stays="ended at once",
        timeout=0.3,
    ),
    Trial(
        name="memory",
        over="b = [bytearray(b'x' * (16 << 20)) for _ in range(64)]",
        below="b = [bytearray(b'x' * (16 << 20)) for _ in range(3)]",
        exceeds="took 1024 MB with 128 MB",
        stays="48 MB",
    ),
    Trial(
        name="memory shared between processes",
        over=f"import mmap\n{_MAPPED.format(1 << 30)}",
        below=f"import mmap\n{_MAPPED.format(32 << 20)}",
        exceeds="took 1024 MB of shared memory with 128 MB",
        stays="32 MB",
    ),
    Trial(
        name="processes",
        over=_FORKS.format(count=40),
        below=_FORKS.format(count=5),
        exceeds="started 40 processes with 16",
        stays="5 processes",
        limits=Limits(processes=16),
    ),
    Trial(
        name="disk",
        over="open('f', 'wb').write(bytes(16 << 20))",
        below="open('f', 'wb').write(bytes(6 << 20))",
        exceeds="wrote 16 MB with 8 MB",
        stays="6 MB",
        limits=Limits(disk_mb=8),
    ),
    Trial(
        name="open files",
        over="import os\nk = [os.dup(0) for _ in range(64)]",
        below="import os\nk = [os.dup(0) for _ in range(16)]",
        exceeds="opened 64 files with 32",
        stays="16 files",
        limits=Limits(open_files=32),
    ),
    Trial(
        name="CPU time",
        over="while True: pass",
        below="pass",
        exceeds="computed without end with 0.2 s",
        stays="ended at once",
        limits=Limits(cpu_seconds=0.2),
    ),
    Trial(
        name="output",
        over="print('x' * 100_000)",
        below="print('x' * 1000)",
        exceeds="printed 100001 bytes with 4096",
        stays="1001 bytes",
        limits=Limits(output_bytes=4096),
    ),
)

LIMIT_OF = {
    "time": "timeout", "memory": "memory", "memory shared between processes": "memory", "processes": "processes",
    "disk": "disk", "open files": "open_files", "CPU time": "cpu", "output": "output",
}  # fmt: skip

#: Starts a daemon in its own process session, waits until it runs, and then ends or waits to be killed.
DAEMON = f"""
import os, sys, time
try: child = os.fork()
except PermissionError: sys.exit("{NO_START}")
if child == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", ["{{marker}}", "60"])
    os._exit(0)
os.wait()
def runs(pid):
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file: return file.read().startswith(b"{{marker}}")
    except OSError: return False
while not any(runs(pid) for pid in os.listdir("/proc") if pid.isdigit()): time.sleep(0.001)
print("{UP}", flush=True)
if {{stays}}: time.sleep(60)
"""
