"""Opens sessions inside WebAssembly. They work like other sessions and can also be forked, saved and loaded."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.backends.functions.call_server import CallServer
from sandbox_kernel.backends.functions.host_function import HostFunctions
from sandbox_kernel.backends.outcome import NetworkSigns, network_notes
from sandbox_kernel.backends.wasm.packages import usual_indexes
from sandbox_kernel.backends.wasm.prepare import guest_digest, module_of, switches_of
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.backends.wasm.wasm_job import (
    COMPILED,
    FACTS,
    MEMORY,
    RUNTIME_MB,
    WHEELS,
    embedder_rlimits,
    make_walls,
    preopens,
)
from sandbox_kernel.backends.wasm.wheels import Wheels, wheels_mark
from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.jail.gate_messages import Step
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.walls import Walls, Warm
from sandbox_kernel.languages.guest_catalogue import WasmLanguage, catalogue
from sandbox_kernel.limits import DEFAULT_CHECKPOINTS, DEFAULT_SESSION_MEMORY_MB, GRACE_S, MIB, Limits, check_memory_mb
from sandbox_kernel.model import Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.session.cell.request import SessionSpec
from sandbox_kernel.session.open_session import destroyed_if_not_started
from sandbox_kernel.session.python_state import file_name
from sandbox_kernel.session.saved_file import SavedHeader, State, read_saved, write_saved
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.supervisor import WorkerSupervisor
from sandbox_kernel.session.take_state import take_state
from sandbox_kernel.session.worker.jailed_worker import JailedWorker
from sandbox_kernel.session.worker.memory_budget import can_be_sealed
from sandbox_kernel.workspace.folder_link import FolderLink
from sandbox_kernel.workspace.transfer import put_folder

#: Our modules inside the jail: the spare worker, the gate, and, by the guest's entry, the engine that runs its cells.
_WORKER, _GATE = "sandbox_guest.wasm.host_line", "sandbox_guest.session.checkpoint_gate"
_JAVASCRIPT, _PYTHON = "sandbox_guest.wasm.js_session", "sandbox_guest.wasm.python_session"
_LEAST_MB = 64
#: The process limit besides the worker; the session adds its checkpoints to it.
_PROCESSES = 16
#: Languages whose state is the memory of one guest.
WASM_LANGUAGES = (Language.JAVASCRIPT, Language.PYTHON)
_numbers = itertools.count(1)

OnOpen = Callable[[Session], None]


class WasmSession(Session):
    """A session whose state is the memory of a WebAssembly guest: it can be forked, saved to a file and loaded."""

    def __init__(self, opening: _Opening) -> None:
        self._opening = opening
        super().__init__(WorkerSupervisor(opening.spec, opening.begin, opening.share))
        if opening.on_open is not None:
            opening.on_open(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the session to a file of the host: its variables and the files of its work folder, not its checkpoints.

        A file that is there is replaced. Raises ``SessionError`` when the state or the file could not be written.
        """
        target, opening = file_name(path), self._opening
        with self._supervisor.turn() as worker:
            state = take_state(worker)
        header = SavedHeader(
            language=str(opening.spec.language),
            guest=guest_digest(opening.guest) + wheels_mark(opening.backend.wheels),
            guest_version=opening.guest.version,
            memory_mb=opening.spec.memory_mb,
        )
        write_saved(target, header, state)

    @host_trouble()
    def fork(self, name: str | None = None) -> WasmSession:
        """Return a new session, with this ``name``, in this one's state. Its first cell waits for its start."""
        opening = self._opening
        with self._supervisor.turn() as worker:
            state = take_state(worker, for_fork=True)
        share = FolderLink(opening.share.folder) if opening.share is not None else None
        spec = replace(opening.spec, name=name or f"{self.language}-wasm-{next(_numbers)}")
        return WasmSession(replace(opening, spec=spec, state=state, share=share, forked=True))


@dataclass
class _Opening:
    """Everything that is needed to start the worker of a session, the first time and after a crash."""

    backend: WasmBackend
    guest: WasmLanguage
    spec: SessionSpec
    state: State | None
    on_open: OnOpen | None
    share: FolderLink | None
    functions: HostFunctions | None
    #: Whether the state is that of a session here, so that nothing of it has to be found out by starting with it.
    forked: bool = False

    def __post_init__(self) -> None:
        backend, guest = self.backend, self.guest
        backend.check_network()
        backend.check_mounts(guest)
        self._switches = switches_of(guest)
        self._engine = _JAVASCRIPT if guest.entry == "quickjs" else _PYTHON
        with host_trouble():
            self._entry = backend.ready(guest, self._switches)
            self._module = backend.ready(module_of(guest), self._switches)
            self._own = backend.own_folders(guest)
            self._wheels = backend.wheels_for(guest)

    @host_trouble()
    def begin(self) -> JailedWorker:
        """Start a worker. Only the first one gets the given state; later ones start empty."""
        state, self.state = self.state, None
        forked, self.forked = self.forked, False
        jail = self.backend.pool.take(self._walls())
        memory_bytes = (self.spec.memory_mb + RUNTIME_MB) * MIB
        try:
            proxy = self.backend.egress().__enter__()
            sealed = can_be_sealed(self.backend.enforcer.name)
            calls = CallServer(self.functions) if self.functions is not None else None
            worker = JailedWorker(jail, self.spec.checkpoints, memory_bytes, _PROCESSES, sealed, proxy, calls)
        except BaseException:
            jail.destroy()
            raise
        language = self.spec.language
        with destroyed_if_not_started(
            worker, lambda said, error: SessionError(f"the {language} session did not start: {said or error}")
        ):
            if state is not None:
                put_folder(state.folder, worker.copies.box)
            descriptors = (state.memory.fileno(),) if state is not None else ()
            worker.start(self._step(jail, state), (), descriptors, waits=not forked)
        return worker

    def _walls(self) -> Walls:
        """Return the walls around the engine, with a spare worker that has the guest loaded."""
        limits, memory_mb, enforcer = self.spec.limits, self.spec.memory_mb, self.backend.enforcer.name
        entries = [self._entry.path, self._module.path, *(wheels.path for wheels in self._wheels)]
        paths = dict.fromkeys([*entries, *filter(None, self._own.values())])
        runtime = [Grant(path, path, False) for path in paths]
        walls = make_walls(limits, memory_mb, self.backend.policy, enforcer, runtime, given=self.backend.grants)
        known = {
            "module": self._module.file(COMPILED),
            "facts": self._entry.file(FACTS) if FACTS in self._entry.files else None,
            "memory": self._entry.file(MEMORY) if MEMORY in self._entry.files else None,
            "switches": self._switches,
        }
        rlimits = embedder_rlimits(limits, memory_mb + RUNTIME_MB, enforcer)
        # Checkpoints are forks, so forking is allowed. The jail has no other program to execute, and the guest has no
        # call to fork or execute.
        warm = Warm((_WORKER, self._engine, json.dumps(known)), tuple(rlimits.items()))
        return replace(walls, preload=("site", _WORKER, self._engine, _GATE), warm=warm)

    def _step(self, jail: Jail, state: State | None) -> Step:
        booted, policy = bool(self.guest.image), self.backend.policy
        folders = preopens(jail, sees_cell=booted)
        folders = folders if booted else [folder for folder in folders if folder["guest"] not in (".", "/")]
        # Before mounts, so that these do not change the descriptor numbers that a saved session knows.
        folders[4:4] = [
            {"host": path or f"{jail.places.tmp}/own", "guest": name, "writable": not path}
            for name, path in self._own.items()
        ]
        folders += [{"host": found.path, "guest": WHEELS, "writable": False} for found in self._wheels]
        reaches = self.spec.language is Language.PYTHON and (policy.network or policy.network_rules)
        plan = {
            "memory_bytes": self.spec.memory_mb * MIB,
            "preopens": folders,
            "scratch": jail.places.tmp,
            "env": dict(policy.env),
            "elapsed_s": state.elapsed_s if state is not None else 0.0,
            "changes": state is not None and state.changes,
            "indexes": usual_indexes() if reaches else [],
        }
        return Step(kind="session", argv=[json.dumps(plan)], cwd=jail.places.work, env={}, rlimits={})


def open_wasm_session(
    backend: WasmBackend,
    language: str | Language = Language.JAVASCRIPT,
    *,
    name: str | None = None,
    memory_mb: int = DEFAULT_SESSION_MEMORY_MB,
    checkpoints: int = DEFAULT_CHECKPOINTS,
    limits: Limits | None = None,
    on_open: OnOpen | None = None,
    share: FolderLink | None = None,
    functions: HostFunctions | None = None,
) -> WasmSession:
    """Open a session inside WebAssembly; ``on_open`` is called with it, and with each that is forked from it."""
    spoken = Language.parse(language)
    if spoken not in WASM_LANGUAGES:
        known = ", ".join(WASM_LANGUAGES)
        raise InvalidRequest(f"there are no wasm sessions for {spoken}; expected one of: {known}, or backend='process'")
    found = session_guests(spoken)
    # The large Python is used where it was prepared, which only happens when it is asked for; wheels are for the other.
    ready = [] if backend.wheels is not None else [guest for guest in found if backend.is_prepared(guest)]
    guest = (ready or found[-1:])[0]
    spec = _spec(backend, guest, name, memory_mb, checkpoints, Limits.given(limits))
    return WasmSession(_Opening(backend, guest, spec, None, on_open, share, functions))


def load_wasm_session(
    backend: WasmBackend,
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    memory_mb: int = DEFAULT_SESSION_MEMORY_MB,
    on_open: OnOpen | None = None,
    share: FolderLink | None = None,
    functions: HostFunctions | None = None,
) -> WasmSession:
    """Open the session that ``WasmSession.save`` wrote to a file; see ``open_wasm_session`` for the arguments.

    Where the session was saved with less memory than ``memory_mb``, it has that. Raises ``InvalidRequest`` when the
    file is damaged, was saved with another version of the guest, or needs more memory.
    """
    name_of_file = file_name(path)
    check_memory_mb(memory_mb)

    def fitting(header: SavedHeader) -> tuple[WasmLanguage, SessionSpec]:
        guest = _guest_of(header, name_of_file, backend.wheels)
        # The file may be a stranger's: it can lower the limit and never raise it.
        if header.memory_bytes > memory_mb * MIB:
            raise InvalidRequest(
                f"{name_of_file!r} holds {-(-header.memory_bytes // MIB)} MB of memory, and {memory_mb} are allowed; "
                f"if you trust it, load it with the limit that it was saved with: memory_mb={header.memory_mb} "
                f"(%sandbox --memory {header.memory_mb}M)"
            )
        allowed = min(header.memory_mb, memory_mb)
        return guest, _spec(backend, guest, name, allowed, DEFAULT_CHECKPOINTS, Limits())

    saved = read_saved(name_of_file, fitting)
    guest, spec = fitting(saved.header)
    return WasmSession(_Opening(backend, guest, spec, saved.state, on_open, share, functions))


def _guest_of(header: SavedHeader, path: str, wheels: Wheels | None) -> WasmLanguage:
    """Return the guest whose memory a file holds; raises ``InvalidRequest`` when it is missing or another version."""
    try:
        language = Language(header.language)
    except ValueError:
        language = Language.WASM
    if language not in WASM_LANGUAGES:
        raise InvalidRequest(f"{path!r} is a session of {header.language!r}, which cannot be loaded here")
    digest, _, marked = header.guest.partition(" ")
    fitting = [guest for guest in session_guests(language) if digest == guest_digest(guest)]
    if not fitting:
        guest = session_guests(language)[0]
        raise InvalidRequest(
            f"{path!r} was saved with {header.guest_version}; this program has another build of {guest.version}, "
            "which cannot use that memory; load it with the version that saved it"
        )
    if marked != wheels_mark(wheels).strip():
        raise InvalidRequest(
            f"{path!r} was saved {'with other wheels' if marked else 'without wheels'} than this sandbox has; load it "
            "in a sandbox with the same ones (wheels=…)"
        )
    return fitting[0]


def session_guests(language: Language) -> list[WasmLanguage]:
    """Return the guests that can run sessions of a language; for Python the large one, then the light one."""
    guest = catalogue()[language]
    return [guest.session, guest] if guest.session is not None else [guest]


def _spec(
    backend: WasmBackend, guest: WasmLanguage, name: str | None, memory_mb: int, checkpoints: int, limits: Limits
) -> SessionSpec:
    language, least = guest.language, max(_LEAST_MB, guest.memory_mb)
    check_memory_mb(memory_mb)
    if memory_mb < least:
        raise InvalidRequest(f"a {language} session needs at least {least} MB of memory, got {memory_mb}")
    return SessionSpec(
        name=name or f"{language}-wasm-{next(_numbers)}",
        language=language,
        memory_mb=memory_mb,
        checkpoints=checkpoints,
        limits=limits,
        grace_s=GRACE_S["quickjs" if guest.entry == "quickjs" else "python in wasm"],
        backend="wasm",
        isolation="wasm",
        network_notes=lambda _signs, notes, _policy: network_notes(backend.policy, NetworkSigns(), notes),
    )
