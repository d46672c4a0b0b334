"""One runner behind both doors: takes a planned cell, runs it through the facade, returns what happened.

It owns the sandboxes and sessions of one notebook: a sandbox for each policy and backend that was asked for, a session
for each language and name. A cell that belongs to a session but asks for what only a new process can have (another
memory limit, other mounts, arguments) runs fresh, and its receipt says so. Used by the kernel on its own loop and by
the magic on a loop in a thread; everything here may be called from several threads.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.model import ExecResult, Language
from sandbox_kernel.notebook.cell_options import CellOptions
from sandbox_kernel.notebook.grants import limits_of, policy_of
from sandbox_kernel.notebook.options import CellPlan
from sandbox_kernel.notebook.session_seam import OnDisplay, OnInput, OnOutput, Session
from sandbox_kernel.notebook.variables import MarkedOutput, check_language, with_variables
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.sandbox import Sandbox
from sandbox_kernel.session.opening import has_sessions


@dataclass(frozen=True, kw_only=True)
class CellIO:
    """How a running cell reaches its notebook; ``cancel`` is how the notebook reaches the cell."""

    on_output: OnOutput
    cancel: asyncio.Event
    on_display: OnDisplay | None = None
    on_input: OnInput | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished cell, and the variables it handed over (plain JSON values)."""

    result: ExecResult
    variables: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class _Start:
    """What a session is fixed to when it starts; a cell that asks for something else cannot run in it."""

    policy: SandboxPolicy
    backend: str
    memory_mb: int | None
    python: str | None
    checkpoints: int | None


class CellRunner:
    """The sandboxes and sessions of one notebook. ``close`` ends them all."""

    def __init__(self, factory: Callable[[SandboxPolicy, str], Sandbox] = Sandbox) -> None:
        self._factory = factory
        self._lock = threading.Lock()
        self._boxes: dict[tuple[SandboxPolicy, str], Sandbox] = {}
        self._sessions: dict[tuple[Language, str], tuple[Session, _Start]] = {}
        self.last_session: tuple[Language, str] | None = None

    async def run(
        self, plan: CellPlan, io: CellIO, *, variables: Mapping[str, str] | None = None, stdin: str | None = None
    ) -> Outcome:
        """Run the cell; ``variables`` are JSON texts for its ``-i``, ``stdin`` is the text of ``--stdin-var``."""
        options = plan.options
        language = options.effective_language
        check_language(language, options.inputs, "-i")
        check_language(language, options.outputs, "-o")
        marked = MarkedOutput() if options.outputs else None
        code = with_variables(language, plan.code, variables or {}, options.outputs, marked.mark if marked else "")
        text = stdin if stdin is not None else options.stdin
        if marked is None:
            return Outcome(result=await self._run(code, options, text, io))
        result = await self._run(code, options, text, replace(io, on_output=_unmarked(io.on_output, marked)))
        if rest := marked.close():
            io.on_output("stdout", rest)
        result = replace(result, stdout=result.stdout.partition(f"\n{marked.mark}")[0])
        return Outcome(result=result, variables=marked.values(language, options.outputs) if result.ok else {})

    async def _run(self, code: str, options: CellOptions, stdin: str | None, io: CellIO) -> ExecResult:
        box = self.box(options)
        why = ""
        if options.keeps_state:
            session, why = await asyncio.get_running_loop().run_in_executor(None, self._session, box, options)
            if session is not None:
                io = replace(io, on_input=_answers(stdin)) if stdin is not None else io
                return await _in_session(session, code, options.effective_timeout_s, io)
        result = await box.arun(
            code,
            options.effective_language,
            timeout=options.effective_timeout_s,
            memory_mb=options.memory_mb,
            stdin=stdin,
            env=dict(options.env),
            args=options.args,
            limits=limits_of(options),
            on_output=io.on_output,
            cancel=io.cancel,
            **_extras(box.arun, options),
        )
        return replace(result, notes=(*result.notes, f"ran in a fresh sandbox: {why}")) if why else result

    def box(self, options: CellOptions) -> Sandbox:
        """The sandbox for these options; made once for each policy and backend."""
        key = (policy_of(options), options.backend or "auto")
        with self._lock:
            if key not in self._boxes:
                self._boxes[key] = self._factory(*key)
            return self._boxes[key]

    def warm(self, options: CellOptions) -> None:
        """Make ready what the first cell under these options will need; called in the background."""
        backend = self.box(options).backend
        backend.warm(options.effective_language, options.memory_mb)

    def session(self, options: CellOptions) -> Session | None:
        """The running session that a line command means: by name or language, else the one used last."""
        with self._lock:
            if options.language is None and options.session is None and self.last_session is not None:
                key = self.last_session
            else:
                key = (options.effective_language, options.session or "")
            found = self._sessions.get(key)
        return found[0] if found is not None and found[0].alive else None

    def _session(self, box: Sandbox, options: CellOptions) -> tuple[Session | None, str]:
        """The cell's session, or None and the reason why it runs fresh."""
        if not has_sessions(options.effective_language):
            return None, ""
        if options.env or options.args:
            return None, "--env and --arg are given to a new process"
        language, name = options.effective_language, options.session or ""
        start = _Start(
            policy_of(options), options.backend or "auto", options.memory_mb, options.python, options.checkpoints
        )
        with self._lock:
            found = self._sessions.get((language, name))
            if found is not None and found[0].alive:
                if found[1] != start:
                    return None, f"the {name or language} session was started with other limits or another policy"
                self.last_session = (language, name)
                return found[0], ""
        try:
            session = box.session(
                language,
                name=options.session,
                memory_mb=512 if options.memory_mb is None else options.memory_mb,
                checkpoints=5 if options.checkpoints is None else options.checkpoints,
                python=options.python,
            )
        except (BackendUnavailable, NotImplementedError) as error:
            return None, str(error)
        with self._lock:
            self._sessions[language, name] = (session, start)
            self.last_session = (language, name)
        return session, ""

    def adopt(self, options: CellOptions, session: Session) -> None:
        """Go on with a session that was loaded from a file, in place of the one with this name."""
        key = (options.effective_language, options.session or "")
        start = _Start(policy_of(options), options.backend or "auto", options.memory_mb, options.python, None)
        with self._lock:
            old = self._sessions.pop(key, None)
            self._sessions[key] = (session, start)
            self.last_session = key
        if old is not None:
            old[0].close()

    def close(self) -> None:
        """End every session and sandbox; called when the kernel shuts down or restarts."""
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
            boxes, self._boxes = list(self._boxes.values()), {}
        for session, _ in sessions:
            session.close()
        for box in boxes:
            box.destroy()


def _unmarked(on_output: OnOutput, marked: MarkedOutput) -> OnOutput:
    def emit(stream: str, text: str) -> None:
        shown = marked.feed(text) if stream == "stdout" else text
        if shown:
            on_output(stream, shown)

    return emit


def _answers(stdin: str) -> OnInput:
    """Answer ``input()`` line by line from a text; after its end as a file would."""
    lines = iter(stdin.splitlines())

    async def answer(prompt: str, password: bool) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError("the text of --stdin has no more lines") from None

    return answer


def _extras(run: Callable[..., object], options: CellOptions) -> dict[str, Any]:
    """Options that only some languages know, refused by name where the facade does not take them."""
    asked: dict[str, Any] = {}
    if options.check:
        asked["check"] = True
    if options.python is not None:
        asked["python"] = options.python
    known = inspect.signature(run).parameters
    for name in asked:
        if name not in known:
            raise InvalidRequest(f"--{name} is not available for {options.effective_language} cells here; remove it")
    return asked


async def _in_session(session: Session, code: str, timeout_s: float, io: CellIO) -> ExecResult:
    async def watch() -> None:
        await io.cancel.wait()
        session.interrupt()

    run = functools.partial(session.arun, code, timeout=timeout_s, on_output=io.on_output, on_input=io.on_input)
    live = io.on_display is not None and "on_display" in inspect.signature(session.arun).parameters
    watcher = asyncio.ensure_future(watch())
    try:
        if not live:
            return await run()
        # What was shown while the cell ran is not shown again.
        return replace(await run(on_display=io.on_display), displays=())
    finally:
        watcher.cancel()


def as_stdin(value: object) -> str:
    """A variable as standard input: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
