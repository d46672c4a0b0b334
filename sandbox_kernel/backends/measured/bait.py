"""Files, sockets and processes of the host that canaries try to reach, and checks that the host can reach them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sandbox_kernel.backends.measured.canary_programs import REACH


@dataclass(frozen=True)
class Bait:
    """The objects of the host that a canary tries to reach."""

    folder: str
    secret: str
    variable: str
    tcp: int
    udp: int
    abstract: str
    pathname: str
    udp_socket: socket.socket
    process: int

    def datagrams(self) -> bool:
        """Return whether a datagram was received."""
        self.udp_socket.setblocking(False)
        try:
            return bool(self.udp_socket.recv(16))
        except BlockingIOError:
            return False


@contextlib.contextmanager
def set_out() -> Iterator[Bait]:
    """Make the bait, and remove it at the end of the block."""
    # The path of a socket may have 107 bytes; with a long TMPDIR the report must still work.
    roomy = len(tempfile.gettempdir()) < 60
    folder = tempfile.mkdtemp(prefix="sandbox-kernel-canary-", dir=None if roomy else "/tmp")
    os.chmod(folder, 0o755)
    secret, variable = secrets.token_hex(16), f"CANARY_{secrets.token_hex(8).upper()}"
    # /proc shows only variables from the start of a process, so one is started with the variable.
    process = subprocess.Popen(
        ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={variable: secret}, close_fds=True
    )
    tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
    abstract, pathname = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    try:
        with open(f"{folder}/secret", "w") as file:
            file.write(secret)
        os.chmod(f"{folder}/secret", 0o644)
        os.environ[variable] = secret
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", 0))
        name = f"sandbox-kernel-canary-{secret}"
        abstract.bind(f"\0{name}")
        pathname.bind(f"{folder}/socket")
        for listener in (tcp, abstract, pathname):
            listener.listen()
        tcp_port, udp_port = tcp.getsockname()[1], udp.getsockname()[1]
        yield Bait(folder, secret, variable, tcp_port, udp_port, name, f"{folder}/socket", udp, process.pid)
    finally:
        os.environ.pop(variable, None)
        process.kill()
        process.communicate()
        for closed in (tcp, udp, abstract, pathname):
            closed.close()
        shutil.rmtree(folder, ignore_errors=True)


#: Program for a process outside the sandbox, with the environment of the host.
_OUTSIDE = f"""{REACH}
import json, sys
print(json.dumps({{
    "reached": reached,
    "variable": sys.argv[1] in os.environ,
    "cmdline": open(f"/proc/{{sys.argv[2]}}/cmdline", "rb").read().hex() == sys.argv[3],
}}))
"""


@dataclass(frozen=True)
class Outside:
    """Results of the same actions outside the sandbox; ``reached`` has the errno of each line (0: success)."""

    reached: Mapping[str, int] = field(default_factory=dict)
    variable: bool = False
    cmdline: bool = False


def look_outside(bait: Bait, cmdline: str) -> Outside:
    """Run the actions of the canary in a process outside the sandbox. If it cannot start, the result is empty."""
    command = [sys.executable, "-I", "-c", _OUTSIDE, bait.variable, str(os.getpid()), cmdline]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=True)
        return Outside(**json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return Outside()


def controls(bait: Bait, outside: Outside) -> dict[str, bool]:
    """Run the actions of the canary on the host, where they are allowed. Read the canary's datagrams before this."""

    def works(act: Callable[[], object]) -> bool:
        try:
            act()
        except OSError:
            return False
        return True

    def connect(family: int, kind: int, address: str | tuple[str, int]) -> None:
        with socket.socket(family, kind) as sock:
            sock.settimeout(1)
            sock.connect(address)

    def read(path: str) -> None:
        with open(path, "rb") as file:
            file.read(1)

    def send() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", ("127.0.0.1", bait.udp))
        bait.udp_socket.settimeout(1)
        bait.udp_socket.recv(16)

    def watch() -> None:
        fd = ctypes.CDLL(None, use_errno=True).inotify_init()
        if fd < 0:
            raise OSError(ctypes.get_errno(), "no file watch is left to this user")
        os.close(fd)

    return {
        "read a secret outside": works(lambda: read(f"{bait.folder}/secret")),
        "write outside": works(lambda: open(f"{bait.folder}/control", "w").close()),
        "read the host's password hashes": works(lambda: read("/etc/shadow")),
        "see the host's environment": works(lambda: read(f"/proc/{bait.process}/environ")),
        "connect to host TCP": works(lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", bait.tcp))),
        "connect to a host abstract socket": works(
            lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{bait.abstract}")
        ),
        "connect to a host socket file": works(lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, bait.pathname)),
        "send UDP to the host": works(send),
        "inherit the host's environment": outside.variable,
        "see host processes": outside.cmdline,
        "be root": os.geteuid() == 0,
        "take every file watch of the user": works(watch),
        "write host settings": works(lambda: open("/proc/sys/kernel/core_pattern", "r+b").close()),
    }
