"""Rights that the ``%sandbox`` lines of cells ask for: which they are, who may give them, what the user answered.

The lines of a stranger's notebook are the stranger's. A line whose row in ``option_table.py`` is not harmless asks for
a right, and so does one that raises a limit above what the kernel gives (where the user is asked: above ``_UNASKED``).
``SANDBOX_KERNEL_LINES`` says who gives it: the user, who is asked once for all cells of a notebook (``ask``);
nobody through lines (``limits``); nobody while the kernel runs, not the side panel either (``locked``); the line itself
(``all``). An answer is remembered in the user's state folder, for the notebook's path and these very rights.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shlex
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum, unique
from html import escape
from itertools import takewhile

from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SandboxError
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, DEFAULT_SESSION_MEMORY_MB, DEFAULT_TIMEOUT_S, MIB, Limits
from sandbox_kernel.notebook.options.cell_options import CellOptions, policy_of, policy_rows
from sandbox_kernel.notebook.options.option_table import BY_NAME, COMMANDS, HARMLESS_COMMANDS, MAX_OUTPUT, OPTIONS
from sandbox_kernel.notebook.options.parse_cell import (
    LINES_VARIABLE,
    CellPlan,
    LineCommand,
    first_defaults,
    parse_cell,
    written,
)
from sandbox_kernel.policy import PRESETS, Mount, SandboxPolicy
from sandbox_kernel.receipt import INVISIBLE, MARK
from sandbox_kernel.util.own_folder import OwnFiles, state_root

#: What a page with our extension draws buttons for; it asks the kernel what they are about.
MIME = "application/vnd.sandbox-kernel.rights+json"
#: The word that answers the question at a console.
YES = "allow"
#: The most rights that a user is asked for at once, and characters of one: what is allowed has been shown as a whole.
MOST_ASKED, MOST_SHOWN = 50, 2000
#: How long the cells of a notebook are looked through, in seconds of a processor: each may name policy files to read.
SURVEY_S = 2.0
#: Notebooks whose answers are remembered (the longest unused go first), and rights of one notebook.
MOST_NOTEBOOKS, MOST_RIGHTS = 500, 500
_MOST_BYTES = 4 << 20
#: The limits that lines can raise; what a kernel gives where its environment names none; what no user is asked about.
_LIMITS = tuple(option for option in OPTIONS if option.is_limit)
_USUAL = CellOptions(
    memory_mb=DEFAULT_SESSION_MEMORY_MB, timeout_s=DEFAULT_TIMEOUT_S, cpu_seconds=math.inf,
    **{name: getattr(Limits(), name) for name in ("processes", "disk_mb", "output_bytes")},
)  # fmt: skip
_UNASKED = CellOptions(
    memory_mb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB, timeout_s=24 * 3600.0,
    cpu_seconds=math.inf, processes=4096, disk_mb=16 << 10, output_bytes=MAX_OUTPUT,
)  # fmt: skip
#: A harmless option with this value is a right: cells then run on other machines, or in processes of a cluster here.
_ELSEWHERE = ("--backend", "dask")
#: Presets that give what a notebook without a policy has.
_LIKE_NONE = ("standard", "classroom")


@unique
class LineSetting(StrEnum):
    """Who gives the rights that lines of cells ask for."""

    ASK = "ask"
    LIMITS = "limits"
    LOCKED = "locked"
    ALL = "all"


_WHO = {
    LineSetting.ASK: "the user is asked, in JupyterLab, Notebook 7 and consoles, and did not allow it here",
    LineSetting.LIMITS: "the side panel and the buttons below a cell do",
    LineSetting.LOCKED: "and nobody does while the kernel runs, not the side panel either",
    LineSetting.ALL: "",
}


def rights_asked(plan: CellPlan, before: CellOptions, *, asks: bool = False) -> tuple[str, ...]:
    """Return the rights that lines ask for beyond ``before``; with ``asks``, limits only beyond ``_UNASKED``."""
    asked = [_command_text(command) for command in plan.commands if command.name not in HARMLESS_COMMANDS]
    for options in (plan.options, plan.defaults, *(command.options for command in plan.commands)):
        # A fresh cell has more memory than a session, unless the defaults say how much. Only a cell: fresh defaults
        # are also those of later sessions.
        is_fresh_cell = options is plan.options and options != plan.defaults and not options.keeps_state
        roomy = is_fresh_cell and before.memory_mb is None
        usual = replace(_USUAL, memory_mb=DEFAULT_MEMORY_MB) if roomy else _USUAL
        known = (first_defaults().over(usual), before, _UNASKED if asks else CellOptions())
        raised = {
            limit.name
            for limit in _LIMITS
            if (getattr(options, limit.field) or 0) > max(getattr(one, limit.field) or 0 for one in known)
        }
        asked += _rights(options, raised)
    had = {*_rights(before), "--policy strict"}
    had |= {f"--policy {name}" for name in _LIKE_NONE} if before.policy in (None, *_LIKE_NONE) else set()
    return tuple(dict.fromkeys(right for right in asked if right not in had))


def _rights(options: CellOptions, raised: Container[str] = ()) -> list[str]:
    """Return the rights among options and the limits ``raised``, with the paths that they mean on this machine."""
    resolved = replace(
        options,
        mounts=_real_mounts(options.mounts),
        here=None if options.here is None else _real(options.here),
    )
    pairs = [
        (name, value or "")
        for name, value in resolved.pairs()
        if name in raised or not BY_NAME[name].harmless or (name, value) == _ELSEWHERE
    ]
    texts = {"--policy": _policy_text, "--python": _python_text}
    return [f"{name} {texts.get(name, shlex.quote)(value)}" for name, value in pairs]


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _real_mounts(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    return tuple(replace(mount, host=_real(mount.host)) for mount in mounts)


def _policy_text(name: str) -> str:
    """Return a preset's name, or the path of a policy file with what it allows: other content is another right."""
    if name in PRESETS:
        return name
    try:
        found = policy_of(CellOptions(policy=name))
    except SandboxError:
        return shlex.quote(_real(name))  # the cell ends with the reason
    # What lies beside a stranger's notebook may be a link to anywhere.
    paths = tuple(replace(allowed, path=_real(allowed.path)) for allowed in found.allowed_paths)
    found = replace(found, allowed_paths=paths, mounts=_real_mounts(found.mounts))
    nothing = policy_rows(SandboxPolicy())
    gives = [f"{row}: {words}" for row, words in policy_rows(found) if (row, words) not in nothing]
    digest = hashlib.sha256(repr(found).encode()).hexdigest()[:12]
    return f"{shlex.quote(_real(name))} (allows: {'; '.join(gives) or 'nothing'}; {digest})"


def _python_text(name: str) -> str:
    """Return a version, or the path of what the host starts to ask it for its version and folders."""
    if "/" not in name and not os.path.exists(name):
        return shlex.quote(name)
    return f"{shlex.quote(os.path.abspath(name))} (started outside of the sandbox, once)"


def _command_text(command: LineCommand) -> str:
    words = [command.name, *(["once"] if command.once else []), *([command.target] if command.target else [])]
    words += [*command.targets, *([written(command.wanted)] if command.wanted else [])]
    return f"%sandbox {shlex.join(words)} {command.options.words()}".strip()


def shown(right: str) -> str:
    """Return a right as it is shown: one line, what is invisible or turns the writing direction as its number."""
    text = right if len(right) <= MOST_SHOWN else f"{right[:200]} … ({len(right)} characters) … {right[-60:]}"
    return "".join(one if one.isprintable() and not INVISIBLE.match(one) else f"\\u{{{ord(one):x}}}" for one in text)


class LineRights:
    """Who gives rights to the lines of one notebook, and what was given; without a path until the kernel ends."""

    def __init__(self, setting: LineSetting | None = None, notebook: str | None = None) -> None:
        self._setting = setting
        self._notebook = notebook
        self._given: set[str] = set() if notebook is None else _remembered(notebook)
        self._surveyed: dict[str, tuple[str, ...]] = {}
        #: Whether a page with our extension has asked for the rights of its cells.
        self.has_page = False
        #: Whether a page that draws no buttons was told to run the cell again; whether a question found nobody.
        self.prompted = self.unanswered = False

    @property
    def setting(self) -> LineSetting:
        """Who gives rights. Raises ``InvalidRequest`` for a value of the environment that is no setting."""
        value = self._setting or os.environ.get(LINES_VARIABLE, "").strip() or LineSetting.ASK
        if value not in set(LineSetting):
            raise InvalidRequest(
                f"{LINES_VARIABLE}={value!r:.80} is none of: {', '.join(LineSetting)}; set one of them"
            )
        return LineSetting(value)

    def lacking(self, plan: CellPlan, before: CellOptions, *, pressed: bool = False) -> tuple[str, ...]:
        """Return the rights that a plan asks for and nobody gave; ``pressed``: the user pressed a button for it."""
        setting = self.setting
        if setting is LineSetting.ALL or (pressed and setting is not LineSetting.LOCKED):
            return ()
        asked = rights_asked(plan, before, asks=setting is LineSetting.ASK)
        return asked if setting is not LineSetting.ASK else tuple(right for right in asked if right not in self._given)

    def survey(self, cells: Iterable[str], before: CellOptions) -> dict[str, object]:
        """Return what all cells of a notebook lack, for the page, under a key by which it is allowed."""
        lacking: tuple[str, ...] = ()
        rows: list[object] = []
        means = {option.name: option.help for option in OPTIONS} | {command.name: command.help for command in COMMANDS}
        until = time.thread_time() + SURVEY_S  # the other cells ask when they run
        for number, text in enumerate(takewhile(lambda _: time.thread_time() < until, cells), 1):
            rights: tuple[str, ...] = ()
            with contextlib.suppress(SandboxError):  # the kernel refuses such a cell
                rights = self.lacking(parse_cell(text, before), before)
            if rights and can_be_asked((*lacking, *rights)):  # further cells ask when they run
                lacking = (*lacking, *rights)
                said = [next(means[word] for word in right.split()[:2] if word in means) for right in rights]
                rows.append([number, [[shown(right), words] for right, words in zip(rights, said, strict=True)]])
        key = hashlib.sha256(json.dumps(lacking).encode()).hexdigest()
        self._surveyed, self.has_page = {key: lacking}, True
        return {"key": key, "cells": rows, "remembered": self._notebook is not None}

    def allow_surveyed(self, key: str) -> None:
        """Give what the page showed under this key."""
        if self.setting is not LineSetting.ASK:
            raise PolicyViolation(f"lines of cells get no rights here, whoever asks: {LINES_VARIABLE}={self.setting}")
        if key not in self._surveyed:
            raise InvalidRequest("the cells were not asked about by this kernel; run the cell again")
        self.allow(self._surveyed.pop(key))

    def allow(self, rights: Iterable[str]) -> None:
        """Give these rights, and remember them: without a private folder the next kernel asks again."""
        self._given.update(rights)
        if self._notebook is not None:
            files, name = _place(self._notebook)
            kept = {"notebook": os.path.realpath(self._notebook), "rights": sorted(self._given)[:MOST_RIGHTS]}
            files.write(name, json.dumps(kept).encode())

    def keep_line(self, line: str, now: CellOptions) -> None:
        """Remember the rights of a line that a press wrote into the notebook, where it has them ``now``."""
        if self.setting is LineSetting.ASK and not self.lacking(parse_cell(line, now), now):
            self.allow(rights_asked(parse_cell(line, CellOptions()), CellOptions()))

    def refusal(self, lacking: Sequence[str]) -> PolicyViolation:
        """Return the error of a cell that lacks these rights: what was asked, what stopped it, what to do."""
        some = [shown(right) for right in lacking[:MOST_ASKED]]
        more = ", …" if len(lacking) > MOST_ASKED else ""
        of_install = [option.name for option in OPTIONS if option.of_install]
        given = " ".join(right for right in some if right.split()[0] in of_install and "(allows:" not in right)
        install = f"start a kernel that has it (sandbox-kernel install --name NAME {given}), or " if given else ""
        choose = f"set {LINES_VARIABLE}={LineSetting.ALL} for notebooks whose lines you have read"
        if self.setting is LineSetting.LOCKED:  # papermill's engine sets the variable itself
            choose += "; for papermill's engine give it by parameters, like -p sandbox_mounts or sandbox_memory"
        return PolicyViolation(
            f"{', '.join(some)}{more}: lines of cells give themselves no rights, {_WHO[self.setting]} "
            f"({LINES_VARIABLE}={self.setting}). To run this without being asked, {install}{choose}"
        )


def can_be_asked(lacking: Sequence[str]) -> bool:
    """Return whether a user can see these rights as a whole before they answer."""
    return len(lacking) <= MOST_ASKED and all(len(right) <= MOST_SHOWN for right in lacking)


def question(lacking: Sequence[str]) -> str:
    """Return the question at a console. It begins with our mark, which no question of a program can."""
    return f"{MARK} The cell asks for: {'; '.join(map(shown, lacking))}. Type {YES} to give it, Enter to refuse: "


def prompt(lacking: Sequence[str]) -> dict[str, object]:
    """Return what a page shows instead of running the cell: buttons with our extension, else these words."""
    text = f"The lines of this cell ask for: {'; '.join(map(shown, lacking))}. Run the cell again to be asked."
    html = f'<div class="mathjax_ignore tex2jax_ignore">{escape(text)}</div>'
    return {MIME: {"version": 1}, "text/html": html, "text/plain": text}


def _place(notebook: str) -> tuple[OwnFiles, str]:
    """Return the private folder of answers, never beside a notebook, and the name of this notebook's file in it."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(notebook))).hexdigest()[:32]
    return OwnFiles(os.path.join(state_root(), "sandbox-kernel", "rights"), most_files=MOST_NOTEBOOKS), name


def _remembered(notebook: str) -> set[str]:
    files, name = _place(notebook)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        kept = json.loads(files.read(name, _MOST_BYTES) or b"")
        if kept["notebook"] == os.path.realpath(notebook):
            return {right for right in kept["rights"] if isinstance(right, str)}
    return set()
