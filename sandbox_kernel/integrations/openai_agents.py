"""OpenAI Agents SDK: sandboxes for ``SandboxAgent``, each a machine in ``/box``. Needs the extra openai-agents."""

from __future__ import annotations

import asyncio
import io
import shlex
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from agents.sandbox.errors import (
    ExecTimeoutError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import BaseSandboxClient, BaseSandboxSession, SandboxSession, SandboxSessionState
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.integrations.machine import MachineSize, SandboxMachine, ended
from sandbox_kernel.jail.walls import WORK
from sandbox_kernel.model import Status
from sandbox_kernel.policy import SandboxPolicy

_ARCHIVE = f"{WORK}/.machine/workspace.tar"


class SandboxKernelSessionState(SandboxSessionState):  # type: ignore[misc]
    """What the SDK stores of a session. The machine itself does not outlive it; snapshots do."""

    type: Literal["sandbox_kernel"] = "sandbox_kernel"


class SandboxKernelAgentSession(BaseSandboxSession):  # type: ignore[misc]
    """One sandbox of this machine as a session of the SDK."""

    def __init__(self, state: SandboxKernelSessionState, make: Callable[[], SandboxMachine], timeout: float) -> None:
        self.state = state
        self._make, self._timeout = make, timeout
        self._machine: SandboxMachine | None = None

    async def _ensure_backend_started(self) -> None:
        if self._machine is None:
            self._machine = await asyncio.to_thread(self._make)

    async def shutdown(self) -> None:
        """See ``BaseSandboxSession``. May be called twice."""
        machine, self._machine = self._machine, None
        if machine is not None:
            await asyncio.to_thread(machine.close)

    async def running(self) -> bool:
        return self._machine is not None

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        words = [str(word) for word in command]
        limit = self._timeout if timeout is None else timeout
        root = str(self.state.manifest.root)
        result = await asyncio.to_thread(self._used.run, words, cwd=root, timeout=limit)
        if result.status is Status.TIMEOUT:
            raise ExecTimeoutError(command=command, timeout_s=limit)
        code, why = ended(result, limit)
        stderr = f"{result.stderr}\n{why}" if why else result.stderr
        return ExecResult(
            stdout=result.stdout.encode("utf-8", "replace"), stderr=stderr.encode("utf-8", "replace"), exit_code=code
        )

    async def read(self, path: Path, *, user: object = None) -> io.IOBase:
        """See ``BaseSandboxSession``. A sandbox has one user."""
        place = self._place(path, user)
        try:
            return io.BytesIO(await asyncio.to_thread(self._used.read, place))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except OSError as error:
            raise WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: object = None) -> None:
        """See ``BaseSandboxSession``. A sandbox has one user."""
        place = self._place(path, user)
        try:
            await asyncio.to_thread(self._used.write, place, _bytes(data))
        except OSError as error:
            raise WorkspaceArchiveWriteError(path=path, cause=error) from error

    async def persist_workspace(self) -> io.IOBase:
        """See ``BaseSandboxSession``: a tar of the workspace, made inside the sandbox."""
        left_out = [".machine", *(str(path) for path in self._persist_workspace_skip_relpaths())]
        skipped = " ".join(f"--exclude={shlex.quote(f'./{name}')}" for name in left_out)
        root = shlex.quote(str(self.state.manifest.root))
        await self._archived(f"mkdir -p {WORK}/.machine && tar -C {root} {skipped} -cf {_ARCHIVE} .", read=True)
        data = await asyncio.to_thread(self._used.read, _ARCHIVE)
        await self._archived(f"rm -f {_ARCHIVE}", read=True)
        return io.BytesIO(data)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """See ``BaseSandboxSession``: the archive is unpacked inside the sandbox, so it can leave nothing outside."""
        await asyncio.to_thread(self._used.write, _ARCHIVE, _bytes(data))
        root = shlex.quote(str(self.state.manifest.root))
        await self._archived(f"mkdir -p {root} && tar -C {root} -xf {_ARCHIVE}; code=$?; rm -f {_ARCHIVE}; exit $code")

    async def _archived(self, command: str, *, read: bool = False) -> None:
        done = await asyncio.to_thread(self._used.run, command, timeout=120.0)
        if not done.ok:
            kind = WorkspaceArchiveReadError if read else WorkspaceArchiveWriteError
            raise kind(path=Path(str(self.state.manifest.root)), context={"stderr": done.stderr[-300:]})

    @property
    def _used(self) -> SandboxMachine:
        if self._machine is None:
            raise InvalidRequest("this sandbox session has not started or was shut down; await session.start() first")
        return self._machine

    def _place(self, path: Path, user: object) -> str:
        if user is not None:
            raise InvalidRequest("a sandbox of sandbox-kernel has one user; leave out user")
        return str(self.normalize_path(path))


def _bytes(data: io.IOBase) -> bytes:
    content = data.read()
    return content.encode() if isinstance(content, str) else bytes(content)


class SandboxKernelClient(BaseSandboxClient[None]):  # type: ignore[misc]
    """Makes sessions for ``SandboxAgent``: ``RunConfig(sandbox=SandboxRunConfig(client=SandboxKernelClient()))``."""

    backend_id = "sandbox_kernel"
    supports_default_options = True

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        size: MachineSize | None = None,
        timeout: float = 120.0,
        functions: Mapping[str, Callable[..., object]] | None = None,
    ) -> None:
        self._make, self._timeout = partial(SandboxMachine, policy, size, functions), timeout

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: None = None,
    ) -> SandboxSession:
        """See ``BaseSandboxClient``. Relative paths of the manifest are below ``/box``."""
        given = self._validate_manifest_for_create(manifest if manifest is not None else Manifest())
        if str(given.root) == str(Manifest().root):
            given = given.model_copy(update={"root": WORK}, deep=True)
        if not f"{given.root}/".startswith((f"{WORK}/", "/tmp/")):
            raise InvalidRequest(f"the root of a manifest must be below {WORK} or /tmp here, got {given.root!r:.200}")
        number = uuid.uuid4()
        state = SandboxKernelSessionState(
            session_id=number, manifest=given, snapshot=resolve_snapshot(snapshot, str(number))
        )
        return self._wrap_session(SandboxKernelAgentSession(state, self._make, self._timeout))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, SandboxKernelAgentSession):
            raise InvalidRequest(f"this is no session of SandboxKernelClient: {type(inner).__name__}")
        await inner.shutdown()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """See ``BaseSandboxClient``: a new sandbox, with the workspace of the snapshot."""
        if not isinstance(state, SandboxKernelSessionState):
            raise InvalidRequest(f"this is no state of SandboxKernelClient: {type(state).__name__}")
        state.workspace_root_ready = False
        return self._wrap_session(SandboxKernelAgentSession(state, self._make, self._timeout))

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SandboxKernelSessionState)
