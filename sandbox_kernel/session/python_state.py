"""Python sessions of processes that can be saved, loaded and forked: variables as a file that only a jail reads.

The host copies the file and never looks into it: variables are pickled and made again inside the jail. The header, the
files of the work folder and the checks are those of ``saved_file.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.errors import InvalidRequest, SandboxError, SessionError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import MIB, quoted
from sandbox_kernel.model import ExecResult, notes
from sandbox_kernel.receipt import one_line
from sandbox_kernel.session.cell.request import CellEvents, CellRequest
from sandbox_kernel.session.saved_file import SavedHeader, SavedSession, SaveReport, State, read_saved, write_saved
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.supervisor import WorkerSupervisor
from sandbox_kernel.session.take_state import cloudpickle_source, state_answer, take_variables
from sandbox_kernel.session.tree.node import Node
from sandbox_kernel.session.tree.variables import can_run_again, find_maker
from sandbox_kernel.session.worker.jailed_worker import JailedWorker
from sandbox_kernel.workspace.transfer import FolderState, put_folder
from sandbox_kernel.workspace.tree.rooted import Rooted

#: Tells a file of such a session from one of a WebAssembly guest.
GUEST = "variables of a Python session 1"
#: How long variables may take to be made again.
_LOAD_S = 120.0
#: How long cells that make again what cannot be stored are looked for.
_MAKERS_S = 2.0
#: What is said of the files of a session that worked on a folder of the user, and is loaded in one that does not.
_NOT_HERE = (
    "the session worked on a folder of yours, and only what it changed there is saved; load it with --here, or in "
    "Sandbox(here=folder), to have the other files too"
)
_MOST_NAMES, _MOST_NAME = 10_000, 500
#: The most characters of the cells that make variables again.
_MOST_RECIPES = 1 << 20
#: How many copies of states a session holds that uses a GPU; each may be as large as the session.
MOST_COPIES = 2


class PythonSession(Session):
    """A Python session of processes. ``restored`` says what a loaded or forked session began with; None for others."""

    def __init__(self, supervisor: WorkerSupervisor, open_copy: Callable[[str | None], PythonSession]) -> None:
        self._open_copy = open_copy
        self.restored: SaveReport | None = None
        #: Copies of states by node, oldest first, in a session that uses a GPU: it makes no checkpoints, but can be
        #: saved. ``checkpoint`` makes a copy, ``checkout`` and a rollback load it.
        self._copies: dict[int, State] = {}
        super().__init__(supervisor)

    @host_trouble()
    def save(self, path: str | os.PathLike[str]) -> SaveReport:
        """Write the variables and the files of the work folder to a file, not the history. The session goes on.

        The file is complete or not there at all, and only a saved session is replaced. Returns which variables are
        stored, which will be made again by their cells, and which are lost. Raises ``SessionError`` when the state or
        the file could not be written, or ``interrupt`` was called meanwhile.
        """
        target = file_name(path)
        with contextlib.closing(Stop()) as stop, self._stoppable(stop):
            state, report = self._take(stop)
            header = SavedHeader(
                language=str(self.language), guest=GUEST, guest_version="Python", memory_mb=self.memory_mb
            )
            write_saved(target, header, state, lambda: stop.raised)
        return report

    @host_trouble()
    def fork(self, name: str | None = None) -> PythonSession:
        """Return a second session in the same state, behind walls of its own; ``restored`` names what is missing."""
        state = self._take_now()
        copy = self._open_copy(name)
        try:
            copy._restore(state)
        except BaseException:
            copy.close()
            raise
        return copy

    def checkpoint(self, name: str, state: Node | int | str | None = None) -> Node:
        """See ``Session``. In a session that uses a GPU the present state is copied to the host's memory."""
        node = super().checkpoint(name, state)
        worker = self._supervisor.live
        if worker is not None and worker.on_gpu and node.present:
            with host_trouble():
                taken = self._take_now()
            self._copies.pop(node.id, None)
            self._copies[node.id] = taken
            while len(self._copies) > MOST_COPIES:
                del self._copies[next(iter(self._copies))]
        return node

    def checkout(self, where: Node | int | str) -> ExecResult:
        """See ``Session``. A state that a checkpoint of a session with a GPU has copied is loaded."""
        with host_trouble(), self._supervisor.turn() as worker:
            node = worker.tree.find(where)
            if node in self._copies and not worker.tree.records[node].pid:
                return self._load_copy(worker, node)
        return super().checkout(where)

    def _run(self, request: CellRequest, events: CellEvents, stop: Stop, *, settles: bool = False) -> ExecResult:
        before = self._supervisor.live
        left = before.tree.present if before is not None else 0
        result = super()._run(request, events, stop, settles=settles)
        if not result.rolled_back or not self._copies:
            return result
        with host_trouble(), self._supervisor.turn() as worker:
            if worker is not before:
                return result
            # The nearest copy, if it is nearer than the state that the rollback went to.
            line = worker.tree.line(left)
            newer = line[: line.index(worker.tree.present)] if worker.tree.present in line else line
            node = next((node for node in newer if node in self._copies), None)
            if node is None:
                return result
            try:
                found = self._load_copy(worker, node, line.index(node)).notes
            except SessionError as error:
                found = (notes.copy_not_loaded(str(worker.tree.records[node]), error),)
        return replace(result, notes=(*result.notes, *found))

    def _load_copy(self, worker: JailedWorker, node: int, cells: int = 0) -> ExecResult:
        """Go to the nearest living state before a node, and make the node's variables again from its copy."""
        tree = worker.tree
        where = str(tree.records[node])
        start = tree.records[tree.replayed(node)[0]].parent
        assert start is not None, "the beginning lives, or nothing does"
        back = self._supervisor.go_to(worker, start, f"checkout of {where}")
        self._supervisor.settle(worker)
        report = self._make_again(worker, self._copies[node])
        worker.on_gpu = True
        worker.recommit(node, by_cell=False)
        return self._supervisor.moved(back, notes.copy_loaded(where, cells, report.lost))

    @host_trouble()
    def take_over(self, other: PythonSession, *, files: bool = True) -> None:
        """Begin with the state of another session, which goes on; called once, before the first cell.

        This one may have other rights. Without ``files``, those of the other's work folder do not come along.
        """
        state = other._take_now()
        self._restore(state if files else replace(state, folder=FolderState()))

    def load(self, saved: SavedSession) -> None:
        """Begin with a saved state; called once, before the first cell. Closes the session when that fails."""
        try:
            self._restore(saved.state)
        except SandboxError as error:
            self.close()
            raise InvalidRequest(f"{saved.path!r} cannot be loaded: {error}") from None

    def _take_now(self) -> State:
        with contextlib.closing(Stop()) as stop, self._stoppable(stop):
            return self._take(stop)[0]

    def _take(self, stop: Stop) -> tuple[State, SaveReport]:
        """Return the state, with the cells that make what it lacks, and the report. ``interrupt`` ends it."""
        with self._supervisor.turn() as worker:
            worker.look_at_variables()
            folder = self._supervisor.files.state(worker)
            state = take_variables(worker, self.memory_mb, stop, self._rights().environment)
            found = _report(state.report)
            recipes: dict[str, str] = {}
            remade: list[str] = []
            length = 0
            line = [worker.tree.records[node] for node in worker.tree.line()]
            until = time.monotonic() + _MAKERS_S
            for name in found.lost:
                if stop.raised or time.monotonic() > until:
                    break
                made = find_maker(line, worker.tree.variables_at, name)
                length += len(made.code) * len(made.names) if made is not None else 0
                if made is not None and length <= _MOST_RECIPES and can_run_again(made.code):
                    remade.append(name)
                    # What the same cell made may refer to it, so it comes from the same run of the cell.
                    recipes.update(dict.fromkeys(made.names, made.code))
        left = {name: why for name, why in found.lost.items() if name not in remade}
        report = replace(found, recomputed=tuple(remade), lost=left, files=folder.left_out)
        return replace(state, folder=folder, recipes=recipes), report

    def _restore(self, state: State) -> None:
        with self._supervisor.turn() as worker:
            found = self._make_again(worker, state)
            worker.begin_again()
        self.restored = found

    def _make_again(self, worker: JailedWorker, state: State) -> SaveReport:
        """Put the files of a state into the work folder and let the worker make its variables again."""
        self._supervisor.files.before_loading(worker)
        with Rooted(worker.jail.box_fd) as box:
            files = {**state.folder.left_out, **put_folder(state.folder, box)}
        self._supervisor.files.loaded(worker, state.folder.saved_ns)
        if state.folder.is_layer and not self._supervisor.files.here(worker):
            files["."] = _NOT_HERE
        order = json.dumps({"recipes": dict(state.recipes), "cloudpickle": cloudpickle_source()})
        answer = state_answer(worker.ask("load", order, 0, _LOAD_S, state.memory.fileno()).answer)
        if answer.report is None:
            raise SessionError(f"its variables could not be made again: {one_line(str(answer.problem), 300)}")
        return replace(_report(answer.report), files=files)


def _report(told: SaveReport) -> SaveReport:
    """Return a report of the worker without what is no name of a variable, module or setting."""

    def names(listed: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in listed[:_MOST_NAMES] if _is_dotted(name) and "." not in name)

    def reasons(listed: Mapping[str, str]) -> dict[str, str]:
        named = [(name, one_line(why, 300)) for name, why in listed.items() if _is_dotted(name)]
        return dict(named[:_MOST_NAMES])

    stored, recomputed = names(told.stored), names(told.recomputed)
    return SaveReport(stored=stored, recomputed=recomputed, lost=reasons(told.lost), changed=reasons(told.changed))


def _is_dotted(name: str) -> bool:
    return len(name) <= _MOST_NAME and all(part.isidentifier() for part in name.split("."))


def read_python(path: str | os.PathLike[str], memory_mb: int) -> SavedSession | None:
    """Read a saved Python session of processes; None when the file is one of another kind.

    One that needs more than ``memory_mb`` is refused before its memory is read: a stranger's file may say anything.
    """

    class _Other(Exception):
        """Raised when the file is one of another kind."""

    def fitting(header: SavedHeader) -> None:
        if header.guest != GUEST:
            raise _Other
        if header.memory_bytes > memory_mb * MIB:
            raise InvalidRequest(
                f"{str(path)!r} holds variables of {-(-header.memory_bytes // MIB)} MB, and the session may have "
                f"{memory_mb} MB; load it with more memory (memory_mb, --memory)"
            )

    with contextlib.suppress(_Other):
        return read_saved(file_name(path), fitting)
    return None


def file_name(path: str | os.PathLike[str]) -> str:
    """Return a path on the host as text; raises ``InvalidRequest`` when it cannot be one."""
    try:
        name = os.fspath(path)
    except TypeError:
        name = ""
    if not isinstance(name, str) or not name or "\0" in name:
        raise InvalidRequest(f"a session is saved to a path, got {quoted(path)}")
    return name
