"""One cell from its text to its last message, the same for the kernel and the magic."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sandbox_kernel.backends.async_bridge import on_this_loop
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.model import CellError, ExecResult, FsChange, Note, notes
from sandbox_kernel.model.hints import Stumble, hints, spelled
from sandbox_kernel.model.notes import NoteKind
from sandbox_kernel.notebook import render
from sandbox_kernel.notebook.autosave import Autosaver, notebook_path
from sandbox_kernel.notebook.frames.frame_comms import FrameComms
from sandbox_kernel.notebook.frames.frame_libraries import NotebookLibraries, Tell, make_library
from sandbox_kernel.notebook.options.cell_options import CellOptions, config_of
from sandbox_kernel.notebook.options.own_rights import YES, LineRights, LineSetting, can_be_asked, prompt, question
from sandbox_kernel.notebook.options.parse_cell import CellPlan, LineCommand, first_defaults, parse_cell
from sandbox_kernel.notebook.options.variables import encode_all
from sandbox_kernel.notebook.packages import NAME_PACKAGES, Packages, wanted
from sandbox_kernel.notebook.page.stream_batch import StreamBatch
from sandbox_kernel.notebook.page.views import PreparationBar
from sandbox_kernel.notebook.permission_prompts import bundle, offers_of, take_files_back
from sandbox_kernel.notebook.sandboxes import CellIO, NotebookSandboxes, as_stdin, done_before
from sandbox_kernel.receipt import MARK
from sandbox_kernel.session.cell.displays import MAX_BYTES, SessionDisplay
from sandbox_kernel.session.cell.front_end import FrontEnd, FrontEndReply
from sandbox_kernel.session.cell.request import LimitLift
from sandbox_kernel.session.session_rights import RightAnswers
from sandbox_kernel.untrusted.frames.frame_output import SERVED_VARIABLE, without_document
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.kept_changes import changes_waiting

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.prepare import PrepareProgress

#: How long the session of an interrupted line command may take to end what it does.
_LAST_WORDS_S = 5.0
OnInput = Callable[[str, bool], Awaitable[str]]
#: Asks the user, and returns the line that they typed; None when nobody answered.
OnQuestion = Callable[[str], Awaitable[str | None]]
T = TypeVar("T")

#: Kinds of variables that JSON has.
_TRAVELS = (bool, int, float, str, list, tuple, dict, type(None))

MAX_NOTES = 40
#: The longest error that is cleaned without a thread, in letters: 50 ms at worst, and a switch of threads less.
_SHORT = 8 << 10
PROGRESS_AFTER_S = 2.0
PROGRESS_EVERY_S = 0.5


@dataclass
class NotebookState:
    """What lives from cell to cell outside of any sandbox: defaults, handed-over variables, what was written last."""

    sandboxes: NotebookSandboxes = field(default_factory=NotebookSandboxes)
    defaults: CellOptions = field(default_factory=first_defaults)
    variables: MutableMapping[str, object] = field(default_factory=dict)
    files: tuple[FsChange, ...] = ()
    #: Whether ``variables`` are those of a Python shell, and not only what cells have handed over.
    in_python: bool = False
    #: What the user answered to offers of rights.
    answers: RightAnswers = field(default_factory=RightAnswers)
    #: What lines of cells may give.
    rights: LineRights = field(default_factory=lambda: LineRights(notebook=notebook_path()))
    #: Whether a cell has said that files of the last kernel are there.
    told_of_files: bool = False
    #: The lift of each running cell, by the id of the cell.
    lifts: dict[str, LimitLift] = field(default_factory=dict)
    libraries: NotebookLibraries = field(init=False)
    comms: FrameComms = field(init=False)
    autosave: Autosaver = field(init=False)
    packages: Packages = field(init=False)

    def __post_init__(self) -> None:
        self.packages = Packages(self.sandboxes.kept)
        self.defaults = self.packages.given(self.defaults)
        self.libraries = NotebookLibraries(lambda title: make_library(title, config_of(self.defaults)))
        self.comms = FrameComms(self.sandboxes.sessions.all, self.libraries.take)
        self.autosave = Autosaver(self.sandboxes.sessions.with_state, notebook_path())

    def close(self) -> None:
        """Save for the last time if autosave is on, then end every session and sandbox."""
        self.autosave.finish()
        self.libraries.close()
        self.sandboxes.close()

    def take_news(self) -> tuple[Note, ...]:
        """Return what the notebook's first cell tells: files and changes of its last kernel are there."""
        kept, told, self.told_of_files = self.sandboxes.kept, self.told_of_files, True
        files = () if kept is None or kept.found == 0 or told else (notes.files_found(kept.found),)
        changes, self.sandboxes.changes_found = self.sandboxes.changes_found, []
        waiting = [] if kept is None or told else changes_waiting(kept)
        found = (notes.changes_found(folder, count) for folder, count in changes)
        return (*files, *found, *(notes.changes_not_here(options, count) for options, count in waiting))

    def variable(self, name: str, option: str) -> object:
        """A variable by name; a missing one is named together with how to get it there."""
        if name in self.variables:
            return self.variables[name]
        if self.in_python:
            raise InvalidRequest(f"{option} {name}: this notebook has no variable {name}; define it in a Python cell")
        there = ", ".join(sorted(self.variables)[:20])
        raise InvalidRequest(
            f"{option} {name}: no cell has handed over {name}; write %%sandbox -o {name} above the cell that makes it"
            + (f" (handed over so far: {there})" if there else "")
        )

    def measure_again(self, on_progress: Callable[[int, int], None]) -> Mapping[str, object]:
        """Measure anew what the notebook's sandbox holds back, for the widget of the report."""
        return self.sandboxes.box(self.defaults).report(again=True, on_progress=on_progress).to_dict()

    def known(self) -> dict[str, list[str]]:
        """Return completions for options that take a name: variables that JSON can hold, without a shell's own."""
        names = sorted(
            name
            for name, value in list(self.variables.items())
            if not name.startswith("_") and name not in ("In", "Out") and isinstance(value, _TRAVELS)
        )
        return {"-i": names, "--stdin-var": names, "--session": self.sandboxes.sessions.names()}


@dataclass(frozen=True, kw_only=True)
class CellReply:
    """What a front end is told of a cell: the error that was shown, the plain text of its value, a fault of our own."""

    failure: CellError | None = None
    value: str | None = None
    bug: BaseException | None = None
    #: Why the cell was not run, or not to its end.
    refused: SandboxError | None = None
    #: What the session gives the front end; None when no session ran the cell.
    reply: FrontEndReply | None = None


@dataclass
class CellExecution:
    """Runs one cell. ``run`` never raises for anything that a cell can cause."""

    state: NotebookState
    door: render.Door
    on_input: OnInput
    cancel: asyncio.Event
    number: int | None = None
    cell_id: str = ""
    expressions: Mapping[str, str] | None = None
    silent: bool = False
    question: OnQuestion | None = None

    def __post_init__(self) -> None:
        self._cell = f"{self.cell_id} {self.number}"
        self._reply: FrontEndReply | None = None
        self._late: render.LateDoor | None = None
        self._value: str | None = None
        self._notes: list[Note] = []
        #: Tells the page of a library; None where the notebook holds it.
        self._tell: Tell | None = None
        #: Whether a line command has shown something in this cell; what its widgets take in a saved notebook.
        self._told, self._saved = False, 0

    async def run(self, cell: str | CellPlan, *, pressed: bool = False) -> CellReply:
        """Run a cell, or a plan: line commands, then the program. ``pressed``: the user pressed a button."""
        try:
            plan = cell if isinstance(cell, CellPlan) else parse_cell(cell, self.state.defaults)
            refused = await self._refused(plan, pressed=pressed)
            if refused is not None:
                return CellReply(failure=render.refusal(refused), refused=refused)
            failure = await self._do(plan)
        except SandboxError as error:
            return CellReply(failure=self._send(render.refusal(error)), refused=error)
        except Exception as error:  # a fault of ours must still be answered, or the notebook waits for ever
            text = f"the sandbox kernel itself failed: {type(error).__name__}: {error}"
            return CellReply(
                failure=self._send(CellError(ename=render.INTERNAL_ERROR, evalue=text, traceback=(f"{MARK} {text}",))),
                bug=error,
            )
        finally:
            if self._late is not None:
                self._late.open()
        return CellReply(failure=failure, value=self._value, reply=self._reply)

    async def _refused(self, plan: CellPlan, *, pressed: bool) -> SandboxError | None:
        """Ask for rights that the cell's lines lack. Returns the refusal when a page shows a prompt; else raises it."""
        rights, before = self.state.rights, self.state.defaults
        if not plan.commands and plan.options == plan.defaults == before:
            return None
        # It resolves paths and reads policy files.
        lacking = await _in_thread(partial(rights.lacking, plan, before, pressed=pressed))
        if not lacking:
            return None
        error = rights.refusal(lacking)
        asks = rights.setting is LineSetting.ASK and can_be_asked(lacking)
        if asks and self.door.watched() and (rights.has_page or not rights.prompted):
            rights.prompted = True
            self._send(render.ShowOutput(prompt(lacking)))
            return error
        if not asks or self.question is None or rights.unanswered:
            raise error
        answer = await self.question(question(lacking))
        rights.unanswered = answer is None and not self.cancel.is_set()
        if answer is None or answer.strip().lower() != YES:
            raise error
        rights.allow(lacking)
        return None

    async def _do(self, plan: CellPlan) -> CellError | None:
        given = self.state.packages.given  # also where a line or the dialog names all folders anew
        for command in plan.commands:
            if (failure := await self._command(command, given(plan.defaults))) is not None:
                return failure
        self.state.defaults = given(plan.defaults)
        plan = replace(plan, options=given(plan.options), defaults=self.state.defaults)
        if not plan.code:
            # The cell that follows a --here line tells of the folder's kept changes.
            if plan.defaults.here is None and (news := self._news()):
                self._send(render.ShowOutput({"text/plain": "\n".join(news)}))
            return None
        result = await self._program(plan)
        # What a press gave the running cell is the session's from now on, and so the notebook's.
        if plan.options == plan.defaults and any(note.kind is NoteKind.MORE_MEMORY for note in result.notes):
            self.state.defaults = replace(plan.defaults, memory_mb=result.memory_limit_mb)
        made = partial(render.render_result, result, quiet=plan.options.quiet)
        offers = offers_of(result, self.state.answers.never, plan.options.session or "")
        # People get buttons, above the error, which may be long; clients that record outputs get notes alone.
        may_give = offers and self.state.rights.setting is not LineSetting.LOCKED
        if may_give and (self.door.watched() or self.question is not None):
            self._send(render.ShowOutput(bundle(offers)))
        # Cleaning a long hostile traceback is slow: it is done in a thread, so that other requests are answered.
        error = result.error
        is_short = error is None or len(error.evalue) + sum(map(len, error.traceback)) <= _SHORT
        return self._send(*(made() if is_short else await _in_thread(made)))

    async def _program(self, plan: CellPlan) -> ExecResult:
        values = ((name, self.state.variable(name, "-i")) for name in plan.options.inputs)
        inputs = await _in_thread(partial(encode_all, values)) if plan.options.inputs else {}
        name = plan.options.stdin_var
        stdin = None if name is None else as_stdin(self.state.variable(name, "--stdin-var"))
        once = self.state.answers.take_once()
        # Without our server extension a page finds the code only in the notebook; in a batch nobody looks.
        unserved = self.door.watched() and not os.environ.get(SERVED_VARIABLE)
        self._tell = None if unserved or plan.options.self_contained else self.door.library
        batch = StreamBatch(self.door.stream)
        lift = None if self.state.in_python or self.state.rights.setting is LineSetting.LOCKED else LimitLift()
        progress = _ProgressTimer(self.door, plan.options.effective_timeout_s, lift)
        bars: list[PreparationBar] = []

        def preparing(made: PrepareProgress) -> None:
            progress.hold(over=made.fraction >= 1)
            bars[:] = bars or [PreparationBar(self.door, alone=not plan.commands)]
            bars[0].update(made)

        front_end: FrontEnd | None = None
        if self.expressions is not None:
            self._late = self.door.late(self._messages)
            # The reply comes on the thread that runs the cell, and is read when the cell has ended.
            keep = partial(setattr, self, "_reply")
            front_end = FrontEnd(expressions=self.expressions, on_reply=keep, late=self._late)
        io = CellIO(
            on_output=batch.write,
            on_display=lambda display: self._display(display, batch),
            on_input=on_this_loop(lambda prompt, password: self._ask(prompt, password, batch, progress)),
            on_usage=progress.use,
            on_prepare=preparing,
            cancel=self.cancel,
            number=self.number,
            front_end=front_end,
            loop=asyncio.get_running_loop(),
            lift=lift,
            once=once,
        )
        if lift is not None:
            self.state.lifts[self.cell_id] = lift
        try:
            result, variables = await self.state.sandboxes.run(plan, io, variables=inputs, stdin=stdin)
        finally:
            for bar in bars:
                bar.close()
            progress.close()
            self.state.lifts.pop(self.cell_id, None)
            batch.close()
            if self._tell is not None and (making := self.state.libraries.making()):
                await done_before(asyncio.ensure_future(asyncio.wait(map(asyncio.wrap_future, making))), self.cancel)
            self._send(*self.state.libraries.after(self._cell, stored=self._tell is not None))
            if once:
                box = self.state.sandboxes.box(plan.defaults)
                await _in_thread(partial(take_files_back, box, self.state.answers, once))
        if self.state.comms.in_use:
            await _in_thread(partial(self.state.comms.follow_all, went_back=result.rolled_back))
        self.state.variables.update(variables)
        self.state.files = result.changes
        told = self._reply.notes if self._reply is not None and result.ok else ()
        stumble = Stumble(
            beside=os.path.exists, folder=os.getcwd(), running=plan.options.keeps_state, hidden=is_hidden,
            own=plan.own_limits,
        )  # fmt: skip
        found = list(dict.fromkeys(self._notes))  # how many there are, the program decides
        few = [*found[:MAX_NOTES], *([notes.more_notes(len(found) - MAX_NOTES)] if len(found) > MAX_NOTES else [])]
        names = [name for name in ("stdout", "stderr") if getattr(result, f"{name}_truncated")]
        cut = (notes.output_cut(" and ".join(names)),) if names else ()
        own = (spelled(note, stumble) for note in result.notes)
        alone = bool(result.here and result.changes) and self.question is None and not self.door.watched()
        unwritten = await _in_thread(self.state.sandboxes.not_applied) if alone else ()
        # Where nobody can install anything, names of a file beside the notebook are told to nobody.
        ours, may_install = self.state.packages, self.state.rights.setting is not LineSetting.LOCKED
        may_name = may_install and result.error is not None and result.error.ename in NAME_PACKAGES
        lacked = await _in_thread(partial(wanted, plan.code, result)) if may_name else None
        if may_install and result.ok and self.door.watched() and not ours.searched:
            lacked = await _in_thread(partial(ours.missing, plan.code, plan.options))
        packages = () if lacked is None else (notes.hint_install("%sandbox ", lacked.what),)
        return replace(
            result, notes=(*packages, *own, *hints(result, stumble), *told, *few, *unwritten, *self._news(), *cut)
        )

    def _news(self) -> tuple[Note, ...]:
        """Return what is left of the last kernel; a silent cell shows nothing, so the next one says it."""
        return () if self.silent else (*self.state.take_news(), *self.state.autosave.news())

    def _send(self, *messages: render.Message) -> CellError | None:
        failure = None
        for message in messages:
            if isinstance(message, render.Value):
                text = message.data.get("text/plain")
                self._value = text if isinstance(text, str) else None
            elif isinstance(message, CellError):
                failure = message
            self.door.message(message)
        return failure

    def _display(self, display: SessionDisplay, batch: StreamBatch) -> None:
        if not (made := self._made(display)):
            return
        batch.flush()
        if isinstance(made[-1], render.ClearOutput):
            if self._told:
                # Pages clear a cell as a whole, and what a %sandbox line has said is not the program's to take away.
                self._notes.append(notes.clear_ignored())
                return
            self.state.libraries.cleared(self._cell)
        self._send(*made)

    def _messages(self, display: SessionDisplay) -> list[render.Message]:
        """Return what the page gets for a display that comes after the end of the cell; may be called on any thread."""
        made = self._made(display)
        return [*made, *self.state.libraries.after(self._cell, stored=self._tell is not None)] if made else []

    def _made(self, display: SessionDisplay) -> list[render.Message]:
        """Return what a display adds to the notebook: its libraries, and itself; a widget with its state, in bounds."""
        comms, libraries = self.state.comms, self.state.libraries
        if comms.take(display) or libraries.take(display.data):
            return []
        held = comms.with_state(display, save=self._saved < MAX_BYTES)
        self._saved += len(str(held.data.get("text/html", ""))) if held is not display else 0
        shown = held if self._tell is None else replace(held, data=without_document(held.data))
        message, removed = render.render_display(shown)
        self._notes += removed
        return [*libraries.before(display.data, self._cell, self._tell), message]

    async def _ask(self, prompt: str, password: bool, batch: StreamBatch, progress: _ProgressTimer) -> str:
        batch.settle()
        try:
            with progress.still():
                return await self.on_input(prompt, password)
        except EOFError as error:
            # The program only meets the end of a file; its author is told why.
            self._notes.append(notes.no_answer(error))
            raise

    async def _command(self, command: LineCommand, defaults: CellOptions) -> CellError | None:
        """Run a line command in a thread. An interrupt ends it in its session, and is answered then, else at once."""
        from sandbox_kernel.notebook.line_commands import LineCommands, run_command  # many modules, for few cells

        desk = LineCommands(self.state, defaults)
        work = _in_thread(partial(run_command, command, desk))
        if not await done_before(work, self.cancel):
            if desk.give_up(command):
                await asyncio.wait({work}, timeout=_LAST_WORDS_S)
            failed = work.exception() if work.done() else None
            if not work.done() or isinstance(failed, SandboxError):
                told = render.tame(f"%sandbox {command.name}: {failed or 'interrupted'}")
                return self._send(CellError(ename="KeyboardInterrupt", evalue="interrupted", traceback=(told,)))
        messages = await work
        await _in_thread(self.state.comms.settle_all)
        self._told = self._told or bool(messages)
        return self._send(*messages)


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(None, work)


class _ProgressTimer:
    """Tells how far a cell is once it has been running for a while, a few times a second; all on the cell's loop."""

    def __init__(self, door: render.Door, timeout_s: float, lift: LimitLift | None) -> None:
        self._door = door
        self._timeout_s, self._lift = timeout_s, lift
        self._loop = asyncio.get_running_loop()
        #: Bytes in use, and the limit.
        self._memory: tuple[int, int] | None = None
        #: Since when the cell waits for an answer of its user.
        self._asked: float | None = None
        self.begin()

    def begin(self) -> None:
        """The time of the cell begins now."""
        self._began, self._asked = self._loop.time(), None
        self._timer = self._loop.call_later(PROGRESS_AFTER_S, self._tell)

    def hold(self, *, over: bool) -> None:
        """The cell does not run yet; its time begins when that is ``over``."""
        self.close()
        if over:
            self.begin()

    def _tell(self) -> None:
        more = (0.0, 0) if self._lift is None else self._lift.next()
        timeout_s = self._timeout_s if self._lift is None else self._lift.timeout_s or self._timeout_s
        elapsed_s = (self._asked or self._loop.time()) - self._began
        self._door.progress(render.Progress(elapsed_s, timeout_s, self._memory, more))
        self._timer = self._loop.call_later(PROGRESS_EVERY_S, self._tell)

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """The time stands still while the cell waits for its user, as its limit does."""
        self._asked = asked = self._loop.time()
        try:
            yield
        finally:
            self._began += self._loop.time() - asked
            self._asked = None

    def use(self, used_bytes: int, limit_bytes: int) -> None:
        """A reading of the meter; comes on the thread that runs the cell, and is told when the time comes."""
        self._memory = used_bytes, limit_bytes

    def close(self) -> None:
        """The cell has ended, or does not run yet."""
        self._timer.cancel()
