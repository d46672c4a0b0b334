"""The ``%sandbox`` line commands (``COMMANDS`` in ``options/option_table.py``). Each returns messages to show."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest, SandboxError, SessionError
from sandbox_kernel.limits import DEFAULT_SESSION_MEMORY_MB, DEFAULT_TIMEOUT_S, MAX_MEMORY_MB
from sandbox_kernel.model import Language
from sandbox_kernel.model.notes import WantedKind
from sandbox_kernel.model.units import duration_text, parse_duration
from sandbox_kernel.notebook.autosave import DEFAULT_EVERY_S, when
from sandbox_kernel.notebook.options.cell_options import (
    CellOptions,
    is_packages,
    policy_of,
    policy_rows,
    without_packages,
)
from sandbox_kernel.notebook.options.option_table import usage
from sandbox_kernel.notebook.options.parse_cell import CELL_NUMBER, LineCommand, written
from sandbox_kernel.notebook.packages import installed
from sandbox_kernel.notebook.page import views
from sandbox_kernel.notebook.page.views import apply_changes, discard_changes, files_message, list_files, show_changes
from sandbox_kernel.notebook.page.views import text_message as _text
from sandbox_kernel.notebook.permission_prompts import Offer, give_file
from sandbox_kernel.notebook.render import Message, ReportPanel, ShowOutput
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.policy.network_rule import parse_rule
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree.node import Node
from sandbox_kernel.untrusted.tex import defused
from sandbox_kernel.workspace.hidden import HIDDEN

if TYPE_CHECKING:
    from sandbox_kernel.notebook.execution import NotebookState


@dataclass(frozen=True)
class LineCommands:
    """What a command works on: the notebook, and the defaults that hold from its line on."""

    state: NotebookState
    defaults: CellOptions
    #: Set when the user has interrupted the command.
    interrupted: threading.Event = field(default_factory=threading.Event)

    @property
    def box(self) -> Sandbox:
        """The sandbox of cells under the defaults."""
        return self.state.sandboxes.box(self.defaults)

    def give_up(self, command: LineCommand) -> bool:
        """End what a command does in its session; False when it does nothing there that can be ended."""
        self.interrupted.set()
        session = self.state.sandboxes.sessions.find(command.options)
        return session is not None and session.interrupt()

    def unless_interrupted(self, session: Session) -> Session:
        """Return a session that a command has made; after an interrupt close it, and raise ``SessionError``."""
        if self.interrupted.is_set():
            session.close()
            raise SessionError("it was interrupted, and nothing has changed")
        return session


def run_command(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    """Run a line command. It may block for seconds (a report measures), so the kernel calls it in a thread."""
    return _COMMANDS[command.name](command, context)


def _policy(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    title, rows = f"policy {context.defaults.policy or 'standard'}", rights_rows(context.defaults)
    text = "\n".join([title, *(f"  {name:<12}  {value}" for name, value in rows)])
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in rows
    )
    html = f"<table class='mathjax_ignore'><caption>{escape(title)}</caption>{cells}</table>"
    return (ShowOutput({"text/html": html, "text/plain": text}),)


def rights_rows(defaults: CellOptions) -> list[tuple[str, str]]:
    """Return what cells under these defaults may touch: names and words, for a table."""
    ours = [mount for mount in defaults.mounts if is_packages(mount)]
    rows = [row for row in policy_rows(policy_of(without_packages(defaults))) if row != ("mounts", "none")]
    if ours:
        rows.append(("packages", ", ".join(installed(one.host) for one in ours)))
    if defaults.here is not None:
        rows = [row for row in rows if row != ("files", "no host files")]
        rows.insert(0, ("folder", f"{os.path.abspath(defaults.here)}, copy-on-write"))
        rows.append(("hidden there", ", ".join(HIDDEN)))
    return rows


def _files(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    """List the files in the work folder, and what the last cell changed; or remove them all."""
    if not command.flag:
        rows = list_files(context.box, context.state.sandboxes.sessions.find(command.options), context.state.files)
        return (files_message(rows),) if rows else _text("No cell has left a file in the work folder, /box.")
    count = sum(change.kind != "deleted" for change in context.box.diff())
    context.box.clear_files()
    for session in context.state.sandboxes.sessions.all():  # they may hold files that are too large to be shared
        session.clear_files()
    return _text(f"The work folder is empty: {count} file{'' if count == 1 else 's'} removed.")


def _here(context: LineCommands) -> Sandbox:
    if context.defaults.here is None:
        running = context.state.sandboxes.sessions.find(context.defaults)
        keeps = running is not None and running.language == Language.PYTHON
        line = "restart --keep --here" if keeps else "restart, then %sandbox --here"
        now = f"; a session runs already: %sandbox {line}" if running is not None else ""
        raise InvalidRequest(
            f"no folder is worked on; %sandbox --here shows the notebook's folder to the next session{now}"
        )
    return context.box


def session_of(command: LineCommand, context: LineCommands) -> Session:
    """Return the running session that a command means; raises ``SessionError`` without one."""
    session = context.state.sandboxes.sessions.find(command.options)
    if session is None:
        name = command.options.session or command.options.language
        raise SessionError(
            f"%sandbox {command.name}: there is no running {f'{name} ' if name else ''}session; "
            "a session begins with the first cell that is not --fresh"
        )
    return session


def _undo(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    session = session_of(command, context)
    if command.count == 1 and session.acknowledge_rollback():
        return _text(
            "The last cell was rolled back when it was stopped: nothing of it is left to take back. "
            "%sandbox undo once more takes back the cell before it."
        )
    return _text("\n".join(session.undo(command.count).notes))


def _state(session: Session, word: str) -> Node | str:
    """Return the state that a line names: by the number of its cell in the margin, or by its name."""
    number = CELL_NUMBER.match(word)
    if number is None:
        return word
    # A cell that was run again after an undo may have its number twice: the newest counts.
    found = [node for node in session.history() if node.number == int(number[1]) and bool(node.id) is bool(node.number)]
    if not found:
        raise SessionError(f"no state was kept after cell [{number[1]}]; %sandbox tree lists those there are")
    return found[-1]


def _go(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    session = session_of(command, context)
    state = _state(session, command.target or "") if command.state is None else command.state
    return _text("\n".join(session.checkout(state).notes))


def _checkpoint(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    session = session_of(command, context)
    states = [_state(session, word) for word in command.targets] if command.state is None else [command.state]
    node = session.checkpoint(command.target or "", *states)
    which = f"The state after cell [{node.number}]" if node.id else "The beginning"
    return _text(f"{which} is {node.name!r} now.")


def _diff(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    session = session_of(command, context)
    return views.diff(session, [_state(session, word) for word in command.targets])


def _restart(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    if command.flag:
        session = session_of(command, context)
        named = replace(context.defaults, language=session.language, session=command.options.session)
        report = context.state.sandboxes.sessions.begin_anew(session, named, anyway=command.anyway)
        return _text(f"{report}\nA new {session.language} session has the variables of the one before; undo ends here")
    which = context.state.sandboxes.sessions.end(session_of(command, context))
    return _text(f"The {which} has ended and its variables are gone; its next cell begins a new one. Files stay.")


def _save(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    save = getattr(session_of(command, context), "save", None)
    if save is None:
        raise InvalidRequest(
            f"%sandbox save {command.target}: this session cannot be saved, only Python sessions and those with "
            "--backend wasm can; to save a file of the work folder, use %sandbox files"
        )
    if any(change.path == command.target for change in context.box.diff()):
        raise InvalidRequest(
            f"%sandbox save {command.target} saves the session, and {command.target} is a file of the work folder; "
            "%sandbox files has a link to save it; to save the session choose another name"
        )
    report = save(command.target)
    return _text(f"Saved as {command.target}." + (f"\n{report}" if report is not None else ""))


def _fork(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    session, name = session_of(command, context), command.target or ""
    fork = getattr(session, "fork", None)
    if fork is None:
        raise InvalidRequest(
            f"%sandbox fork {name}: this session cannot be forked; Python sessions and those with --backend wasm can"
        )
    copy = context.unless_interrupted(fork(name))
    context.state.sandboxes.sessions.add_fork(session, name, copy)
    said = f"%%sandbox --session {name} runs cells in a copy of this session; both go on by themselves."
    restored = getattr(copy, "restored", None)
    return _text(said if restored is None else f"{said}\n{restored}")


def _load(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    asked = command.options.over(context.defaults)
    most_mb = asked.memory_mb if asked.memory_mb is not None else DEFAULT_SESSION_MEMORY_MB
    session = context.unless_interrupted(context.box.load_session(command.target, memory_mb=most_mb))
    # It serves cells of its own language, which may differ from the notebook's.
    restored = getattr(session, "restored", None)
    backend = "wasm" if restored is None else None
    context.state.sandboxes.sessions.adopt(replace(asked, language=session.language, backend=backend), session)
    said = f"Going on with {command.target}: {session.language} cells run in it."
    return _text(said if restored is None else f"{said}\n{restored}")


def _autosave(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    autosave, asked = context.state.autosave, command.target
    if asked == "off":
        autosave.switch_off()
        return _text("Autosave is off. What it saved stays for %sandbox recover; %sandbox autosave forget removes it.")
    if asked == "forget":
        autosave.forget()
        return _text("Autosave is off, and what it saved for this notebook is removed.")
    every_s = DEFAULT_EVERY_S if asked is None else parse_duration(asked, "%sandbox autosave")
    notebook = autosave.switch_on(every_s)
    return _text(
        f"Autosave is on: Python sessions are saved every {duration_text(every_s)} and when the kernel ends, for "
        f"{notebook}. After a restart, %sandbox recover goes on with them."
    )


def _recover(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    autosave = context.state.autosave
    states = autosave.left_behind()
    if not states:
        raise InvalidRequest(
            "%sandbox recover: no earlier kernel of this notebook has left a state; %sandbox autosave keeps one"
        )
    told, failed = list[str](), list[SandboxError]()
    for state in states:
        name = state.name or None
        try:  # our own file: its limit is the one that the user gave
            loaded = context.box.load_session(state.path, name=name, memory_mb=MAX_MEMORY_MB)
            session = context.unless_interrupted(loaded)
        except SandboxError as error:
            if context.interrupted.is_set():
                raise
            failed.append(error)  # the others are not lost with it
            told.append(f"Not recovered: {error}")
            continue
        asked = replace(context.defaults, language=session.language, session=name)
        context.state.sandboxes.sessions.adopt(asked, session)
        told.append(f"Going on with the {session.language} session {state.name}".rstrip() + f", saved {when([state])}.")
        told.append(str(getattr(session, "restored", None) or ""))
    if len(failed) == len(states):
        raise failed[0]
    on = "" if autosave.every_s else "%sandbox autosave goes on saving."
    return _text("\n".join(line for line in [*told, on] if line))


def _report(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    report = context.box.report()
    # The evidence quotes output of programs. Pages typeset formulas in HTML, so formulas are disabled.
    static = ShowOutput({"text/html": defused(report._repr_html_()), "text/plain": str(report)})
    return (static, ReportPanel(report.to_dict()))


def _defaults(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    """Let running sessions follow the new defaults. One that cannot is an error, and the defaults stay as they were."""
    if context.state.defaults == context.defaults:
        return ()
    told = context.state.sandboxes.grow(context.state.defaults, context.defaults)
    return _text("\n".join(told)) if told else ()


def _allow(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    """Give a right that cells lacked: a domain, or a file beside the notebook."""
    wanted = command.wanted
    assert wanted is not None
    if wanted.kind is WantedKind.FILE:
        box, kept = context.box, context.state.sandboxes.kept
        return _text(give_file(box, context.state.answers, wanted, once=command.once, kept=kept))
    if command.once:
        context.state.sandboxes.check_network(context.defaults, SandboxPolicy(network_rules=(parse_rule(wanted.what),)))
        context.state.answers.allow(wanted, once=True)
        return _text(f"{wanted.what}: {Offer(wanted).once_means}{_reads_too(context)}")
    if command.options.session is not None:
        session_of(command, context).allow(domain=wanted.what)
        told: tuple[Message, ...] = ()
    else:
        told = _defaults(command, context)
    context.state.answers.allow(wanted, once=False)
    said = "" if told else f"Cells may reach {wanted.what} from now on."
    also = _reads_too(context)
    return (*told, *(_text(said + also) if said or also else ()))


def _reads_too(context: LineCommands) -> str:
    """Say that a session which may reach a domain also reads files of the user, which can leave that way."""
    files = (*context.state.answers.copies(), *(one.host for one in without_packages(context.defaults).mounts))
    named = [*files, *([] if context.defaults.here is None else [context.defaults.here])]
    return f" What cells read of yours ({', '.join(named[:3])}) they can send there." if named else ""


def _install(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    packages, before = context.state.packages, context.state.defaults
    found = packages.install(command.targets, context.defaults, context.interrupted)
    context.state.sandboxes.grow(before, packages.given(before))
    return _text(f"Installed for this notebook: {found}.")


def _never(command: LineCommand, context: LineCommands) -> tuple[Message, ...]:
    assert command.wanted is not None
    context.state.answers.refuse(command.wanted)
    word = written(command.wanted)
    return _text(f"{word} is not offered again in this notebook; %sandbox allow {word} gives it all the same.")


_COMMANDS: Mapping[str, Callable[[LineCommand, LineCommands], tuple[Message, ...]]] = {
    "show": lambda command, context: _text(
        f"%sandbox {without_packages(context.defaults).words() or f'--timeout {duration_text(DEFAULT_TIMEOUT_S)}'}"
    ),
    "help": lambda command, context: _text(usage()),
    "defaults": _defaults,
    "reset": _defaults,
    "policy": _policy,
    "allow": _allow,
    "install": _install,
    "never": _never,
    "changes": lambda command, context: show_changes(_here(context), command.targets),
    "apply": lambda command, context: apply_changes(_here(context), command.targets, command.shown),
    "discard": lambda command, context: discard_changes(_here(context), command.targets),
    "files": _files,
    "undo": _undo,
    "redo": lambda command, context: _text("\n".join(session_of(command, context).redo(command.count).notes)),
    "go": _go,
    "checkpoint": _checkpoint,
    "tree": lambda command, context: views.tree(session_of(command, context)),
    "diff": _diff,
    "restart": _restart,
    "save": _save,
    "fork": _fork,
    "load": _load,
    "autosave": _autosave,
    "recover": _recover,
    "report": _report,
    "functions": lambda command, context: _text(
        context.state.sandboxes.offer_functions(
            command.targets, context.state.variables if context.state.in_python else None, context.defaults
        )
    ),
}
