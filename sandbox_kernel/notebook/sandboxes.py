"""The sandboxes of a notebook, one for each policy and backend, which run planned cells. Thread-safe."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sandbox_kernel.backends.outcome import make_result
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest, SandboxError, SessionError
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Note, NoteKind, OnInput, Status, notes
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.notebook.autosave import notebook_path
from sandbox_kernel.notebook.options.cell_options import (
    CellOptions,
    changes_place,
    config_of,
    limits_of,
    may_share,
    policy_of,
)
from sandbox_kernel.notebook.options.parse_cell import CellPlan, parse_cell
from sandbox_kernel.notebook.options.variables import (
    WITH_VARIABLES,
    MarkedOutput,
    exchange_files,
    output_file,
    output_value,
    with_variables,
)
from sandbox_kernel.notebook.sessions import Choice, NotebookSessions
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.session.cell.request import CellEvents
from sandbox_kernel.session.session import Session, reaching
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.kept_work import KeptWork
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.prepare import OnProgress as OnPrepare
    from sandbox_kernel.backends.wasm.prepare import PrepareProgress
    from sandbox_kernel.session.debug_link import DebugLink, OnEvent


@dataclass(frozen=True, kw_only=True)
class CellIO(CellEvents):
    """How a cell reaches its notebook. Sessions call it on the thread that runs the cell, other runs on its loop."""

    cancel: asyncio.Event
    number: int | None = None
    #: Hears, on the cell's loop, how far a language is that must be made ready first.
    on_prepare: OnPrepare | None = None
    #: Rights that the cell has and later ones do not.
    once: tuple[Wanted, ...] = ()


#: The result of a cell, and the variables that it handed over (plain JSON values).
CellOutcome = tuple[ExecResult, Mapping[str, object]]
#: The indentation of the first line that is not empty: IPython removes it from all lines, so a comment needs it too.
_FIRST_INDENT = re.compile(r"(?:[ \t]*\n)*([ \t]*)")

Factory = Callable[[SandboxPolicy, str, ProcessConfig], Sandbox]
#: What sandboxes differ in: policy, backend, programs, and the folder of the user that they work on.
BoxKey = tuple[SandboxPolicy, str, ProcessConfig, str | None]


class NotebookSandboxes:
    """The sandboxes and sessions of one notebook. ``close`` ends them all."""

    def __init__(self, factory: Factory | None = None, kept: KeptWork | None = None) -> None:
        self._factory = factory or (lambda policy, backend, config: Sandbox(policy, backend, config=config))
        #: Where the work folder stays when the kernel ends; None where it does not.
        self.kept = kept
        self._lock = threading.Lock()
        self._boxes: dict[BoxKey, Sandbox] = {}
        #: Changes to folders of the user that the last kernel left and no cell has told of: the folder, and how many.
        self.changes_found: list[tuple[str, int]] = []
        self.sessions = NotebookSessions(self.box, kept)
        self._functions = OfferedFunctions()

    async def run(
        self, plan: CellPlan, io: CellIO, *, variables: Mapping[str, str] | None = None, stdin: str | None = None
    ) -> CellOutcome:
        """Run the cell; ``variables`` are JSON texts for its ``-i``, ``stdin`` is the text of ``--stdin-var``."""
        options = plan.options
        text = stdin if stdin is not None else options.stdin
        if not (options.inputs or options.outputs):
            return await self._run(plan, plan.code, text, io), {}
        language = options.effective_language
        if language is Language.WASM:
            raise InvalidRequest("-i and -o: wasm cells take no variables; use --stdin-var or --mount")
        if language not in WITH_VARIABLES:
            return await self._run_with_files(plan, variables or {}, text, io)
        marked = MarkedOutput()
        code = with_variables(language, plan.code, variables or {}, options.outputs, marked.mark)
        if not options.outputs:
            return await self._run(plan, code, text, io), {}

        def unmarked(stream: str, text: str) -> None:
            shown = marked.feed(text) if stream == "stdout" else text
            if shown and io.on_output is not None:
                io.on_output(stream, shown)

        result = await self._run(plan, code, text, replace(io, on_output=unmarked))
        if (rest := marked.close()) and io.on_output is not None:
            io.on_output("stdout", rest)
        result = replace(result, stdout=result.stdout.partition(f"\n{marked.mark}")[0])
        return result, marked.values(language, options.outputs) if result.ok else {}

    async def _run_with_files(
        self, plan: CellPlan, variables: Mapping[str, str], stdin: str | None, io: CellIO
    ) -> CellOutcome:
        """A language that has no statement for variables finds them in files, and leaves them there."""
        box, outputs = self.box(plan.options), plan.options.outputs
        files = exchange_files(variables, outputs)
        for name in outputs:
            # The folder outlives the run: what an earlier cell wrote must not pass for this one's.
            box.write_file(output_file(name), files[output_file(name)])
        result = await self._run(plan, plan.code, stdin, io, files)
        found = outputs if result.ok else ()
        return result, {name: output_value(name, box.read_file(output_file(name))) for name in found}

    async def _run(
        self, plan: CellPlan, code: str, stdin: str | None, io: CellIO, files: Mapping[str, str] | None = None
    ) -> ExecResult:
        options = plan.options
        choice = self.sessions.choose_open(plan)
        if choice.session is None and options.backend == "wasm" and not await self._made_ready(options, io, choice):
            never = make_result(_request(options, code, stdin, files), Status.INTERRUPTED)
            return replace(never, backend="wasm", isolation="wasm", notes=(notes.not_prepared(),))
        if choice.must_open:
            # Opening a session starts processes: not on the loop that serves the page.
            choice = await asyncio.get_running_loop().run_in_executor(None, self.sessions.choose, plan)
        domains = tuple(wanted.what for wanted in io.once if wanted.kind is WantedKind.DOMAIN)
        if choice.session is not None:
            async with reaching(choice.session, domains):
                return await _in_session(choice.session, plan, code, stdin, io)
        plan = replace(plan, options=options.reaching(domains))
        options = plan.options
        result = await self._in_one_cell(plan, code, stdin, io) if choice.one_cell and files is None else None
        if result is None:
            result = await self.box(options).perform(_request(options, code, stdin, files), io, io.cancel)
        # A session of one cell has ended: its state before the cell means nothing to the user.
        back = (NoteKind.ROLLED_BACK, NoteKind.ROLLED_BACK_FURTHER)
        kept = [note for note in result.notes if note.kind not in back]
        kept += [notes.fresh_sandbox(choice.why_fresh)] if choice.why_fresh else []
        return replace(result, rolled_back=False, notes=tuple(kept))

    async def _in_one_cell(self, plan: CellPlan, code: str, stdin: str | None, io: CellIO) -> ExecResult | None:
        """Run a cell in a session of its own, which ends with it; None where there cannot be one."""
        loop = asyncio.get_running_loop()
        session = await loop.run_in_executor(None, self.sessions.open_for_one_cell, plan.options)
        if session is None:
            return None
        try:
            return await _in_session(session, plan, code, stdin, io)
        finally:
            await loop.run_in_executor(None, session.close)

    async def _made_ready(self, options: CellOptions, io: CellIO, choice: Choice) -> bool:
        """Make the language ready, outside of the cell's time. False when interrupted: it goes on for the next cell."""
        tell = io.on_prepare
        if tell is None:
            return True
        loop, box, language = asyncio.get_running_loop(), self.box(options), options.effective_language

        def told(progress: PrepareProgress) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: its cell was interrupted, and is long over
                loop.call_soon_threadsafe(tell, progress)

        def prepare() -> None:
            if not box.is_ready(language, session=choice.must_open):
                box.prepare(language, on_progress=told)

        work = loop.run_in_executor(None, prepare)
        if await done_before(work, io.cancel):
            work.result()
        return work.done()

    def box(self, options: CellOptions) -> Sandbox:
        """The sandbox for these options; made once for each policy, backend and choice of programs."""
        key = policy, _, _, here = _box_key(options)
        with self._lock:
            if key not in self._boxes:
                made = self._made(*key[:3])
                others = ((other, box) for (other, _, _, on), box in self._boxes.items() if on == here)
                like = next((box for other, box in others if may_share(policy, other)), None)
                if like is not None:
                    made.share_files(like)
                elif here is not None:
                    # With the changes to the user's folder that the last kernel left.
                    own = CellOptions(here=options.here, mounts=options.mounts, policy=options.policy)
                    if found := made.work_on(here, changes_place(self.kept, here, policy, own.words())):
                        self.changes_found.append((here, found))
                elif self.kept is not None and may_share(policy, policy_of(CellOptions())):
                    made.keep_files_in(self.kept.files)
                self._boxes[key] = made
            return self._boxes[key]

    def _made(self, policy: SandboxPolicy, backend: str, config: ProcessConfig) -> Sandbox:
        box = self._factory(policy, backend, config)
        if self._functions.given:
            self._functions.give_to(box)
        return box

    def boxes(self) -> list[Sandbox]:
        """Return all sandboxes of the notebook."""
        with self._lock:
            return list(self._boxes.values())

    def not_applied(self) -> tuple[Note, ...]:
        """Return a note for each folder of the user whose changes end with the kernel: none are kept for the next."""
        found = [box.diff() for box in self.boxes() if box.here is not None] if self.kept is None else []
        few = [", ".join([*(display_name(one.path) for one in some[:3]), *["…"][: len(some) > 3]]) for some in found]
        return tuple(notes.not_applied(len(some), names) for some, names in zip(found, few, strict=True) if some)

    def offer_functions(
        self, names: tuple[str, ...], variables: Mapping[str, object] | None, options: CellOptions
    ) -> str:
        """Let cells call functions of the notebook (``%sandbox functions``); returns what they may call now."""
        box = self.box(options)
        if names:
            self._functions.change(names, variables, self.boxes(), self.sessions.with_state().values())
            self.sessions.close(unused=True)  # a new one has the functions
        return self._functions.describe(box, options.effective_language, self.sessions)

    def check_network(self, options: CellOptions, policy: SandboxPolicy) -> None:
        """Raise ``PolicyViolation`` if these walls cannot open the network that a policy allows: no cell would run."""
        enforcer = self.box(options).backend.enforcer
        if enforcer is not None and options.backend != "dask":
            enforcer.check_network(policy)

    def grow(self, before: CellOptions, after: CellOptions) -> tuple[str, ...]:
        """Let the running sessions, and their work folder, follow new defaults; returns what changed, in sentences."""
        if after.allow_net:
            self.check_network(before, policy_of(after))
        told = self.sessions.grow(after)
        if told and before.here == after.here:
            old, key = self.box(before), _box_key(after)
            with self._lock:
                if key not in self._boxes:
                    self._boxes[key] = self._made(*key[:3])
                    self._boxes[key].share_files(old)
        return told

    def warm(self, options: CellOptions) -> None:
        """Make ready what the first cell under these options will need; called in the background."""
        if not self.sessions.prepare(options):
            self.box(options).backend.warm(options.effective_language, options.memory_mb)

    def attach_debugger(self, defaults: CellOptions, on_event: OnEvent) -> DebugLink:
        """Start the debugger in the notebook's own Python session: that of cells without a ``%%sandbox`` line."""
        session = self.sessions.choose(parse_cell("pass", defaults)).session
        if session is None or session.language is not Language.PYTHON:
            raise SessionError("the debugger needs a Python session, and cells of this notebook run without one")
        return session.attach_debugger(on_event)

    @staticmethod
    def program(code: str, defaults: CellOptions) -> str:
        """Return the program that a Python session gets for the text of a cell."""
        try:
            return numbered(parse_cell(code, defaults).code, Language.PYTHON)
        except SandboxError:
            return code

    def close(self) -> None:
        """End every session and sandbox; called when the kernel shuts down or restarts."""
        self.sessions.close()
        with self._lock:
            boxes, self._boxes = list(self._boxes.values()), {}
        for box in boxes:
            box.destroy()
        if self.kept is not None:
            self.kept.close()


def _box_key(options: CellOptions) -> BoxKey:
    here = None if options.here is None else os.path.abspath(options.here)
    return policy_of(options), options.backend or "auto", config_of(options), here


async def done_before(work: asyncio.Future[Any], cancel: asyncio.Event) -> bool:
    """Wait for the work, or until the cell must stop; returns whether the work is done."""
    stop = asyncio.ensure_future(cancel.wait())
    both: set[asyncio.Future[Any]] = {work, stop}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    return work.done()


def _answers(stdin: str) -> OnInput:
    """Answer ``input()`` line by line from a text; after its end as a file would."""
    lines = iter(stdin.splitlines())

    def answer(prompt: str, password: bool) -> str:
        line = next(lines, None)
        if line is None:
            raise EOFError("the text of --stdin has no more lines")
        return line

    return answer


async def _in_session(session: Session, plan: CellPlan, code: str, stdin: str | None, io: CellIO) -> ExecResult:
    options, memory_mb = plan.options, plan.options.memory_mb
    if memory_mb is not None and memory_mb == plan.defaults.memory_mb:
        memory_mb = session.usual_memory(memory_mb)
    request = session.request(
        numbered(code, session.language),
        options.effective_timeout_s,
        number=io.number,
        memory_mb=memory_mb,
        cpu_seconds=options.cpu_seconds,
        output_bytes=options.output_bytes,
    )
    return await session.perform(request, io if stdin is None else replace(io, on_input=_answers(stdin)), io.cancel)


def _request(options: CellOptions, code: str, stdin: str | None, files: Mapping[str, str] | None) -> ExecRequest:
    """Return the request for a cell that runs in a sandbox of its own."""
    return ExecRequest(
        language=options.effective_language,
        code=code,
        timeout=options.effective_timeout_s,
        memory_limit_mb=options.memory_mb,
        stdin=stdin,
        env=dict(options.env),
        args=options.args,
        files=files or {},
        limits=limits_of(options),
    )


def numbered(code: str, language: Language) -> str:
    """IPython drops empty lines before a cell, and with them the line numbers; a comment it keeps.

    Not before a cell magic of its own, which must stand first.
    """
    if language is Language.PYTHON and code.startswith("\n") and not code.lstrip().startswith("%%"):
        return f"{_FIRST_INDENT.match(code)[1]}#{code}"  # type: ignore[index] # it matches every text
    return code


def as_stdin(value: object) -> str:
    """A variable as standard input: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


#: ``0`` keeps nothing: the work folder ends with its kernel.
KEEP_VARIABLE = "SANDBOX_KERNEL_KEEP_FILES"


def kept_work(connection_file: str, environment: Mapping[str, str] = os.environ) -> KeptWork | None:
    """Return the kept work folder of this kernel; None where none is known or nothing shall be kept."""
    if environment.get(KEEP_VARIABLE, "").strip() == "0":
        return None
    if notebook := notebook_path(environment):
        return KeptWork.of(notebook)
    return KeptWork.of(connection_file) if connection_file and KeptWork.exists(connection_file) else None


def before_shutdown(
    sandboxes: NotebookSandboxes, connection_file: str, *, restart: bool, environment: Mapping[str, str] = os.environ
) -> None:
    """Keep the files of a kernel that is restarted, and drop what was kept for restarts alone when it ends for good."""
    if notebook_path(environment) or environment.get(KEEP_VARIABLE, "").strip() == "0":
        return
    if not restart:
        if sandboxes.kept is not None:
            sandboxes.kept.remove()
    elif sandboxes.kept is None and connection_file:
        files = sandboxes.box(CellOptions()).files
        changed = [box for box in sandboxes.boxes() if box.here is not None and box.diff()]
        kept = KeptWork.of(connection_file) if files or changed else None
        if kept is not None:
            with Rooted.at(kept.files) as root:
                for path in files:
                    root.write(path, files[path])
            for box in changed:
                place = changes_place(kept, str(box.here), box.policy)
                if place is not None:
                    box.keep_changes_in(place)
            kept.close()


#: What takes all functions back.
OFF = "off"


class OfferedFunctions:
    """Functions of the Python kernel that cells may call, from a session's start until the user takes them back."""

    def __init__(self) -> None:
        self.given: dict[str, Callable[..., object]] = {}
        #: The sessions that had begun when functions were offered the last time.
        self._began_before: weakref.WeakSet[Session] = weakref.WeakSet()

    def give_to(self, box: Sandbox) -> None:
        """Let programs of this sandbox call the functions. Raises ``InvalidRequest`` for one that cannot be offered."""
        box.offer_functions({name: self._revocable(name, call) for name, call in self.given.items()} or None)

    def _revocable(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(call)
        def offered(*args: object, **kwargs: object) -> object:
            if name not in self.given:
                raise PermissionError(f"{name} is not offered any more; the user took it back: %sandbox functions off")
            return call(*args, **kwargs)

        return offered

    def change(
        self,
        names: tuple[str, ...],
        variables: Mapping[str, object] | None,
        boxes: list[Sandbox],
        running: Iterable[Session],
    ) -> None:
        """Offer more functions to these sandboxes, or (``off``) none any more. Nothing changes when one is refused."""
        before = dict(self.given)
        self.given = {} if names == (OFF,) else {**before, **{name: _function(name, variables) for name in names}}
        try:
            for box in boxes:
                self.give_to(box)
        except InvalidRequest:
            self.given = before
            for box in boxes:
                self.give_to(box)
            raise
        self._began_before.update(running)

    def describe(self, box: Sandbox, language: Language, sessions: NotebookSessions) -> str:
        """Return what cells may call now, and which running sessions began without it."""
        listed = box.describe_functions(language)
        if not listed:
            return "Cells may call no functions of this notebook; %sandbox functions NAME offers one."
        running = sorted({str(key[0]) for key, each in sessions.with_state().items() if each in self._began_before})
        late = (
            f"\nThe running {' and '.join(running)} session began before this: %sandbox restart --keep begins one that "
            "has the functions and the variables."
        )
        return f"Cells may call, and get results:\n{listed.rstrip()}{late if running else ''}"


def _function(name: str, variables: Mapping[str, object] | None) -> Callable[..., object]:
    if variables is None:
        raise InvalidRequest(
            f"%sandbox functions {name}: functions that stay outside are those of the Python kernel; open the notebook "
            "with the Python kernel and %load_ext sandbox_kernel there"
        )
    if name not in variables:
        raise InvalidRequest(f"%sandbox functions {name}: this notebook has no {name}; define it in a Python cell")
    found = variables[name]
    if not callable(found):
        raise InvalidRequest(f"%sandbox functions {name}: {name} is no function but a {type(found).__name__}")
    return found
