"""Does what the user answered: gives a file as a copy, a domain to a session, and takes copies away after a cell."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.notebook.offers.offer import Offer
from sandbox_kernel.notebook.offers.right_answers import RightAnswers
from sandbox_kernel.workspace.kept_work import KeptWork


def give_file(box: Sandbox, answers: RightAnswers, wanted: Wanted, *, once: bool, kept: KeptWork | None = None) -> str:
    """Copy a file or folder beside the notebook into the work folder, and return a sentence about it.

    ``kept`` is where the work folder stays; copies are removed from there when the next kernel begins. Raises
    ``InvalidRequest`` when the file cannot be copied; nothing is changed then.
    """
    paths = box.copy_in(os.getcwd(), wanted.what, again=bool(answers.copies(wanted)))
    answers.copied(wanted, paths)
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
            for path in answers.forget_copies(wanted):
                with contextlib.suppress(SandboxError):
                    box.remove_file(path)


def give_domain_once(answers: RightAnswers, wanted: Wanted) -> str:
    """Let the next cell reach a domain, and return a sentence about it."""
    answers.allow(wanted, once=True)
    return f"{wanted.what}: {Offer(wanted).once_means}"
