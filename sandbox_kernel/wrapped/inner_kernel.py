"""The kernel inside its jail: builds the walls, starts it on a thread, watches its limits and says how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import socket
import stat
import sys
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sandbox_kernel.backends.outcome import judge_run
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.errors import EnforcerFailed, EnforcerUnavailable, SandboxError
from sandbox_kernel.jail.ending import Verdict
from sandbox_kernel.jail.enforcer import start_jail
from sandbox_kernel.jail.gate_messages import JobFile, Step, receive_with_files
from sandbox_kernel.jail.interpreter import find_python, runtime_grants
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.run_job import OWN_PROCESSES, Job, run_job
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.jail.walls import LANDLOCK, Places, Walls, sizes, with_gpu
from sandbox_kernel.languages.interpreters import shell
from sandbox_kernel.languages.recipe import rlimits, search_path
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import Events
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.untrusted.ansi import plain
from sandbox_kernel.wrapped.lacks import Lacks, refused_packets
from sandbox_kernel.wrapped.needed_files import needed_files
from sandbox_kernel.wrapped.wrap_options import INNER_FILE, WrapOptions

if TYPE_CHECKING:
    from sandbox_kernel.wrapped.folder_changes import KernelFolder

#: The channels in the order of their ports, and the names of the ports in a connection file.
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
#: Ports in the jail's own network, below those that the kernel gives out by itself; also the ends of socket names.
PORTS = (5001, 5002, 5003, 5004, 5005)
#: The host's answers to an offered unix socket, as in ``guest/scripts/run_kernel.py``.
_YES, _NO = b"y", b"n"
_SOCKET_NAME = "kernel"
#: The longest path of a unix socket, without its closing zero.
_LONGEST = 107


class WayOut:
    """One jail's connections to the kernel's channels. ``fileno`` is readable when ``take`` should be called.

    Behind bubblewrap the host cannot enter the jail's network: a program of ours inside (``run_kernel.py``) connects to
    the kernel's ports and passes the open sockets. Behind Landlock the kernel listens on unix sockets in the jail's
    private folder, the program inside says which are there, and the host connects.
    """

    def __init__(self, jail: Jail) -> None:
        self._channel = jail.channel.dup()
        self._channel.setblocking(False)
        self._owner = jail.uid if jail.uid is not None else os.geteuid()
        #: The jail's folder for temporary files, where unix sockets are; -1 where the jail passes sockets.
        self._folder = -1
        if jail.walls.enforcer == LANDLOCK:
            self._folder = os.open(jail.places.tmp, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor, for a poller."""
        return self._channel.fileno()

    def take(self) -> tuple[str, socket.socket] | None:
        """Return a channel's name and its socket, or None. Raises ``EOFError`` at the end, and ``EnforcerFailed``."""
        try:
            data, descriptors = receive_with_files(self._channel, 1, 4)
        except BlockingIOError:
            return None
        if not data and not descriptors:
            raise EOFError
        if len(data) == 1 and data[0] < len(CHANNELS):
            if self._folder >= 0 and not descriptors:
                sock = self._connect(f"{_SOCKET_NAME}-{PORTS[data[0]]}")
                # A socket may be there before it listens.
                self._channel.send(_NO if sock is None else _YES, socket.MSG_DONTWAIT)
                return None if sock is None else (CHANNELS[data[0]], sock)
            if self._folder < 0 and len(descriptors) == 1 and stat.S_ISSOCK(os.fstat(descriptors[0]).st_mode):
                sock = socket.socket(fileno=descriptors.pop())
                if sock.family == socket.AF_INET and sock.type == socket.SOCK_STREAM:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sock.setblocking(False)
                    return CHANNELS[data[0]], sock
                sock.close()
        for fd in descriptors:
            os.close(fd)
        raise EnforcerFailed("gate", "the jail handed over what is no connection to its kernel; it was ended")

    def close(self) -> None:
        """Close what this holds open; connections that were taken stay. May be called twice."""
        self._channel.close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _connect(self, name: str) -> socket.socket | None:
        """Connect to a unix socket of the kernel. The folder's content is hostile: no link is followed."""
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(OSError):
                info = os.fstat(fd)
                # A second name could be that of a socket of the host's.
                if stat.S_ISSOCK(info.st_mode) and info.st_nlink == 1 and info.st_uid == self._owner:
                    sock.setblocking(False)
                    sock.connect(f"/proc/self/fd/{fd}")
                    return sock
        finally:
            os.close(fd)
        sock.close()
        return None


#: A kernel lives until it is shut down; a job must have a time limit.
_FOREVER_S = 10 * 365 * 24 * 3600.0
#: Threads count as processes, and runtimes with a pool of threads have dozens.
LIMITS = Limits(processes=512, open_files=4096, disk_mb=1024, output_bytes=MIB)
#: Address space that runtimes such as V8 and Julia reserve beyond what they use.
_RESERVED_MB = 8192
#: How much of what the program prints is remembered, and the longest line that a cell shows of it.
_MOST_PRINTED, _MOST_WORDS = 8192, 300
_CONNECTION_FILE, _FILTER, _IPYTHON = "connection.json", "filter", ".ipython"
_STARTUP = f"{_IPYTHON}/profile_default/startup"
_PROGRAM = b"import os, sys; from sandbox_guest.scripts import run_kernel; os._exit(run_kernel.main(sys.argv))"
_INTERRUPT = b"i"


@dataclass(frozen=True)
class KernelEnd:
    """How a kernel ended: the verdict of its job, its exit code if it ended by itself, or why it did not start."""

    verdict: Verdict | None = None
    exit_code: int | None = None
    failure: str = ""


class InnerKernel:
    """One kernel in one jail. ``start``, then ``stop`` or wait for ``done``; belongs to one relay."""

    def __init__(self, options: WrapOptions, policy: SandboxPolicy) -> None:
        self.options = options
        self._backend = ProcessBackend(ProcessConfig(pool_size=0, templates=False), options.enforcer, policy)
        assert self._backend.enforcer is not None
        self._enforcer = self._backend.enforcer.name
        self._files = needed_files(options.command, options.env, options.resource_dir)
        #: The user's folder that the kernel works on; None for none.
        self.folder: KernelFolder | None = None
        if options.here:
            from sandbox_kernel.wrapped.folder_changes import KernelFolder  # most kernels work on no folder of the user

            self.folder = KernelFolder(options)
        self.key = secrets.token_hex(32)
        self._stop = Stop()
        self._at_limit = False
        self._printed = ""
        #: Readable when the kernel has ended.
        self.done = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.end = KernelEnd()
        self._jail: Jail | None = None
        self._thread = threading.Thread(target=self._run, name="sandbox-kernel-job", daemon=True)

    def start(self) -> WayOut:
        """Start the jail and the kernel; returns what brings its connections."""
        walls = self._walls()
        self._jail = self.folder.start_jail(walls) if self.folder is not None else start_jail(walls).wait_ready()
        way_out = WayOut(self._jail)
        self._thread.start()
        return way_out

    def interrupt(self) -> None:
        """Send the kernel and its processes SIGINT."""
        with contextlib.suppress(OSError):
            assert self._jail is not None
            self._jail.channel.send(_INTERRUPT, socket.MSG_DONTWAIT)

    def stop(self, *, at_limit: bool = False) -> None:
        """End the kernel and everything in its jail, perhaps because of a limit; ``done`` says when it is over."""
        self._at_limit = self._at_limit or at_limit
        self._stop.set()

    def join(self) -> None:
        """Wait until the jail is gone."""
        if self._thread.ident is not None:
            self._thread.join(30.0)
        if self.folder is not None:
            self.folder.close()

    def lacks(self) -> Lacks:
        """Return what tells what a cell lacked, once the kernel has started."""
        jail = self._jail
        assert jail is not None
        counts = self._enforcer != LANDLOCK and not self._backend.network_env()
        sees_it = self.folder is not None or self._folder(jail.places) != jail.places.work
        refused = partial(refused_packets, jail.init_pid) if counts else None
        place, name = os.path.split(self.options.resource_dir)  # Jupyter's folders of kernels are named as they are
        wraps = shlex.quote(name) if os.path.basename(place) == "kernels" else ""
        return Lacks(refused, "" if sees_it else os.getcwd(), wraps)

    def _walls(self) -> Walls:
        self._backend.check_network()
        python = find_python("python3")
        # Together: a link in a shown folder, such as an environment in a project, cannot be a place of its own.
        runtime = runtime_grants([grant.target for grant in (*python.runtime, *self._files.grants)])
        grants = self._backend.grants.now()
        shown = {grant.target for grant in grants}
        walls = Walls(
            python.executable,
            tuple(grant for grant in runtime if grant.target not in shown),
            grants,
            *sizes(LIMITS, self.options.memory_mb),
            enforcer=self._enforcer,
            templates=False,
            serves=True,
        )
        return with_gpu(walls, self._backend.policy.gpu)

    def _run(self) -> None:
        jail = self._jail
        assert jail is not None
        try:
            with self._backend.egress() as proxy:
                job = self._job(jail.places)
                listen = proxy.start if proxy is not None else None
                outcome = run_job(jail, job, Events(on_output=self._log), on_listener=listen, stop=self._stop)
            code = outcome.exits[-1].code if outcome.exits and outcome.stopped_by is None else None
            self.end = KernelEnd(verdict=judge_run(outcome, job), exit_code=code)
        except SandboxError as error:
            self.end = KernelEnd(failure=str(error))
        finally:
            if self.folder is not None:
                # Keep the files of a kernel that ended by itself or was asked to; a limit leaves no half cell.
                verdict = self.end.verdict
                try:
                    self.folder.leave(keep=verdict is not None and verdict.limit is None and not self._at_limit)
                except (SandboxError, OSError) as error:
                    self._log("stderr", f"changes since the last cell could not be kept: {error}\n")
            jail.destroy()
            jail.forget()
            os.eventfd_write(self.done, 1)

    @property
    def last_words(self) -> str:
        """The last line that the kernel's program printed outside of cells; it may say why it did not come up."""
        lines = self._printed.strip().splitlines()
        return lines[-1][:_MOST_WORDS] if lines else ""

    def _log(self, stream: str, text: str) -> None:
        """Write what the kernel's program prints to the log of the front end, without control sequences."""
        self._printed = (self._printed + plain(text))[-_MOST_PRINTED:]
        sys.stderr.write(plain(text))
        sys.stderr.flush()

    def _job(self, places: Places) -> Job:
        sockets = f"{places.tmp}/{_SOCKET_NAME}" if self._enforcer == LANDLOCK else ""
        if len(os.fsencode(sockets)) + 5 > _LONGEST:
            raise EnforcerUnavailable(
                LANDLOCK, f"sockets of a kernel in {places.tmp!r} have too long names; set TMPDIR to a shorter path"
            )
        connection = {
            "transport": "ipc" if sockets else "tcp",
            "ip": sockets or "127.0.0.1",
            "signature_scheme": "hmac-sha256",
            "key": self.key,
            "kernel_name": "",
            **{f"{channel}_port": port for channel, port in zip(CHANNELS, PORTS, strict=True)},
        }
        files = [JobFile(root=places.cell, name=_CONNECTION_FILE, data=json.dumps(connection).encode(), mode=0o600)]
        # Also for kernels without IPython: which kernel reads it is not known before.
        files.append(JobFile(root=places.tmp, name=f"{_STARTUP}/00-sandbox.py", data=_startup(places)))
        if self._enforcer == LANDLOCK:
            # IPython copies this file together with its mode, which nobody may change by path there.
            files.append(JobFile(root=places.tmp, name=f"{_STARTUP}/README", data=b""))
        filter_file, own_file = "", f"{places.cell}/{_CONNECTION_FILE}"
        if (program := self._backend.step_filter()) is not None:
            filter_file = f"{places.cell}/{_FILTER}"
            files.append(JobFile(root=places.cell, name=_FILTER, data=program))
        command = [self._files.program, *(word.replace(INNER_FILE, own_file) for word in self.options.command[1:])]
        processes, memory_mb = LIMITS.processes + OWN_PROCESSES, self.options.memory_mb
        step = Step(
            kind="python",
            argv=["run_kernel", ",".join(map(str, PORTS)), sockets, filter_file, *command],
            source=_PROGRAM,
            cwd=self._folder(places),
            env=self._environment(places),
            rlimits=rlimits(self._enforcer, LIMITS, memory_mb, processes=processes, reserved_mb=_RESERVED_MB),
            no_stdin=True,
            reports=True,
        )
        return Job(
            steps=[step],
            files=files,
            timeout_s=_FOREVER_S,
            memory_bytes=memory_mb * MIB,
            processes=LIMITS.processes,
            output_bytes=LIMITS.output_bytes,
        )

    def _folder(self, places: Places) -> str:
        """Return the working directory: the notebook's folder if the kernel sees it, else the work folder."""
        if self.folder is not None:
            return os.path.join(places.work, self.folder.below) if self.folder.below else places.work
        try:
            here = os.getcwd()
        except OSError:
            return places.work
        shown = (grant.target for grant in self._backend.grants.now())
        return here if any(here == path or here.startswith(f"{path}/") for path in shown) else places.work

    def _environment(self, places: Places) -> dict[str, str]:
        own = {
            # What tools keep in a home does not belong into the user's folder.
            **places.environment(search_path(self._files.program), places.work if self.folder is None else places.tmp),
            "SHELL": shell(),
            "TERM": "xterm-color",
            "XDG_CACHE_HOME": f"{places.tmp}/.cache",
            "IPYTHONDIR": f"{places.tmp}/{_IPYTHON}",
            "MPLCONFIGDIR": f"{places.tmp}/.matplotlib",
        }
        # The kernelspec's own variables, and those that lead the program to its packages.
        given = {**self.options.env, **self._files.env}
        for name in given:
            for known, path in own.items():  # as Jupyter does outside
                given[name] = given[name].replace(f"${{{known}}}", path)
        return {**own, **self._backend.network_env(), **given, **self._backend.policy.env}


def _startup(places: Places) -> bytes:
    """Return what IPython runs first inside: it turns figures and widgets into frames. It leaves no name behind."""
    code = (
        "import sys; p = sys.modules['sandbox_guest'] = type(sys)('sandbox_guest'); "
        f"p.__path__ = [{places.guest!r}]; "
        "from sandbox_guest.python.interactive import in_ipykernel; in_ipykernel.install(shell)"
    )
    return f"exec({code!r}, {{'shell': get_ipython()}})\n".encode()
