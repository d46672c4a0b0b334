"""Runs hostile programs, each bounded by itself, and checks after each that nothing outside was touched.

The invariants: the host answers; no process survives, wherever it went (each carries a mark in its environment); a tree
of sentinels outside is unchanged; the host's memory does not grow; the next run works and sees no residue; secrets are
nowhere in the result; listeners on loopback saw nobody; what ended a run has a name; threads, descriptors, temporary
folders, mounts and control groups are back to what they were (the last four by the ``nothing_left`` fixture).
"""

import json
import os
import resource
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_kernel import ExecRequest, ExecResult, Language, Limits, ProcessBackend, ProcessConfig, SandboxPolicy
from sandbox_kernel.backends.process import shared_pool
from sandbox_kernel.jail.spawner import wait_buried
from sandbox_kernel.jail.template import TemplateJail
from sandbox_kernel.model import describe_end
from tests.waiting import until

SECRET = f"SBX_SENTINEL_{secrets.token_hex(8)}"
#: Every process of an attack has this name in its environment, with a value of its own.
MARK = "SBX_ATTACK"
#: How much the host's memory may grow beside the output that it keeps.
GROWTH_MB = 32


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One hostile program and what must come of it."""

    id: str
    language: str
    code: str
    status: tuple[str, ...]
    limit: str | None = None
    says: tuple[str, ...] = ()
    never_says: tuple[str, ...] = ()
    stdin_mb: int = 0
    timeout: float = 10.0
    memory_mb: int = 256
    limits: Limits = field(default_factory=Limits)
    policy: str = "standard"

    @property
    def listed(self) -> bool:
        """Whether this is a line of the project's attack list; others have a name behind their number."""
        return "-" not in self.id


@dataclass
class Listeners:
    """TCP, UDP and unix listeners on this machine that no attack may reach."""

    #: A loopback address of our own: a stranger who tries ports of 127.0.0.1 does not count as an escape.
    address: str
    tcp_port: int
    udp_port: int
    abstract: str
    pathname: str
    datagram: str
    seen: list[str] = field(default_factory=list)


@contextmanager
def listeners() -> Iterator[Listeners]:
    """Open all four and note whoever comes. They are closed also when one of them cannot be opened."""
    with ExitStack() as opened:
        yield from _listening(opened)


def _listening(opened: ExitStack) -> Iterator[Listeners]:
    tcp, udp = opened.enter_context(socket.socket()), opened.enter_context(socket.socket(type=socket.SOCK_DGRAM))
    unix_abstract, unix_path = (opened.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
    unix_datagram = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    # A socket's path may have 107 bytes, and the folders of tests are long.
    short = tempfile.mkdtemp(prefix="l")
    os.chmod(short, 0o755)
    abstract, pathname, datagram = f"sbx-{secrets.token_hex(6)}", f"{short}/s", f"{short}/d"
    address = "127." + ".".join(str(1 + secrets.randbelow(254)) for _ in range(3))
    tcp.bind((address, 0))
    udp.bind((address, 0))
    unix_abstract.bind(f"\0{abstract}")
    unix_path.bind(pathname)
    unix_datagram.bind(datagram)
    for path in (pathname, datagram):
        os.chmod(path, 0o777)
    for sock in (tcp, unix_abstract, unix_path):
        sock.listen()
    found = Listeners(address, tcp.getsockname()[1], udp.getsockname()[1], abstract, pathname, datagram)
    end_read, end_write = os.pipe()

    def serve() -> None:
        import selectors

        selector = selectors.DefaultSelector()
        names = {tcp: "tcp", udp: "udp", unix_abstract: "abstract", unix_path: "pathname", unix_datagram: "datagram"}
        for sock, name in names.items():
            selector.register(sock, selectors.EVENT_READ, name)
        selector.register(end_read, selectors.EVENT_READ, None)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    selector.close()
                    return
                found.seen.append(key.data)
                selector.unregister(key.fileobj)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield found
    finally:
        os.write(end_write, b"x")
        thread.join()
        os.close(end_read)
        os.close(end_write)
        shutil.rmtree(short)


def sentinel_state(folder: Path) -> list[tuple[object, ...]]:
    """Content, mode, times, inode, links and extended attributes of every sentinel."""
    rows: list[tuple[object, ...]] = []
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        rows.append(
            (str(path), info.st_mode, info.st_ino, info.st_nlink, info.st_mtime_ns, content, *os.listxattr(path))
        )
    return rows


def make_sentinels(folder: Path) -> Path:
    """A small tree outside the sandbox that holds a secret and is open to everybody on the host."""
    tree = folder / "sentinels"
    tree.mkdir()
    (tree / "secret.txt").write_text(SECRET)
    (tree / "writable.txt").write_text("before")
    os.chmod(tree, 0o777)
    for path in tree.iterdir():
        os.chmod(path, 0o666)
    return tree


def prepared(attack: Attack, sentinels: Path, doors: Listeners) -> str:
    """The code of an attack with the places of this machine in it; the host's own environment holds the secret."""
    os.environ["SBX_SENTINEL"] = SECRET
    code = attack.code
    for name, value in {
        "@SENTINELS@": str(sentinels),
        "@ADDRESS@": doors.address,
        "@TCP@": str(doors.tcp_port),
        "@UDP@": str(doors.udp_port),
        "@ABSTRACT@": doors.abstract,
        "@PATHNAME@": doors.pathname,
        "@DATAGRAM@": doors.datagram,
        "@HOSTPID@": str(os.getpid()),
    }.items():
        code = code.replace(name, value)
    return code


def running(mark: str, host: int) -> list[int]:
    """Processes of this machine with a mark in their environment, or in a control group that a host made."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            if _content(entry / "stat").rpartition(b")")[2].split()[:1] in ([], [b"Z"], [b"X"]):
                continue
            groups = _content(entry / "cgroup")
            if mark.encode() in _content(entry / "environ") or f"/sandbox-kernel-{host}-".encode() in groups:
                found.append(int(entry.name))
    return found


def _content(path: Path) -> bytes:
    """A file of /proc; empty when the process is gone or is somebody else's."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def threads() -> list[str]:
    """Threads of this process, but for those that serve all its sandboxes and live as long as it does."""
    assert wait_buried()
    loops = ("sandbox-kernel-net", "sandbox-kernel-functions", "sandbox-kernel-dns")
    ours = ("sandbox-spawner", "sandbox-reaper", "sandbox-root-view", "sandbox-pool", "sandbox-run", *loops)
    return [thread.name for thread in threading.enumerate() if not thread.name.startswith(ours)]


def run_attack(
    attack: Attack, sentinels: Path, doors: Listeners, enforcer: str = "auto", *, forked: bool = False
) -> ExecResult:
    """Run it in a jail that is started for it, or in a spare that a template forked, and then something harmless."""
    config = ProcessConfig(pool_size=1) if forked else ProcessConfig(pool_size=0, templates=False)
    backend = ProcessBackend(config, enforcer, SandboxPolicy.preset(attack.policy))
    mark = f"{attack.id}-{secrets.token_hex(8)}"
    request = ExecRequest(
        language=Language.parse(attack.language),
        code=prepared(attack, sentinels, doors),
        timeout=attack.timeout,
        memory_limit_mb=attack.memory_mb,
        limits=attack.limits,
        stdin=bytes(attack.stdin_mb << 20) or None,
        env={MARK: mark},
    )
    if forked:
        wait_for_fork(backend, request)
    threads_before = threads()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = backend.run(request)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mb < GROWTH_MB + 2 * attack.limits.output_bytes / (1 << 20), f"the host grew by {grown_mb:.0f} MB"
    # Where spares wait they are in groups of ours too; what is left then is found by ``nothing_left``.
    assert running(mark, 0 if forked else os.getpid()) == [], "a process survived its run"
    assert len(threads()) <= len(threads_before), f"threads left: {threads()}"
    again = backend.run(ExecRequest(language=Language.PYTHON, code=RESIDUE, timeout=20))
    assert again.stdout == "clean\n", f"the next run is not clean: {again.stdout} {again.stderr}"
    return result


def wait_for_fork(backend: ProcessBackend, request: ExecRequest) -> None:
    """A spare of the right kind waits, and a template forked it; the test's own time limit ends the wait."""
    pool = shared_pool(backend.config.pool_size)
    walls = backend.walls(request, backend._recipe(request))
    pool.warm(walls)
    until(lambda: pool._kinds[walls].spares)
    assert isinstance(pool._kinds[walls].spares[0], TemplateJail)


def starved() -> float:
    """Seconds that the main thread has waited for a processor so far; nothing where the kernel does not count them."""
    words = _content(Path("/proc/self/schedstat")).split()
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0


def complaints(attack: Attack, result: ExecResult, waited: float = 0.0) -> list[str]:
    """What about a result is not as the attack says it must be; empty when all is well.

    ``waited`` is how long the host itself was kept from a processor meanwhile (``starved``): that is the machine's.
    """
    told = result.stdout + result.stderr
    found = []
    if str(result.status) not in attack.status:
        found.append(f"status {result.status}, expected {' or '.join(attack.status)}")
    if attack.limit is not None and result.limit != attack.limit:
        found.append(f"limit {result.limit}, expected {attack.limit}")
    found += [f"does not say {text!r}" for text in attack.says if text not in told]
    found += [f"says {text!r}" for text in attack.never_says if text in told]
    if SECRET in json.dumps(result.to_dict()):
        found.append("the secret is in the result")
    if str(result.status) in ("timeout", "cpu_limit", "memory_exceeded", "killed") and not has_a_name(result):
        found.append(f"status {result.status}, but nothing says which limit or signal")
    if result.duration > attack.timeout + 1.0 + waited:
        found.append("ran longer than its time limit and a second")
    return found


def has_a_name(result: ExecResult) -> bool:
    """Whether a result says, for programs, what ended it."""
    return result.limit is not None or result.signal is not None or result.exit_code is not None


@contextmanager
def unharmed(folder: Path) -> Iterator[Listeners]:
    """Around an attack of any kind: sentinels, listeners, threads and memory of the host are as before it."""
    sentinels = make_sentinels(folder)
    before, threads_before = sentinel_state(sentinels), len(threads())
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    os.environ["SBX_SENTINEL"] = SECRET
    with listeners() as doors:
        yield doors
        assert doors.seen == [], "a listener of the host was reached"
    assert sentinel_state(sentinels) == before, "a sentinel outside was changed"
    assert len(threads()) <= threads_before, f"threads left: {threads()}"
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) / 1024
    assert grown_mb < GROWTH_MB, f"the host grew by {grown_mb:.0f} MB"


def survive(attack: Attack, folder: Path, enforcer: str = "auto", *, forked: bool = False) -> str:
    """Run an attack and hold it against what must come of it and against the invariants; says how it ended."""
    sentinels = make_sentinels(folder)
    before = sentinel_state(sentinels)
    before_run = starved()
    with listeners() as doors:
        result = run_attack(attack, sentinels, doors, enforcer, forked=forked)
        assert doors.seen == [], "a listener of the host was reached"
    assert sentinel_state(sentinels) == before, "a sentinel outside was changed"
    assert complaints(attack, result, starved() - before_run) == [], (
        result.status,
        result.limit,
        (result.stdout + result.stderr)[-1000:],
    )
    return describe_end(result)


#: Lists whatever a former run could have left for the next one.
RESIDUE = """
import os, signal, sys
# An environment that lies in /tmp on the host is shown there inside, read-only; it is nobody's residue.
shown = {p.split('/')[2] for p in (sys.prefix, sys.base_prefix, sys.executable) if p.startswith('/tmp/')}
home, tmp = os.environ['HOME'], os.environ.get('TMPDIR', '/tmp')
files = os.listdir(home) + [n for n in os.listdir(tmp) if n not in shown]
if home == '/box': files += os.listdir('/dev/shm')
names = sorted(set(os.environ) - {'PATH', 'HOME', 'LANG', 'TMPDIR', 'GIT_CONFIG_NOSYSTEM'})
ignored = [s for s in (1, 2, 3, 13, 15) if signal.getsignal(s) not in (signal.SIG_DFL, signal.default_int_handler)
           and s != signal.SIGPIPE]
print('clean' if not files and not names and not ignored and os.getcwd() == home else (files, names, ignored))
"""
