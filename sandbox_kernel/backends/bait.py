"""What the host puts out for the canaries to reach, and the proof that it can be reached where that is allowed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Bait:
    """What the host has put out to be reached."""

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
        """Whether anything was received."""
        self.udp_socket.setblocking(False)
        try:
            return bool(self.udp_socket.recv(16))
        except BlockingIOError:
            return False


@contextlib.contextmanager
def set_out() -> Iterator[Bait]:
    """Put out the bait, and take it in again."""
    # A socket's path may have 107 bytes; a long TMPDIR must not break the report.
    roomy = len(tempfile.gettempdir()) < 60
    folder = tempfile.mkdtemp(prefix="sandbox-kernel-canary-", dir=None if roomy else "/tmp")
    os.chmod(folder, 0o755)
    secret, variable = secrets.token_hex(16), f"CANARY_{secrets.token_hex(8).upper()}"
    # What is set later does not show in /proc, so one process of the host is started with the variable.
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


def controls(bait: Bait) -> dict[str, bool]:
    """The same acts from the host, where they are allowed."""

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

    return {
        "read a secret outside": works(lambda: read(f"{bait.folder}/secret")),
        "write outside": os.access(bait.folder, os.W_OK),
        "read the host's password hashes": works(lambda: read("/etc/shadow")),
        "see the host's environment": works(lambda: read(f"/proc/{bait.process}/environ")),
        "connect to host TCP": works(lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", bait.tcp))),
        "connect to a host abstract socket": works(
            lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{bait.abstract}")
        ),
        "connect to a host socket file": works(lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, bait.pathname)),
    }
