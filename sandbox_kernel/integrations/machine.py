"""A sandbox that is used like a small machine: commands one after the other, and files by their absolute paths.

It is one command session: files stay from command to command, variables and the working directory do not.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import ExecutionFailed, InvalidRequest, PathTraversal
from sandbox_kernel.jail.walls import WORK
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, DEFAULT_TIMEOUT_S, MIB, Limits
from sandbox_kernel.model import ExecResult, Status
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.session.open_session import open_session

#: Where files wait on their way in and out. In the work folder, because the host reads and writes only there.
_TRANSFER = ".machine"
#: Exit codes of the shell functions below, and the errors they mean; every other code is a denial.
_DIRECTORY, _MISSING, _DENIED, _LONG = 21, 22, 23, 24
_ERRORS = {_DIRECTORY: errno.EISDIR, _MISSING: errno.ENOENT, _LONG: errno.EFBIG}


@dataclass(frozen=True, kw_only=True)
class MachineSize:
    """How large a machine is: memory and disk in MB, and the most output of one command in bytes."""

    memory_mb: int = DEFAULT_MEMORY_MB
    disk_mb: int = 1024
    output_bytes: int = 10 * MIB


class SandboxMachine:
    """One machine, until ``close``. Safe to use from several threads; commands wait for each other."""

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        size: MachineSize | None = None,
        functions: Mapping[str, Callable[..., object]] | None = None,
    ) -> None:
        self.size = size or MachineSize()
        self._box = Sandbox(policy, functions=functions)
        limits = Limits(disk_mb=self.size.disk_mb, output_bytes=self.size.output_bytes, processes=256, open_files=1024)
        self._session = open_session(
            self._box.backend,
            "command",
            memory_mb=self.size.memory_mb,
            checkpoints=1,
            limits=limits,
            functions=self._box._functions,
        )
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    def close(self) -> None:
        """End the machine with everything that runs in it. May be called twice."""
        self._session.close()
        self._box.destroy()

    def run(
        self,
        command: str | Sequence[str],
        *,
        stdin: str | bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        together: bool = False,
    ) -> ExecResult:
        """Run a shell line, or a program and its arguments. ``together``: standard error goes to standard output."""
        for name in env or {}:
            if not name.isidentifier() or not name.isascii():
                raise InvalidRequest(f"{name!r:.80} is no name of a variable; use letters, digits and _")
        given = [f"export {name}={shlex.quote(value)}" for name, value in (env or {}).items()]
        given.append(f"cd -- {shlex.quote(cwd)}" if cwd else f"cd {WORK}")
        started = f"bash -c {shlex.quote(command)}" if isinstance(command, str) else shlex.join(command)
        code = " && ".join([*given, f"exec {started}"])
        with self._lock:
            source = ""
            if stdin is not None:
                source = f"{_TRANSFER}/{next(self._numbers)}"
                with _in_transfer(source):
                    self._session.write_file(source, stdin.encode() if isinstance(stdin, str) else stdin)
            # The file of its standard input goes when it is open.
            taken = f"rm -f {source}; " if source else ""
            cell = f"cd {WORK}; {{ {taken}( {code} ); }} < {source or '/dev/null'}{' 2>&1' if together else ''}"
            result = self._session.run(cell, DEFAULT_TIMEOUT_S if timeout is None else timeout)
            if source and result.rolled_back:
                self._session.run(f"rm -f {WORK}/{source}")
            return result

    def write(self, path: str, data: bytes) -> None:
        """Write a file; makes its folders. A relative path begins at ``/box``. Raises the ``OSError`` of ``open``."""
        target = self._quoted(path)
        done = self.run(
            f"[ ! -d {target} ] || exit {_DIRECTORY}; "
            f'mkdir -p -- "$(dirname -- {target})" && cat > {target} || exit {_DENIED}',
            stdin=data,
        )
        self._check(done, path)

    def read(self, path: str, most_bytes: int = 1 << 62) -> bytes:
        """Return a file. Relative paths begin at ``/box``. Raises the ``OSError`` of ``open``, or ``EFBIG``."""
        most = min(most_bytes, self.size.disk_mb * MIB)  # a program may make a sparse file of it meanwhile
        source, name = self._quoted(path), f"{_TRANSFER}/{next(self._numbers)}"
        with self._lock:
            done = self.run(
                f"[ ! -d {source} ] || exit {_DIRECTORY}; [ -e {source} ] || exit {_MISSING}; "
                f"[ -r {source} ] || exit {_DENIED}; [ $(stat -Lc %s -- {source}) -le {most} ] || exit {_LONG}; "
                f"mkdir -p {_TRANSFER}; cat -- {source} > {name}"
            )
            self._check(done, path)
            try:
                with _in_transfer(path):
                    return self._session.read_file(name, max_bytes=most)
            finally:
                self._session.run(f"rm -f {WORK}/{name}")

    @staticmethod
    def _quoted(path: str) -> str:
        if not isinstance(path, str) or not path or "\0" in path:
            raise InvalidRequest(f"{path!r:.100} is no path; give one like /box/data.txt")
        return shlex.quote(path if path.startswith("/") else f"./{path}")

    @staticmethod
    def _check(done: ExecResult, path: str) -> None:
        if not done.ok:
            number = _ERRORS.get(done.exit_code or 0, errno.EACCES)
            raise OSError(number, f"{os.strerror(number)}: {done.stderr.strip()[-200:]}".rstrip(": "), path)


@contextlib.contextmanager
def _in_transfer(path: str) -> Iterator[None]:
    """What a program puts in the way of a file, or makes of it meanwhile, is an error that frameworks expect."""
    try:
        yield
    except (ExecutionFailed, InvalidRequest, PathTraversal) as error:
        raise PermissionError(errno.EACCES, str(error), path) from None


def ended(result: ExecResult, timeout: float) -> tuple[int, str]:
    """Return the exit code of a command, as a shell has it, and why it was stopped; empty when it was not."""
    if result.status is Status.TIMEOUT:
        return 124, f"the command was stopped after {timeout:g} s and its changes were undone"
    if result.exit_code is None:
        return 137, f"the command was stopped: {'; '.join(result.notes)}"
    return result.exit_code, ""
