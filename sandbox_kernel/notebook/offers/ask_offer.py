"""Asks whether to give rights that a cell lacked, where a front end draws no buttons, and prepares to run it again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.notebook.offers.offer import Offer, OfferAnswer
from sandbox_kernel.notebook.offers.right_answers import RightAnswers
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import CellPlan, LineCommand, new_defaults, parse_line
from sandbox_kernel.receipt import MARK
from sandbox_kernel.session.session import Session

#: Asks the user, and returns the line that they typed; None when nobody answered.
OnQuestion = Callable[[str], Awaitable[str | None]]
#: Does a line command under new defaults; False when it was interrupted.
DoLine = Callable[[LineCommand, CellOptions], Awaitable[bool]]

_ANSWERS = {
    "o": OfferAnswer.ONCE,
    "once": OfferAnswer.ONCE,
    "s": OfferAnswer.SESSION,
    "session": OfferAnswer.SESSION,
    "n": OfferAnswer.NEVER,
    "never": OfferAnswer.NEVER,
}


def question(offer: Offer) -> str:
    """Return the question. It begins with our mark, which no question of a program can."""
    return f"{MARK} {offer.sentence} Allow it and run the cell again? [o]nce, [s]ession, [n]ever, Enter: not now: "


def answer_of(text: str | None) -> OfferAnswer | None:
    """Return what the user answered; None for "not now" and for everything that is no clear answer."""
    return None if text is None else _ANSWERS.get(text.strip().lower())


async def ask_for_rights(
    plan: CellPlan, offers: Sequence[Offer], answers: RightAnswers, ask: OnQuestion, do_line: DoLine
) -> CellPlan | None:
    """Ask about each offer that was not asked about before, and do what the user answers.

    Returns the plan by which the cell runs again with what it was given; None when nothing was given.
    """
    new = answers.not_asked(offer.wanted for offer in offers)
    given = False
    for offer in offers:
        answer = answer_of(await ask(question(offer))) if offer.wanted in new else None
        if answer is None:
            continue
        command = parse_line(offer.line(answer).removeprefix("%sandbox"))
        defaults = new_defaults(command, plan.defaults)
        if not await do_line(command, defaults):
            continue
        if defaults != plan.defaults:
            plan = replace(plan, options=plan.options.reaching([offer.wanted.what]), defaults=defaults)
        given = given or answer is not OfferAnswer.NEVER
    return plan if given else None


def take_cell_back(session: Session | None, *, rolled_back: bool) -> str:
    """Take the last cell back, with what it changed, so that it can run again. Returns why not; empty when done."""
    if session is None or rolled_back:
        return ""
    try:
        session.undo(1)
    except SandboxError as error:
        return f"The cell was not run again, because it cannot be taken back: {error}"
    return ""
