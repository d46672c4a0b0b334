"""Permission prompts: offers the rights that a cell lacked, asks, remembers the answers, gives and takes back.

Our extension draws buttons from ``MIME``; others show lines to type. What the program names is checked and quoted.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Sequence
from html import escape

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.notes import RightAnswer, Wanted, WantedKind
from sandbox_kernel.notebook.options.parse_cell import inner_path, written
from sandbox_kernel.policy.network_rule import lacked_domains
from sandbox_kernel.session.session_rights import RightAnswers
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.kept_work import KeptWork

MIME = "application/vnd.sandbox-kernel.offers+json"
#: Most offers of one cell: how many hosts a program tries, the program decides.
MOST_OFFERS = 3
_WHEN = {"once": RightAnswer.ONCE, "for this session": RightAnswer.SESSION, "never": RightAnswer.NEVER}


@dataclass(frozen=True)
class Offer:
    """One right that the user may give. ``session`` is the name of the cell's session, if it has one."""

    wanted: Wanted
    session: str = ""

    @property
    def sentence(self) -> str:
        """What the program wanted."""
        if self.wanted.kind is WantedKind.PACKAGE:
            return f"The cell needs packages: {self.wanted.what}."
        if self.wanted.kind is WantedKind.DOMAIN:
            return f"The program wanted to reach {self.wanted.what}."
        return f"The program looked for {self.wanted.what}, which is beside the notebook."

    @property
    def once_means(self) -> str:
        """What becomes of the right after the cell."""
        if self.wanted.kind is WantedKind.DOMAIN:
            return "The next cell may reach it; then the right ends, for processes that the cell leaves too."
        return "The next cell finds a copy, which is removed after it; what the cell has read it may keep."

    def line(self, answer: RightAnswer) -> str:
        """Return the line that gives this answer."""
        word = shlex.quote(written(self.wanted))
        if answer is RightAnswer.NEVER:
            return f"%sandbox never {word}"
        if answer is RightAnswer.ONCE:
            return f"%sandbox allow once {word}"
        return f"%sandbox allow {word}" + (f" --session {self.session}" if self.session else "")


def offers_of(result: ExecResult, never: Iterable[Wanted] = (), session: str = "") -> tuple[Offer, ...]:
    """Return what a result lacked and may be offered: each once, none of ``never``, no secrets (users name them)."""
    if not result.violations and not any(note.wanted for note in result.notes):
        return ()
    found = dict.fromkeys(lacked_domains(result))
    for note in result.notes:
        if note.wanted is not None and note.wanted.kind is WantedKind.PACKAGE:
            found[note.wanted] = None
        elif note.wanted is not None and note.wanted.kind is WantedKind.FILE:
            with contextlib.suppress(InvalidRequest):  # the name came from a program
                path = inner_path(note.wanted.what)
                if path.isprintable() and not is_hidden(path):
                    found[Wanted(WantedKind.FILE, path)] = None
    left = [wanted for wanted in found if wanted not in set(never)]
    return tuple(Offer(wanted, session) for wanted in left[:MOST_OFFERS])


def bundle(offers: Sequence[Offer]) -> dict[str, object]:
    """Return the MIME bundle of some offers: for buttons, for a page without them, and for a terminal."""
    text: list[str] = []
    html = ""
    buttons: list[dict[str, object]] = []
    for offer in offers:
        button: dict[str, object] = {"kind": str(offer.wanted.kind), "what": offer.wanted.what}
        if offer.wanted.kind is WantedKind.PACKAGE:
            lines = {"for this notebook": f"%sandbox install {shlex.join(offer.wanted.what.split())}"}
        else:
            button["once_means"] = offer.once_means
            button["lines"] = {str(answer): offer.line(answer) for answer in RightAnswer}
            lines = {words: offer.line(answer) for words, answer in _WHEN.items()}
        buttons.append(button)
        text += [offer.sentence, *(f"  {when}: {line}" for when, line in lines.items())]
        shown = ", ".join(f"{when}: <code>{escape(line)}</code>" for when, line in lines.items())
        html += f"<div>{escape(offer.sentence)} Allow it {shown}</div>"
    return {
        MIME: {"version": 1, "offers": buttons},
        "text/html": f'<div class="mathjax_ignore tex2jax_ignore">{html}</div>',
        "text/plain": "\n".join(text),
    }


def give_file(box: Sandbox, answers: RightAnswers, wanted: Wanted, *, once: bool, kept: KeptWork | None = None) -> str:
    """Copy a file or folder beside the notebook into the work folder, and note it in ``kept``; returns a sentence."""
    paths = box.copy_in(os.getcwd(), wanted.what, again=wanted in answers.copied)
    answers.copied[wanted] = paths
    if kept is not None:
        kept.note_copies(answers.copies())
    answers.allow(wanted, once=once)
    what = wanted.what if paths == (wanted.what,) else f"{wanted.what} ({len(paths)} files)"
    if once:
        return f"{what}: {Offer(wanted).once_means}"
    return f"Cells find a copy of {what} until the kernel ends; changes to it stay in the sandbox."


def take_files_back(box: Sandbox, answers: RightAnswers, once: Sequence[Wanted]) -> None:
    """Remove the copies that were for one cell; what the cell removed itself is gone already."""
    for wanted in once:
        if wanted.kind is WantedKind.FILE:
            for path in answers.copied.pop(wanted, ()):
                with contextlib.suppress(SandboxError):
                    box.remove_file(path)
