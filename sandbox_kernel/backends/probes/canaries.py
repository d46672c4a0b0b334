"""Runs the canaries: small hostile programs that try forbidden actions in a jail like those that run requests.

Each canary has a control: the same action must succeed where it is allowed, or the line says "not testable here". The
host makes the bait (a secret file, listeners on loopback, a variable in its environment), the canary tries to reach it,
inside and in an ordinary process outside, and the outcome is the evidence.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

from sandbox_kernel.backends.probes.canary_programs import DAEMON, LIMIT_OF, LOOK, NO_START, TRIALS, UP, Trial
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status

Run = Callable[[ExecRequest], ExecResult]
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Measurement:
    """One line of the report. ``enforced`` is None when it could not be measured here.

    ``absent``: the host lacks the object or may not do the action itself, so nothing had to be prevented.
    """

    area: str
    name: str
    enforced: bool | None
    mechanism: str
    evidence: str
    milliseconds: float = 0.0
    absent: bool = False

    @property
    def kept(self) -> bool:
        """Whether this line supports a promise."""
        return self.enforced is True or self.absent


@dataclass(frozen=True, kw_only=True)
class Mechanisms:
    """Names of the mechanisms behind each kind of line, for this backend and host."""

    walls: str
    filter: str
    memory: str
    processes: str
    cpu: str
    clock: str = "the host's clock and SIGKILL of the namespace's init"
    disk: str = "size of the memory file system"
    environment: str = "an environment of its own"
    #: Empty when the walls isolate the network.
    network: str = ""


_AREAS = {
    "read a secret outside": "files", "write outside": "files", "read the host's password hashes": "files",
    "inherit the host's environment": "processes", "see the host's environment": "processes",
    "see host processes": "processes", "be root": "processes",
    "take every file watch of the user": "processes",
    "connect to host TCP": "network", "connect to a host abstract socket": "network",
    "connect to a host socket file": "network", "send UDP to the host": "network", "open a vsock": "network",
}  # fmt: skip
#: Seconds after which the daemon is killed, for each try: it must run first, which takes longer on a busy machine.
_KILL_AFTER_S = (0.7, 5.0, 20.0)
#: Lines about objects that a host may lack or may not use itself. All others use bait, which must be reachable.
_OF_THE_HOST = {"read the host's password hashes", "be root", "write host settings"}
_UDP = "send UDP to the host"


def _look(run: Run, words: Mechanisms, walls: bool) -> list[Measurement]:
    with set_out() as (bait, udp):
        arguments = [json.dumps({**bait, "walls": walls})]
        began = time.monotonic()
        result = run(ExecRequest(language=Language.PYTHON, code=LOOK, timeout=20, args=arguments))
        took = (time.monotonic() - began) * 1e3
        arrived = _has_datagram(udp)
        written = os.path.exists(f"{bait['folder']}/written")
        outside = look_outside(bait)
        if _UDP in outside:
            outside[_UDP] = [_has_datagram(udp), ""]
    try:
        found: dict[str, tuple[bool, str]] = dict(json.loads(result.stdout))
        reached: dict[str, int] = dict(found.pop("reached"))  # type: ignore[arg-type]
    except (ValueError, TypeError, KeyError):
        problem = (result.stderr or str(result.status)).strip()[-200:]
        return [
            Measurement(area, name, None, words.walls, f"canary failed: {problem}") for name, area in _AREAS.items()
        ]
    lines = []
    for name, (succeeded, said) in found.items():
        area = _AREAS.get(name, "kernel")
        mechanism = words.filter if area == "kernel" and name != "write host settings" else words.walls
        if name == "open a vsock":
            mechanism = words.filter  # no namespace isolates vsock
        elif name == "inherit the host's environment":
            mechanism = words.environment
        elif area == "network":
            mechanism = words.network or words.walls
        enforced: bool | None = not succeeded and not (name == "write outside" and written)
        if name == _UDP and succeeded and not arrived:
            # Sending a datagram always succeeds; the promise holds when none arrived at the host's socket.
            enforced, said = True, "sent into its own empty network; nothing arrived"
        absent = False
        if enforced and name in reached:
            enforced, absent, said = _by_answers(reached[name], outside.get("reached", {}).get(name), said)
        elif enforced and name not in outside:
            enforced, said = None, f"no ordinary process could be asked; inside: {said}"
        elif enforced and not outside[name][0]:
            enforced, absent = None, name in _OF_THE_HOST
            said = f"the host itself could not do it either; inside: {said}"
        elif enforced:
            said = f"{said}; outside: goes through"
        lines.append(Measurement(area, name, enforced, mechanism, said, took / len(found), absent))
    return lines


def _by_answers(inside: int, outside: int | None, said: str) -> tuple[bool | None, bool, str]:
    """Return whether the sandbox refused a system call: a process outside then gets another error."""
    if outside is None:
        return None, False, f"no ordinary process could be asked; inside: {said}"
    answer = errno.errorcode.get(outside, str(outside)) if outside else "goes through"
    if inside == outside:
        return None, True, f"an ordinary process gets the same answer here ({answer}); inside: {said}"
    return True, False, f"{said}; outside: {answer}"


def _try_limit(run: Run, words: Mechanisms, trial: Trial) -> Measurement:
    mechanism = {
        "time": words.clock, "memory": words.memory, "memory shared between processes": words.memory,
        "processes": words.processes, "disk": words.disk, "open files": "RLIMIT_NOFILE",
        "CPU time": words.cpu, "output": "head and tail kept by the host",
    }[trial.name]  # fmt: skip
    began = time.monotonic()
    tried = ExecRequest(
        language=Language.PYTHON,
        code=trial.over,
        timeout=trial.timeout,
        memory_limit_mb=trial.memory_mb,
        limits=trial.limits,
    )
    try:
        over, below = run(tried), run(replace(tried, code=trial.below, timeout=trial.below_timeout))
    except SandboxError as error:
        return Measurement("limits", trial.name, None, "", f"could not be tried: {error}")
    took = (time.monotonic() - began) * 1e3
    evidence = f"{trial.exceeds}: {ending(over)}; {trial.stays}: {ending(below)}"
    enforced: bool | None = over.limit == LIMIT_OF[trial.name]
    if below.status is not Status.OK or below.limit is not None:
        enforced = None
    if NO_START in over.stdout and NO_START in below.stdout:
        enforced, mechanism, evidence = True, words.filter, f"{NO_START} under this policy"
    return Measurement("limits", trial.name, enforced, mechanism, evidence, took)


def ending(result: ExecResult) -> str:
    """Return how a run ended as text, with the last line of a program that failed."""
    if result.limit is not None:
        return f"{result.status}, stopped at the {result.limit} limit"
    last = result.stderr.strip().splitlines()[-1:] if result.status is Status.FAILED else []
    return ": ".join([str(result.status), *last])[:300]


def _survivors(run: Run, words: Mechanisms, *, killed: bool) -> Measurement:
    """Check that a daemon in its own process session ends with its run, both after a normal end and after a kill."""
    marker = f"canary-{secrets.token_hex(8)}"
    code = DAEMON.replace("{marker}", marker).replace("{stays}", str(killed))
    began = time.monotonic()
    for seconds in _KILL_AFTER_S if killed else (20.0,):
        result = run(ExecRequest(language=Language.PYTHON, code=code, timeout=seconds))
        if UP in result.stdout or result.status is not Status.TIMEOUT:
            break
    alive = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if marker.encode() in file.read():
                alive.append(pid)
    ran = UP in result.stdout and result.status is (Status.TIMEOUT if killed else Status.OK)
    enforced = False if alive else True if ran else None
    seen = "a double-forked daemon was seen to run" if UP in result.stdout else "no daemon was seen to run"
    evidence = f"{seen} ({result.status}); {len(alive)} of it left afterwards"
    mechanism = words.clock
    if NO_START in result.stderr:
        enforced, mechanism, evidence = True, words.filter, f"{NO_START} under this policy"
    took = (time.monotonic() - began) * 1e3
    name = "survive the kill" if killed else "outlive the run"
    return Measurement("processes", name, enforced, mechanism, evidence, took)


def measure(
    run: Run, words: Mechanisms, *, walls: bool = True, on_progress: OnProgress | None = None
) -> tuple[Measurement, ...]:
    """Run every canary. Without ``walls``, what would change the host is not tried and counts as not prevented."""
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="sandbox-canary") as threads:
        look = threads.submit(_look, run, words, walls)
        others = [threads.submit(_try_limit, run, words, trial) for trial in TRIALS]
        others += [threads.submit(_survivors, run, words, killed=killed) for killed in (False, True)]
        running: list[Future[Any]] = [look, *others]
        for number, _ in enumerate(as_completed(running), 1):
            if on_progress is not None:
                on_progress(number, len(running))
    return (*look.result(), *(other.result() for other in others))


# Files, sockets and processes of the host that canaries try to reach.


@contextlib.contextmanager
def set_out() -> Iterator[tuple[dict[str, object], socket.socket]]:
    """Make the bait, and remove it at the end of the block. The socket is the one to which datagrams are sent."""
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
        with open("/proc/self/cmdline", "rb") as file:
            cmdline = file.read().hex()
        bait: dict[str, object] = {
            "folder": folder, "variable": variable, "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1],
            "abstract": name, "pathname": f"{folder}/socket", "pid": os.getpid(), "cmdline": cmdline,
            "uid": os.getuid(),
        }  # fmt: skip
        yield bait, udp
    finally:
        os.environ.pop(variable, None)
        process.kill()
        process.communicate()
        for closed in (tcp, udp, abstract, pathname):
            closed.close()
        shutil.rmtree(folder, ignore_errors=True)


def _has_datagram(udp: socket.socket) -> bool:
    udp.setblocking(False)
    try:
        return bool(udp.recv(16))
    except BlockingIOError:
        return False


def look_outside(bait: Mapping[str, object]) -> dict[str, Any]:
    """Run the same canary in an ordinary process of the host, as the control. If it cannot start, nothing is found."""
    command = [sys.executable, "-I", "-c", LOOK, json.dumps({**bait, "walls": False})]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=True)
        return dict(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return {}
