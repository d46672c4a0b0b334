"""The offer of a right that a cell lacked, and how it is shown and written. Pure.

A page with our extension draws buttons from ``MIME``; every other page shows the lines to type. What is offered comes
from the program: it is checked, quoted and shown as text, and nothing is given before the user answers.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from html import escape

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.policy.network_rule import lacked_domains, parse_rule, rule_text
from sandbox_kernel.workspace.hidden import is_hidden

MIME = "application/vnd.sandbox-kernel.offers+json"
#: Most offers of one cell: how many hosts a program tries, the program decides.
MOST_OFFERS = 3


@unique
class OfferAnswer(StrEnum):
    """What a user may answer."""

    ONCE = "once"
    SESSION = "session"
    NEVER = "never"


@dataclass(frozen=True)
class Offer:
    """One right that the user may give. ``session`` is the name of the cell's session, if it has one."""

    wanted: Wanted
    session: str = ""

    @property
    def sentence(self) -> str:
        """What the program wanted."""
        if self.wanted.kind is WantedKind.DOMAIN:
            return f"The program wanted to reach {self.wanted.what}."
        return f"The program looked for {self.wanted.what}, which is beside the notebook."

    @property
    def once_means(self) -> str:
        """What becomes of the right after the cell."""
        if self.wanted.kind is WantedKind.DOMAIN:
            return "The next cell may reach it; then the right ends, for processes that the cell leaves too."
        return "The next cell finds a copy, which is removed after it; what the cell has read it may keep."

    def line(self, answer: OfferAnswer) -> str:
        """Return the line that gives this answer."""
        word = shlex.quote(written(self.wanted))
        if answer is OfferAnswer.NEVER:
            return f"%sandbox never {word}"
        if answer is OfferAnswer.ONCE:
            return f"%sandbox allow once {word}"
        return f"%sandbox allow {word}" + (f" --session {self.session}" if self.session else "")

    def to_dict(self) -> dict[str, object]:
        """Return the offer as the page gets it."""
        return {
            "kind": str(self.wanted.kind),
            "what": self.wanted.what,
            "sentence": self.sentence,
            "once_means": self.once_means,
            "lines": {str(answer): self.line(answer) for answer in OfferAnswer},
        }


def offers_of(result: ExecResult, never: Iterable[Wanted] = (), session: str = "") -> tuple[Offer, ...]:
    """Return what a result lacked and may be offered: each right once, none that the user never wants to give.

    Secrets are not offered (``workspace/overlay/hidden.py``): a user who wants to give one names it.
    """
    files = [_file(note.wanted) for note in result.notes if note.wanted is not None]
    found = dict.fromkeys(wanted for wanted in (*lacked_domains(result), *files) if wanted is not None)
    left = [wanted for wanted in found if wanted not in set(never)]
    return tuple(Offer(wanted, session) for wanted in left[:MOST_OFFERS])


def parse_wanted(text: str, command: str) -> Wanted:
    """Parse the word after ``%sandbox allow`` or ``never``: a path if it has a slash, else a domain."""
    try:
        if "/" in text and "://" not in text:
            return Wanted(WantedKind.FILE, _inner_path(text))
        return Wanted(WantedKind.DOMAIN, rule_text(parse_rule(text)))
    except PolicyViolation as error:
        raise InvalidRequest(f"%sandbox {command} {error}; a file or folder is written ./NAME") from None


def written(wanted: Wanted) -> str:
    """Return a right as a user writes it, so that ``parse_wanted`` reads the same."""
    is_plain_name = wanted.kind is WantedKind.FILE and "/" not in wanted.what
    return f"./{wanted.what}" if is_plain_name else wanted.what


def bundle(offers: Sequence[Offer]) -> dict[str, object]:
    """Return the MIME bundle of some offers: for buttons, for a page without them, and for a terminal."""
    text: list[str] = []
    html = ""
    for offer in offers:
        once, session, never = (offer.line(answer) for answer in OfferAnswer)
        text += [offer.sentence, f"  once: {once}", f"  for this session: {session}", f"  never: {never}"]
        html += (
            f"<div>{escape(offer.sentence)} Allow it once: <code>{escape(once)}</code>, for this session: "
            f"<code>{escape(session)}</code>, never: <code>{escape(never)}</code></div>"
        )
    return {
        MIME: {"version": 1, "offers": [offer.to_dict() for offer in offers]},
        "text/html": f'<div class="mathjax_ignore tex2jax_ignore">{html}</div>',
        "text/plain": "\n".join(text),
    }


def _file(wanted: Wanted) -> Wanted | None:
    """Return the right to a file whose name came from a program; None for another right, and what is never offered."""
    if wanted.kind is not WantedKind.FILE:
        return None
    try:
        path = _inner_path(wanted.what)
    except InvalidRequest:
        return None
    return None if is_hidden(path) or not path.isprintable() else Wanted(WantedKind.FILE, path)


def _inner_path(text: str) -> str:
    path = os.path.normpath(text)
    if os.path.isabs(path) or path.split("/")[0] in ("..", "."):
        raise InvalidRequest(
            f"{text[:200]!r} is not inside the notebook's folder; to show one elsewhere: %sandbox --mount HOST:/data"
        )
    return path
